package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	kardianos "github.com/kardianos/service"
	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/upkeep"
)

func newServiceCommand() *cobra.Command {
	var o service.Options
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Register the agent with systemd or launchd, and control it there",
		Long: `Register the agent with systemd (Linux) or launchd (macOS), and control it there.

Without --user the service is the machine's, starts with it and needs root. With it, the
service stops with your last session, unless your account lingers (loginctl enable-linger).
Running deployments continue when you stop, restart, upgrade or uninstall the service.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().BoolVar(&o.User, "user", false, "a service of the current user, not of the machine")
	cmd.PersistentFlags().StringVar(&o.Name, "name", service.DefaultName, "name of the service, for several agents on one machine")
	open := func() (service.Service, error) { return service.Open(o) }
	cmd.AddCommand(
		newServiceInstallCommand(&o),
		serviceAction("uninstall", "Stop the service and remove it; configuration, state and deployments stay", "Removed", open, service.Service.Uninstall),
		serviceAction("start", "Start the service, registering it first if needed", "Started", func() (service.Service, error) { return registered(o) }, service.Service.Start),
		serviceAction("stop", "Stop the service; running deployments continue", "Stopped", open, service.Service.Stop),
		serviceAction("restart", "Restart the service; running deployments continue", "Restarted", open, service.Service.Restart),
		newServiceStatusCommand(open),
		newServiceLogsCommand(open),
	)
	return cmd
}

func serviceAction(verb, short, done string, open func() (service.Service, error), do func(service.Service) error) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short, Args: noArgs,
		Example: "  sudo customer-managed-workflow-agent service " + verb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := open()
			if err != nil {
				return err
			}
			if err := notInstalled(s, do(s)); err != nil {
				return err
			}
			cmd.Printf("%s %s.\n", done, s.File())
			return nil
		},
	}
}

func notInstalled(s service.Service, err error) error {
	if errors.Is(err, kardianos.ErrNotInstalled) {
		return fmt.Errorf("the service is not installed, %s is missing: see %s service install --help (a user's service needs --user with every command)", s.File(), service.DefaultName)
	}
	return err
}

// registered returns the service, and installs it first if necessary.
func registered(o service.Options) (service.Service, error) {
	s, err := service.Open(o)
	if err != nil {
		return nil, err
	}
	if _, err := s.Describe(context.Background()); !errors.Is(err, kardianos.ErrNotInstalled) {
		return s, err
	}
	if o, err = chosen(o); err != nil {
		return nil, err
	}
	return upkeep.Register(context.Background(), o, nil, func(err error) { fmt.Fprintln(os.Stderr, err) })
}

// Exit codes of service status, as in systemctl and the LSB.
const (
	exitNotRunning   = 3
	exitNotInstalled = 4
)

func newServiceStatusCommand(open func() (service.Service, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the state of the service (exit code 0: runs, 3: does not run, 4: not installed)",
		Example: "  customer-managed-workflow-agent service status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := open()
			if err != nil {
				return err
			}
			state, err := s.Describe(cmd.Context())
			if errors.Is(err, kardianos.ErrNotInstalled) {
				return codeError{notInstalled(s, err), exitNotInstalled}
			}
			if err != nil {
				return err
			}
			if err := printState(cmd, state, asJSON); err != nil {
				return err
			}
			if state.Active != "active" {
				return codeError{fmt.Errorf("the service is %s", state.Active), exitNotRunning}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printState(cmd *cobra.Command, state service.State, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		return printJSON(out, state)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\n", name, value) }
	row("state", strings.TrimSuffix(state.Active+" ("+state.Detail+")", " ()"))
	if !state.Since.IsZero() {
		row("since", state.Since.Format(time.RFC3339))
	}
	if state.Enabled != "" {
		row("starts by itself", state.Enabled)
	}
	if state.PID > 0 {
		row("pid", state.PID)
	}
	row("restarts", state.Restarts)
	if state.LastExit != "" {
		row("last exit", state.LastExit)
	}
	row("file", state.Installed)
	return w.Flush()
}

func newServiceLogsCommand(open func() (service.Service, error)) *cobra.Command {
	var (
		lines  int
		follow bool
	)
	cmd := &cobra.Command{
		Use:     "logs",
		Short:   "Show the service's log",
		Example: "  customer-managed-workflow-agent service logs --follow",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return config.Invalid(errors.New("--lines must not be negative"))
			}
			s, err := open()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// Other errors do not prevent showing the log.
			if _, err := s.Describe(ctx); errors.Is(err, kardianos.ErrNotInstalled) {
				return notInstalled(s, err)
			}
			return s.Logs(ctx, cmd.OutOrStdout(), lines, follow)
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "how many of the last lines")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until interrupted")
	return cmd
}
