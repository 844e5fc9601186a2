package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/host/upkeep"
)

// exitNewer is the exit code of update --check if a newer release is available.
const exitNewer = 10

func newUpdateCommand(version string, options func() config.LoadOptions, load loader) *cobra.Command {
	u := updateCommand{version: version, options: options}
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Install the newest release, or report whether one is available",
		Long: `Find the newest release of update_channel, verify its signature, install all of its
programs together, restart a running service, and wait until the new version has
reached the server. If it does not, the update is rolled back.

Running deployments continue. It never installs an older version, and never changes what
dpkg, rpm or Homebrew installed. An installation of the machine needs root.

With --check the exit code is 0 if this is the newest release, 10 if a newer one is
available, and 1 if the check failed. Otherwise it is 0 if the newest release is
installed, and 1 if not.`,
		Example: `  customer-managed-workflow-agent update --check
  sudo customer-managed-workflow-agent update
  sudo customer-managed-workflow-agent update --version v1.2.3`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			u.stdout, u.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			u.service.User = os.Geteuid() != 0
			if err := release.CheckVersion(u.want); err != nil && cmd.Flags().Changed("version") {
				return config.Invalid(err)
			}
			if cmd.Flags().Changed("service") {
				if err := u.known(ctx); err != nil {
					return err
				}
			}
			return u.run(ctx)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&u.check, "check", false, "only report whether a newer release is available")
	f.StringVar(&u.want, "version", "", "release to install instead of the newest, such as v1.2.3")
	f.BoolVar(&u.asJSON, "json", false, "print JSON")
	f.StringVar(&u.service.Name, "service", service.DefaultName, "name of the service to restart")
	cmd.AddCommand(newUpdateApplyCommand(load))
	return cmd
}

type updateCommand struct {
	version        string // of this program
	options        func() config.LoadOptions
	service        service.Options
	check          bool
	want           string
	asJSON         bool
	stdout, stderr io.Writer
}

type updateAnswer struct {
	Version   string    `json:"version"`             // that is installed now
	Available string    `json:"available,omitempty"` // that was found
	Newer     bool      `json:"newer"`               // than what was installed before
	Published time.Time `json:"published,omitzero"`
	Notes     string    `json:"notes,omitempty"`
	Updated   bool      `json:"updated"`
	Reason    string    `json:"reason,omitempty"`  // why the new version was rolled back
	Command   string    `json:"command,omitempty"` // of the package manager that owns the program
}

// known refuses a named service that does not exist: its agent would silently not be restarted.
func (u *updateCommand) known(ctx context.Context) error {
	s, err := service.Open(u.service)
	if err != nil {
		return err
	}
	_, err = s.Describe(ctx)
	return notInstalled(s, err)
}

func (u *updateCommand) run(ctx context.Context) error {
	install, err := update.FindOwn(ctx)
	packaged, isPackaged := errors.AsType[*update.PackagedError](err)
	if err != nil && !u.check {
		if isPackaged && u.asJSON {
			return errors.Join(u.print(updateAnswer{Version: u.version, Command: packaged.Command}), err)
		}
		return err
	}
	if !u.check { // which needs the same rights as all that follows
		if err := mayChange(install); err != nil {
			return err
		}
	}
	finder, err := u.finder(install)
	if err != nil {
		return err
	}
	var c update.Candidate
	if u.want == "" {
		c, err = finder.Latest(ctx)
	} else {
		c, err = finder.Version(ctx, u.want)
	}
	if err != nil {
		return err
	}
	newer, err := c.Newer(u.version)
	if err != nil {
		return err
	}
	answer := updateAnswer{Version: u.version, Available: c.Version, Newer: newer, Published: c.Published, Notes: c.Notes}
	if isPackaged && newer {
		answer.Command = packaged.Command
	}
	if u.check {
		return u.answerCheck(answer, install)
	}
	if u.want != "" && !newer && u.want != u.version {
		return fmt.Errorf("%s: %w", u.want, update.ErrDowngrade)
	}
	// The version of this program may differ from the installed one.
	if current, err := install.Current(); err != nil || !newer && current == u.version {
		return errors.Join(err, u.print(answer))
	}
	return u.install(ctx, install, finder, c, answer)
}

// mayChange reports missing rights before the download.
func mayChange(install update.Installation) error {
	err := install.Prove()
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run this as its owner, with sudo for an installation of the machine", err)
	}
	return err
}

