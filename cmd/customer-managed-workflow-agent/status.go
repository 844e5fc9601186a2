package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/retry"
)

const watchInterval = 2 * time.Second

func newStatusCommand(load loader) *cobra.Command {
	var asJSON, watch bool
	var instance string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running agents on this host and their jobs",
		Long: `Show the agents that run on this host with the configured state_directory: whether
they can take work and why not, their jobs, and how the last ones ended.

It asks each agent through a socket in its instance directory, whatever http_server_port
is. Only the agent's user and root may use that socket.

The exit code is 0 if every agent shown is ready or draining, 1 if one of them cannot
claim jobs or does not answer, 2 if the command line or the configuration is wrong, and 3
if no agent runs.`,
		Example: `  customer-managed-workflow-agent status
  customer-managed-workflow-agent status --json --instance 0
  customer-managed-workflow-agent status --watch`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return showStatus(cmd.Context(), cmd.OutOrStdout(), load, instance, asJSON)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return watchStatus(ctx, cmd.OutOrStdout(), func() error {
				return showStatus(ctx, cmd.OutOrStdout(), load, instance, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: a list with one report per agent")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again every 2 seconds, until interrupted")
	instanceFlag(cmd, load, &instance, "show only the agent with this instance number (default: all)")
	return cmd
}

// watchStatus repeats show until ctx is canceled. Of show's errors, only usage errors stop it,
// because a missing agent can start later.
func watchStatus(ctx context.Context, out io.Writer, show func() error) error {
	for {
		err := show()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the result of an interrupted check
		case exitCode(err) == program.ExitUsage:
			return err
		case err != nil:
			fmt.Fprintln(out, err)
		}
		fmt.Fprintln(out)
		if retry.Sleep(ctx, watchInterval) != nil {
			return nil //nolint:nilerr // an interrupt ends the watch
		}
	}
}

func showStatus(ctx context.Context, out io.Writer, load loader, instance string, asJSON bool) error {
	agents, err := running(ctx, load, instance)
	if err != nil {
		if asJSON && exitCode(err) == program.ExitNone {
			fmt.Fprintln(out, "[]")
		}
		return err
	}
	var errs []error
	reports := []status.Report{}
	for i, a := range agents {
		if a.Err != nil {
			errs = append(errs, a.Err)
			continue
		}
		if a.Report.State != status.Ready && a.Report.State != status.Draining {
			errs = append(errs, fmt.Errorf("agent %s cannot take work: it is %s", a.Name, a.Report.State))
		}
		reports = append(reports, a.Report)
		if asJSON {
			continue
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := status.WriteText(out, a.Report); err != nil {
			return fmt.Errorf("printing the status: %w", err)
		}
	}
	if asJSON {
		if err := operator.PrintJSON(out, reports); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// running returns the running agents of the configured state directory, or only the agent with the
// given name.
func running(ctx context.Context, load loader, name string) ([]control.Running, error) {
	c, err := load()
	if err != nil {
		return nil, err
	}
	return control.FindRunning(ctx, c.StateDirectory, name)
}

func instanceFlag(cmd *cobra.Command, load loader, name *string, usage string) {
	cmd.Flags().StringVar(name, "instance", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("instance", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		agents, err := running(cmd.Context(), load, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, a := range agents {
			names = append(names, fmt.Sprintf("%s\t%s, process %d", a.Name, a.Report.State, a.Report.Agent.PID))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}) // fails only for an undefined flag
}
