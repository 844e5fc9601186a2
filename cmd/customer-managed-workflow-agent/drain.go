package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
)

const (
	// drainLook is the pause between two checks of a draining agent, drainWord the longest pause
	// between two lines about jobs that are still running.
	drainLook = time.Second
	drainWord = 30 * time.Second
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout != 0 && (!wait || timeout < 0) {
				return config.Invalid(errors.New("--timeout is a positive duration and goes with --wait"))
			}
			agents, err := runningAgents(cmd.Context(), load, instance)
			if err != nil {
				return err
			}
			if len(agents) > 1 {
				return config.Invalid(fmt.Errorf("several agents run: choose one with --instance (%s)", names(agents)))
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			if !wait {
				report, err := agents[0].Drain(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, "Agent %s takes no more work and ends after %s.\n", agents[0].Name, countJobs(report))
				return nil
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return drainAndWait(ctx, out, agents[0].Instance)
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the agent has exited, and print its remaining jobs")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: longest time to wait, such as 30m (default: no limit)")
	instanceFlag(cmd, load, &instance, "the instance number of the agent; needed if several run")
	return cmd
}

func drainAndWait(ctx context.Context, out io.Writer, agent control.Instance) error {
	type end struct {
		report status.Report
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		report, err := agent.DrainAndWait(ctx)
		ended <- end{report, err}
	}()
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	var last status.Report
	said, saidAt := "", time.Time{}
	for {
		select {
		case e := <-ended:
			if ctx.Err() != nil && e.err != nil {
				return codeError{fmt.Errorf("agent %s is still draining, with %s: it ends by itself when they have ended; SIGTERM makes it end now and leave them running", agent.Name, countJobs(last)), exitTime}
			}
			return drained(out, agent, e.report, e.err)
		case <-ticker.C:
		}
		report, err := agent.Status(ctx)
		if err != nil {
			continue // it is just ending: the other call returns how
		}
		last = report
		if words := describeJobs(report); words != said || time.Since(saidAt) >= drainWord {
			said, saidAt = words, time.Now()
			fmt.Fprintf(out, "%s: waiting for %s%s\n", saidAt.Format(time.TimeOnly), countJobs(report), withAges(report))
		}
	}
}

func drained(out io.Writer, agent control.Instance, report status.Report, err error) error {
	switch {
	case errors.Is(err, control.ErrNotRunning):
		return fmt.Errorf("agent %s ended before the drain", agent.Name)
	case err != nil:
		return fmt.Errorf("%w; its jobs continue by themselves, and its next start resumes them", err)
	}
	left := len(report.Jobs)
	for _, o := range report.Ended {
		if o.Status == status.Detached {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("agent %s was stopped while it drained: %d of its jobs continue without it, and its next start resumes them", agent.Name, left)
	}
	fmt.Fprintf(out, "Agent %s has ended; none of its jobs is left.\n", agent.Name)
	return nil
}

func countJobs(r status.Report) string {
	if len(r.Jobs) == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", len(r.Jobs))
}

// describeJobs returns a line that changes whenever there is news.
func describeJobs(r status.Report) string {
	var all []string
	for _, j := range r.Jobs {
		all = append(all, j.JobID+" "+string(j.Phase))
	}
	return strings.Join(all, ",")
}

func withAges(r status.Report) string {
	var b strings.Builder
	for i, j := range r.Jobs {
		b.WriteString([]string{": ", ", "}[min(i, 1)])
		b.WriteString(status.DescribeJob(j, r.Time))
	}
	return b.String()
}
