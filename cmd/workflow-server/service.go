package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server/systemd"
	"workflowagent/internal/sys/initsystem"
)

// newServiceCommand returns the commands that control the server as a service of systemd.
func newServiceCommand() *cobra.Command {
	shown := operator.Services{
		Program: systemd.Name, Open: func() (operator.Service, error) { return systemd.Open() }, Missing: initsystem.ErrNotInstalled,
		Explain: func(_ operator.Service, err error) error { return explain(err) },
	}
	return operator.Group(
		&cobra.Command{
			Use: "service", Short: "Register the server with systemd, and control it there",
			Long: `Register the server with systemd, and control it there.

The service runs in a sandbox as the user ` + systemd.Name + `, with its data in /var/lib/` + systemd.Name + `. Running
deployments continue when you stop, restart, upgrade or uninstall the server.`,
			Example: "  workflow-server service status",
		},
		newServiceInstallCommand(),
		shown.NewActionCommand("uninstall", "Stop the service and remove it; configuration, data and account are kept", "Removed", action((*systemd.Service).Uninstall)),
		shown.NewActionCommand("start", "Start the service", "Started", action(do("start"))),
		shown.NewActionCommand("stop", "Stop the service; running deployments continue", "Stopped", action(do("stop"))),
		shown.NewActionCommand("restart", "Restart the service; running deployments continue", "Restarted", action(do("restart"))),
		shown.NewStatusCommand(), shown.NewLogsCommand(), newServiceFilesCommand(),
	)
}

// explain adds advice to the error of a service that is not installed.
func explain(err error) error {
	if errors.Is(err, initsystem.ErrNotInstalled) {
		return fmt.Errorf("%w: see workflow-server service install --help", err)
	}
	return err
}

// action opens the service for a change of it, and returns its file.
func action(change func(*systemd.Service, context.Context) error) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		s, err := systemd.Open()
		if err != nil {
			return "", err
		}
		return s.File(), explain(change(s, ctx))
	}
}

func do(verb string) func(*systemd.Service, context.Context) error {
	return func(s *systemd.Service, ctx context.Context) error { return s.Do(ctx, verb) }
}

func newServiceInstallCommand() *cobra.Command {
	var start bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Register the service, or update its registration",
		Long: `Register the service, or update its registration, so that it starts with the machine. The
command creates the user ` + systemd.Name + ` and the configuration file /etc/` + systemd.Name + `/workflow-server.yaml if
they are missing. A running service keeps its registration until it restarts.

Packages contain the service, so this command is for the server of an archive.`,
		Example: "  sudo workflow-server service install --start",
		Args:    operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := systemd.Open()
			if err != nil {
				return err
			}
			if err := s.Register(cmd.Context()); err != nil {
				return err
			}
			if err := s.Enable(cmd.Context()); err != nil {
				return err
			}
			cmd.Printf("Installed %s.\n", s.File())
			if !start {
				return nil
			}
			if err := s.Do(cmd.Context(), "restart"); err != nil {
				return err
			}
			cmd.Println("Started.")
			return nil
		},
	}
	cmd.Flags().BoolVar(&start, "start", false, "start the service, or restart a running service")
	return cmd
}

// newServiceFilesCommand returns the command with which a release creates the files of the packages.
func newServiceFilesCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "files", Short: "Write the service's files for a package", Hidden: true, Args: operator.NoArgs,
		RunE: func(*cobra.Command, []string) error { return systemd.WritePackage(dir) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory for the files, created if it is missing")
	return cmd
}
