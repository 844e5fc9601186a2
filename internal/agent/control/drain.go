package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/words"
)

const (
	checkPause = time.Second      // pause between two checks of a draining agent
	printPause = 30 * time.Second // longest pause between two lines about the same jobs
)

// DrainingError reports that the wait for a draining agent was interrupted while the agent was
// still draining.
type DrainingError struct {
	Instance string
	Jobs     string // the jobs that still run
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("agent %s is still draining, with %s: it exits after the last one; to stop it now and leave them running, send it SIGTERM", e.Instance, e.Jobs)
}

// DrainAndPrint drains the agent and prints its remaining jobs until the agent has stopped. If ctx
// is canceled first, the error is a [*DrainingError].
func (i Instance) DrainAndPrint(ctx context.Context, out io.Writer) error {
	type end struct {
		report status.Report
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		report, err := i.DrainAndWait(ctx)
		ended <- end{report, err}
	}()
	ticker := time.NewTicker(checkPause)
	defer ticker.Stop()
	var last status.Report
	printed, printedAt := "", time.Time{}
	for {
		select {
		case e := <-ended:
			if ctx.Err() != nil && e.err != nil {
				return &DrainingError{i.Name, words.Count(len(last.Jobs), "job")}
			}
			return i.drained(out, e.report, e.err)
		case <-ticker.C:
		}
		report, err := i.Status(ctx)
		if err != nil {
			continue // the agent is exiting: DrainAndWait returns the result
		}
		last = report
		if jobs := describeJobs(report); jobs != printed || time.Since(printedAt) >= printPause {
			printed, printedAt = jobs, time.Now()
			fmt.Fprintf(out, "%s: waiting for %s%s\n", printedAt.Format(time.TimeOnly), words.Count(len(report.Jobs), "job"), withAges(report))
		}
	}
}

func (i Instance) drained(out io.Writer, report status.Report, err error) error {
	switch {
	case errors.Is(err, ErrNotRunning):
		return fmt.Errorf("agent %s exited before the drain", i.Name)
	case err != nil:
		return fmt.Errorf("%w; its jobs continue without it, and its next start resumes them", err)
	}
	left := len(report.Jobs)
	for _, o := range report.Ended {
		if o.Status == status.Detached {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("agent %s was stopped while it drained: %d of its jobs continue without it, and its next start resumes them", i.Name, left)
	}
	fmt.Fprintf(out, "Agent %s has exited, and all of its jobs have finished.\n", i.Name)
	return nil
}

// describeJobs returns a text that identifies the jobs and their phases, for detecting changes.
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
