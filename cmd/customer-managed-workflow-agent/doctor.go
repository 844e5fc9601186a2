package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/host/daemon"
	"workflowagent/internal/host/doctor"
)

func newDoctorCommand(version string, load loader) *cobra.Command {
	var asJSON bool
	o := doctor.Options{Version: version, UserAgent: daemon.UserAgent(version)}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that the agent and its jobs can work",
		Long: `Check that the agent and its jobs can work: the configuration, the network up to the
server, the token, the engine or the programs that jobs need, the runner, the disks, and
the network of a trial job. Run it as the agent's user and with the agent's PATH. It
claims no work, does not disturb a running agent, and leaves nothing behind.

The exit code is 0 if no check failed, 1 if one did, and 2 for a wrong command line.`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o := o
			c, err := load()
			o.Config, o.ConfigErr = c, err
			out, colour := cmd.OutOrStdout(), false
			if f, ok := out.(*os.File); ok {
				colour = os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
			}
			if !asJSON {
				o.Done = func(r doctor.Result) { doctor.Print(out, r, colour) }
				o.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), "...", line) }
			}
			report, err := daemon.Examine(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				if err := operator.PrintJSON(out, report); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(out, "\n%s\n", doctor.Summary(report))
			}
			switch {
			case ctx.Err() != nil:
				return errors.New("stopped before all checks had finished")
			case !report.OK:
				return errors.New("a check failed: see the lines that begin with fail")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&o.JobImage, "job-image", "", "image of the trial job (default: the image of jobs that name no image)")
	cmd.Flags().StringArrayVar(&o.Reach, "reach", nil, "a URL that jobs must reach, such as your git host's (may be repeated)")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "skip the checks that use the network")
	return cmd
}
