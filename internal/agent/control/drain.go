package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"workflowagent/internal/agent/status"
)

const (
	// drainLook is the pause between two checks of a draining agent, drainWord the longest pause
	// between two lines about jobs that are still running.
	drainLook = time.Second
	drainWord = 30 * time.Second
)

// DrainingError reports that an agent still drains when the wait for it ends.
type DrainingError struct {
	Instance string
	Jobs     string // that it waits for
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("agent %s is still draining, with %s: it ends by itself when they have ended; SIGTERM makes it end now and leave them running", e.Instance, e.Jobs)
}

// DrainAndPrint drains the agent and prints its remaining jobs until it has ended. If ctx ends
// first, the error is a [*DrainingError].
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
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	var last status.Report
	said, saidAt := "", time.Time{}
	for {
		select {
		case e := <-ended:
			if ctx.Err() != nil && e.err != nil {
				return &DrainingError{i.Name, CountJobs(last)}
			}
			return i.drained(out, e.report, e.err)
		case <-ticker.C:
		}
		report, err := i.Status(ctx)
		if err != nil {
			continue // it is just ending: the other call returns how
		}
		last = report
		if words := describeJobs(report); words != said || time.Since(saidAt) >= drainWord {
			said, saidAt = words, time.Now()
			fmt.Fprintf(out, "%s: waiting for %s%s\n", saidAt.Format(time.TimeOnly), CountJobs(report), withAges(report))
		}
	}
}

func (i Instance) drained(out io.Writer, report status.Report, err error) error {
	switch {
	case errors.Is(err, ErrNotRunning):
		return fmt.Errorf("agent %s ended before the drain", i.Name)
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
		return fmt.Errorf("agent %s was stopped while it drained: %d of its jobs continue without it, and its next start resumes them", i.Name, left)
	}
	fmt.Fprintf(out, "Agent %s has ended; none of its jobs is left.\n", i.Name)
	return nil
}

// CountJobs returns how many jobs a report has, in words.
func CountJobs(r status.Report) string {
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
