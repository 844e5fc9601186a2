package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/words"
)

func newDrainCommand(load loader) *cobra.Command {
	var wait bool
	var timeout time.Duration
	var instance string
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Finish the running jobs of an agent, then stop it",
		Long: `Drain an agent: it claims no more jobs, and exits when its last job has finished. A drain
cannot be reverted: start the agent again to claim jobs. If your service manager restarts the
agent, stop the service after the drain.

To stop an agent immediately, send it a SIGTERM: its jobs continue, and the next start resumes
them. Neither cancels a deployment.

The exit code is 0 if the agent drains or, with --wait, has exited after its jobs, 1 if the
drain failed, 2 if the command line or the configuration is wrong, 3 if no agent runs, and 4 if
the agent still drains after --timeout.`,
		Example: `  customer-managed-workflow-agent drain --wait --timeout 30m
  customer-managed-workflow-agent drain --instance 1`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout != 0 && (!wait || timeout < 0) {
				return config.Invalid(errors.New("--timeout requires --wait and a positive duration"))
			}
			agents, err := running(cmd.Context(), load, instance)
			if err != nil {
				return err
			}
			if len(agents) > 1 {
				return config.Invalid(fmt.Errorf("several agents run: choose one with --instance (%s)", control.Names(agents)))
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			if !wait {
				report, err := agents[0].Drain(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "Agent %s accepts no more jobs and exits after %s.\n", agents[0].Name, words.Count(len(report.Jobs), "job"))
				return nil
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return agents[0].DrainAndPrint(ctx, out)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the agent has exited, and print its remaining jobs")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: longest time to wait, such as 30m (default: no limit)")
	instanceFlag(cmd, load, &instance, "the instance number of the agent; needed if several run")
	return cmd
}
