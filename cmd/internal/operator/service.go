package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/sys/initsystem"
)

// Service is a program's service on this machine.
type Service interface {
	Describe(ctx context.Context) (initsystem.State, error)
	Logs(ctx context.Context, out io.Writer, lines int, follow bool) error
}

// Services are what the commands about a program's service differ in.
type Services struct {
	Program string
	Open    func() (Service, error)
	// Explain adds advice to an error.
	Explain func(Service, error) error
	// Missing is the error of a service that is not installed.
	Missing error
}

// NewActionCommand returns a command that changes the service. do returns the file that registers it, and done says
// what happened to that.
func (s Services) NewActionCommand(verb, short, done string, do func(ctx context.Context) (file string, err error)) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short, Args: NoArgs,
		Example: "  sudo " + s.Program + " service " + verb,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := do(cmd.Context())
			if err != nil {
				return err
			}
			cmd.Printf("%s %s.\n", done, file)
			return nil
		},
	}
}

// Exit codes of service status, as in systemctl and the LSB.
const (
	exitNotRunning   = 3
	exitNotInstalled = 4
)

// NewStatusCommand returns the command that shows the state of the service.
func (s Services) NewStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the state of the service (exit code 0: runs, 3: does not run, 4: not installed)",
		Example: "  " + s.Program + " service status --json",
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := s.Open()
			if err != nil {
				return err
			}
			state, err := opened.Describe(cmd.Context())
			if errors.Is(err, s.Missing) {
				return program.Exit(exitNotInstalled, s.Explain(opened, err))
			}
			if err != nil {
				return err
			}
			if err := printState(cmd, state, asJSON); err != nil {
				return err
			}
			if state.Active != "active" {
				return program.Exit(exitNotRunning, fmt.Errorf("the service is %s", state.Active))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printState(cmd *cobra.Command, state initsystem.State, asJSON bool) error {
	out := cmd.OutOrStdout()
	if asJSON {
		return PrintJSON(out, state)
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

// NewLogsCommand returns the command that shows the log of the service.
func (s Services) NewLogsCommand() *cobra.Command {
	var (
		lines  int
		follow bool
	)
	cmd := &cobra.Command{
		Use:     "logs",
		Short:   "Show the service's log",
		Example: "  " + s.Program + " service logs --follow",
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return program.Usage(errors.New("--lines must not be negative"))
			}
			opened, err := s.Open()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			// Show the log despite other errors.
			if _, err := opened.Describe(ctx); errors.Is(err, s.Missing) {
				return s.Explain(opened, err)
			}
			return opened.Logs(ctx, cmd.OutOrStdout(), lines, follow)
		},
	}
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "number of lines to print, the last ones")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines until interrupted")
	return cmd
}
