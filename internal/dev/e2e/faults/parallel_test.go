package faults

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestFaultLogsOfParallelJobsNeverMix runs concurrent jobs that repeatedly print their ids. Each
// deployment's log, and each line of the agent's output that is tagged with the deployment, must
// contain only the id of its own job.
func TestFaultLogsOfParallelJobsNeverMix(t *testing.T) {
	const jobs, lines = 6, 400
	ctx := t.Context()
	w := harness.StartSite(t, "")
	agent := must.Get(w.StartAgent(ctx, "process", map[string]string{"max_concurrent_jobs": fmt.Sprint(jobs)}))(t)
	repo := w.Repo(ctx, t)
	meeting := t.TempDir()
	var stacks []*harness.Stack
	var deployments []harness.Deployment
	for n := range jobs {
		s := w.NewStack(ctx, t, "box", fmt.Sprintf("parallel%d", n), "", nil)
		// The jobs wait for each other, print, and fail before pulumi runs.
		d := s.Deploy(ctx, t, "preview", repo.URL, fmt.Sprintf(
			`: >%[1]s/%[2]d; for i in $(seq 1200); do [ "$(ls %[1]s | wc -l)" = %[3]d ] && break; sleep 0.05; done; `+
				`[ "$(ls %[1]s | wc -l)" = %[3]d ] || exit 9; for i in $(seq %[4]d); do echo "job-%[2]d says $i"; done; exit 3`, meeting, n, jobs, lines,
		))
		stacks, deployments = append(stacks, s), append(deployments, d)
	}
	tags := map[string]string{}
	for n, s := range stacks {
		d := s.Finish(ctx, t, deployments[n])
		log := s.Log(ctx, t, d)
		for other := range jobs {
			want := 0
			if other == n {
				want = lines
			}
			if got := strings.Count(log, fmt.Sprintf("job-%d says ", other)) - strings.Count(log, fmt.Sprintf("echo \"job-%d says ", other)); got != want {
				t.Errorf("the log of job %d has %d lines of job %d, want %d", n, got, other, want)
			}
		}
		if d.Status != "failed" || !strings.Contains(log, "exited with code 3") {
			t.Errorf("job %d ended as %+v", n, d)
		}
		tags[fmt.Sprintf("[%s] ", d.ID)] = fmt.Sprintf("job-%d says ", n)
	}
	for line := range strings.Lines(string(harness.Read(t, agent.LogFile))) {
		for tag, own := range tags {
			if rest, ok := strings.CutPrefix(line, tag); ok && strings.HasPrefix(rest, "job-") && !strings.HasPrefix(rest, own) {
				t.Errorf("the agent shows a line of another job: %s", line)
			}
		}
	}
}
