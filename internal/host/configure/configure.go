// Package configure writes the agent's configuration file, based on the operator's flags or
// responses. It checks the settings with the doctor before it writes them.
package configure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
	"workflowagent/internal/settings"
	"workflowagent/internal/settings/conffile"
)

// Options configure [Run].
type Options struct {
	Load    config.LoadOptions
	Version string // the version of this program
	In      io.Reader
	Out     io.Writer

	// If none of the following fields is set and In is a terminal, Run prompts for the settings.
	ServiceURL   string
	TokenFile    string // path of a file with the token; "-" means In
	DeployTarget string
	Set          []string // settings in the form KEY=VALUE

	NoCheck bool // write the file without checking the server and the host
}

var errStopped = errors.New("stopped; nothing was written")

// Run writes the configuration file. If it does not, it returns an error with the reason.
func Run(ctx context.Context, o Options) error {
	path, err := config.Target(o.Load)
	if err != nil {
		return config.Invalid(err)
	}
	text, err := config.ReadText(path, o.Load)
	if err != nil {
		return config.Invalid(err)
	}
	fmt.Fprintf(o.Out, "Configuration file: %s\n", path)
	terminal, asking := o.terminal()
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
		return config.Invalid(fmt.Errorf("nothing was written, because an agent cannot run with these settings:\n%s", o.nameFlags(err, path)))
	}
	if err := o.check(ctx, loaded, terminal, asking); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return errStopped
	}
	return o.write(ctx, path, text, edited, changes, loaded)
}

// checks lists the doctor's checks that run before the file is written. checksOf lists the checks
// that run after a response, by key.
var (
	checks   = []string{"tls", "clock", "token", "engine", "runner"}
	checksOf = map[string][]string{
		"service_url": {"tls", "server"}, "token": {"token"}, "deploy_target": {"engine", "runner"},
	}
)

// check runs the checks. If a check fails, check returns an error unless the operator confirms that
// the file must be written anyway.
func (o Options) check(ctx context.Context, loaded *config.Config, asker *terminal, asking bool) error {
	if o.NoCheck {
		return nil
	}
	report, err := daemon.Examine(ctx, doctor.Options{
		Config: loaded, Version: o.Version, UserAgent: daemon.UserAgent(o.Version), Only: checks,
		Done: func(r doctor.Result) {
			if r.Status != doctor.Skip {
				doctor.Print(o.Out, r, asker.coloured())
			}
		},
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return errStopped
	case report.OK:
		return nil
	}
	if asking {
		answer, err := asker.line(ctx, "A check failed. Write the file nevertheless? [y/N]: ")
		if err != nil {
			return err
		}
		if answer := strings.ToLower(answer); answer == "y" || answer == "yes" {
			return nil
		}
	}
	return errors.New("nothing was written, because a check failed; fix the cause, or use --no-check")
}

func (o Options) write(ctx context.Context, path string, was, text []byte, changes []settings.Change, loaded *config.Config) error {
	if was != nil && bytes.Equal(was, text) {
		fmt.Fprintln(o.Out, "Nothing to change: the file has these settings.")
		return nil
	}
	note, err := conffile.Write(path, text)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	fmt.Fprintf(o.Out, "Wrote %s.\n", path)
	if note != "" {
		fmt.Fprintf(o.Out, "Note: %s.\n", note)
	}
	for _, change := range changes {
		if source := loaded.Source(change.Key); source.Kind == settings.FromEnv {
			fmt.Fprintf(o.Out, "Note: the variable %s is set here and overrides %s in the file.\n", source.Name, change.Key)
		}
	}
	next := "To check everything else, run doctor. Then start the agent with run, or its service with service start."
	if _, err := control.FindRunning(ctx, loaded.StateDirectory, ""); err == nil {
		next = "Restart the running agent to use it. To check everything else, run doctor."
	}
	fmt.Fprintln(o.Out, next)
	return nil
}