// finder returns a finder with its own memory, because the agent may be another user.
func (u *updateCommand) finder(install update.Installation) (*update.Finder, error) {
	c, err := u.config()
	if err != nil {
		return nil, err
	}
	caPEM, err := c.CACertificates()
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("ca_certificate_file: %w", err))
	}
	memory := ""
	if install.Root != "" && !u.check {
		memory = filepath.Join(install.Root, update.SeenFile)
	}
	return upkeep.NewFinder(c, caPEM, memory)
}

func (u *updateCommand) config() (*config.Config, error) {
	o := u.options()
	if chosen, err := service.Chosen(u.service); o.Path == "" && err == nil {
		o.Path = chosen.Config
	}
	if _, err := os.Lstat(service.SystemConfig); o.Path == "" && err == nil && !u.service.User {
		o.Path = service.SystemConfig
	}
	c, err := config.Load(o)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: it configures where releases are found, so run this as its owner, with sudo for a service of the machine", err)
	}
	if err != nil {
		return nil, config.Invalid(err)
	}
	return c, nil
}

// answerCheck answers update --check. install is empty if this program cannot update itself.
func (u *updateCommand) answerCheck(answer updateAnswer, install update.Installation) error {
	how := release.Program + " update"
	if u.want != "" {
		how += " --version " + u.want
	}
	if answer.Command != "" {
		how = answer.Command
	} else if install.Root == "" {
		how = "install.sh, or replace this program by hand"
	}
	switch {
	case u.asJSON:
		if err := u.print(answer); err != nil {
			return err
		}
	case answer.Newer:
		fmt.Fprintf(u.stdout, "%s is available (running %s). To install: %s\n", answer.Available, answer.Version, how)
	case u.want != "":
		fmt.Fprintf(u.stdout, "%s is available, and is not newer than the running %s.\n", answer.Available, answer.Version)
	default:
		fmt.Fprintf(u.stdout, "%s is the newest release.\n", answer.Version)
	}
	if answer.Newer {
		return codeError{code: exitNewer}
	}
	return nil
}

func (u *updateCommand) print(answer updateAnswer) error {
	if !u.asJSON {
		text := "%s is installed, and no newer release is available.\n"
		if u.want != "" {
			text = "%s is installed already.\n"
		}
		fmt.Fprintf(u.stdout, text, answer.Version)
		return nil
	}
	return printJSON(u.stdout, answer)
}

func (u *updateCommand) install(ctx context.Context, install update.Installation, finder *update.Finder, c update.Candidate, answer updateAnswer) error {
	stage := filepath.Join(install.Root, update.ManualStage)
	bar := newProgress(u.stderr, c.Version)
	err := finder.Stage(ctx, c, update.Staging{Dir: stage, Explicit: u.want != "", Progress: bar.show})
	bar.end()
	if errors.Is(err, update.ErrBusy) {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }() // the next update uses or replaces leftovers
	if err != nil {
		return err
	}
	logger := logrus.New()
	logger.SetOutput(u.stderr)
	logger.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	a := &update.Applier{Installation: install, Log: logrus.NewEntry(logger)}
	if a.Keys, err = release.BuiltinKeys(); err != nil {
		return err
	}
	restarted := " A running agent keeps its version until it is restarted."
	if s := upkeep.OpenService(u.service, install, u.config, ""); s != nil {
		a.Service, a.Ready = s, s.Ready
		if health, err := s.Health(ctx); err != nil || health.Progress != update.NotRunning {
			restarted = "" // or this fails
		}
	}
	result, err := a.Apply(ctx, stage)
	if err != nil {
		return err
	}
	if err := install.Prove(); err != nil {
		return err
	}
	if answer.Version, err = install.Current(); err != nil {
		return err
	}
	answer.Updated, answer.Reason = result.Outcome == update.Updated, result.Reason
	switch {
	case u.asJSON:
		err = u.print(answer)
	case answer.Updated:
		fmt.Fprintf(u.stdout, "%s is installed (it was %s).%s\n", answer.Version, result.From, restarted)
	case result.Outcome == update.Nothing:
		fmt.Fprintf(u.stdout, "%s is installed already.\n", answer.Version)
	}
	if result.Outcome == update.Back {
		return errors.Join(err, fmt.Errorf("%s did not work and was rolled back; %s is installed: %s", result.To, answer.Version, result.Reason))
	}
	return err
}
