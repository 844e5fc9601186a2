// Package configure writes the agent's configuration file, based on the operator's flags or
// responses. It checks the settings with the doctor before it writes them.
package configure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/checkup"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/setup"
)

// Options configure [Run].
type Options struct {
	Load    config.LoadOptions
	Version string // the version of this program
	In      io.Reader
	Out     io.Writer

	// If none of the following fields is set and In is a terminal, Run prompts for the settings.
	ServiceURL        string
	TokenFile         string // path of a file with the token; "-" means In
	DeployTarget      string
	CACertificateFile string
	Set               []string // settings in the form KEY=VALUE

	NoCheck bool // write the file without checking the server and the host

	// Awaited, unless it is nil, reports whether an installed service is waiting for the file.
	Awaited func(ctx context.Context, path string) bool
	// Account, unless it is nil, returns the user of the installed service that reads the file, or "".
	Account func(path string) string
}

// Run writes the configuration file. If it does not, it returns an error with the reason.
func Run(ctx context.Context, o Options) error {
	path, err := config.Target(o.Load)
	if err != nil {
		return config.Invalid(err)
	}
	if err := setup.CheckPlace(path, o.Load.UID); err != nil {
		return err
	}
	text, err := config.ReadText(path, o.Load)
	if err != nil {
		return config.Invalid(err)
	}
	fmt.Fprintf(o.Out, "Configuration file: %s\n", path)
	terminal := setup.TerminalOf(o.In, o.Out)
	asking := terminal != nil && !o.flags().Given()
	if terminal != nil && !asking {
		asking = o.lacksToken(path, text)
	}
	var changes []settings.Change
	if asking {
		changes, err = o.ask(ctx, terminal, path, text)
	} else {
		changes, err = o.fromFlags()
	}
	if err != nil {
		return err
	}
	edited := text
	if text == nil {
		edited = []byte("# Written by customer-managed-workflow-agent configure. docs/configuration.md describes all keys.\n")
	}
	if edited, err = config.Table().Edit(path, edited, changes); err != nil {
		return config.Invalid(err)
	}
	loaded, err := config.LoadText(o.Load, path, edited)
	if err == nil {
		err = loaded.Validate()
	}
	if err != nil {
		return config.Invalid(fmt.Errorf("nothing was written, because an agent cannot run with these settings:\n%s", o.flags().Describe(err, path)))
	}
	if err := o.check(ctx, loaded, terminal, asking); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return setup.ErrStopped
	}
	return o.write(ctx, path, text, edited, changes, loaded)
}

// checks lists the doctor's checks that run before the file is written. checksOf lists the checks
// that run after a response, by key.
var (
	checks   = []string{"files", "service", "tls", "clock", "token", "engine", "runner"}
	checksOf = map[string][]string{
		"service_url": {"tls", "server"}, "token": {"token"}, "deploy_target": {"engine", "runner"},
	}
)

// check runs the checks. If a check fails, check returns an error unless the operator confirms that
// the file must be written anyway.
func (o Options) check(ctx context.Context, loaded *config.Config, asker *setup.Terminal, asking bool) error {
	if o.NoCheck {
		return nil
	}
	report, err := daemon.Examine(ctx, doctor.Options{
		Config: loaded, Version: o.Version, UserAgent: daemon.UserAgent(o.Version), Only: checks,
		Done: func(r checkup.Result) {
			if r.Status != checkup.StatusSkip {
				checkup.Print(o.Out, r, asker.Coloured())
			}
		},
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return setup.ErrStopped
	case !slices.ContainsFunc(report.Checks, prevents):
		return nil
	}
	if asking {
		write, err := asker.Confirm(ctx, "A check failed. Write the file nevertheless?")
		if err != nil || write {
			return err
		}
	}
	return errors.New("nothing was written, because a check failed; fix the cause, or use --no-check")
}

// prevents reports whether a result prevents the writing of the file. The sandbox of the service is changed afterwards.
func prevents(r checkup.Result) bool { return r.Status == checkup.StatusFail && r.Name != "service" }

// readers returns the group of the service's user, which must be able to read a new configuration file of root, as after
// service install. It returns nil if the file needs no group.
func (o Options) readers(path string) *int {
	if o.Load.UID != 0 || o.Account == nil {
		return nil
	}
	account, err := checkup.AccountNamed(o.Account(path))
	if err != nil || account.UID == 0 {
		return nil // the check of the files reports a user that does not exist
	}
	return &account.GID
}

func (o Options) write(ctx context.Context, path string, was, text []byte, changes []settings.Change, loaded *config.Config) error {
	written, err := setup.Edit{
		Path: path, Was: was, Text: text, Readers: o.readers(path), Changes: changes, Source: loaded.Source,
	}.Write(o.Out)
	if err != nil || !written {
		return err
	}
	next := "To check everything else, run doctor. Then start the agent with run, or its service with service start."
	if _, err := control.FindRunning(ctx, loaded.StateDirectory, ""); err == nil {
		next = "Restart the running agent to use it. To check everything else, run doctor."
	} else if o.Awaited != nil && o.Awaited(ctx, path) {
		next = "The installed service, which was waiting for the file, starts the agent within seconds: see service status. To check everything else, run doctor."
	}
	fmt.Fprintln(o.Out, next)
	return nil
}
