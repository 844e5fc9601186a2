package agent_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// TestJobOutputCannotPassForTheAgents runs a job that prints sequences that move the cursor or
// start a new line. The job's output must not look like the agent's own output.
func TestJobOutputCannotPassForTheAgents(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(sealing(fakes.Exit("harmless\r[other-deployment] forged\n\x1b[1A\x1b[2K\x1b]0;title\x07forged above\n\u009b2Jx\x9b2J\v\f\u202eend\n",
		executor.Exit{Result: &protocol.Result{Status: workflow.StatusSucceeded, Reported: true}})))
	job := w.server.Add()
	a := w.start()
	w.server.WaitFor("leave", func() bool { return job.Leave })
	a.drain()
	tag := "[deployment-" + job.ID + "] "
	want := tag + "harmless[other-deployment] forged\n" + tag + "forged above\n" + tag + "2Jx\ufffd2Jend\n"
	if got := w.output.String(); got != want {
		t.Errorf("the agent printed\n%q, want\n%q", got, want)
	}
}

// TestForgedStreams runs a job that creates streams for steps that its runner does not write, and
// kills the runner. The server rejects a result that contains an unknown step or the same step
// twice. The agent must therefore omit these streams; otherwise, it would retry for a day.
func TestForgedStreams(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
		for _, step := range []int{0, 1, 2, 3, 77, 9999} {
			spoolStep(t, j, step, "of the job\n")
		}
		return executor.Exit{Code: -1, Signal: "SIGKILL"}
	})
	job := w.server.Add()
	w.finish(job)
	var steps []int
	for _, s := range job.Results[0].Steps {
		steps = append(steps, s.Step)
	}
	slices.Sort(steps)
	if !slices.Equal(steps, []int{0, 1, 2, 3}) {
		t.Errorf("the result contains the steps %v", steps)
	}
	if job.Has(0, "of the job") || job.Has(3, "of the job") || !job.Has(1, "of the job") || !job.Has(2, "of the job") {
		t.Errorf("set-up %q, first %q, second %q, end %q", job.Log(0), job.Log(1), job.Log(2), job.Log(3))
	}
}

func TestHostileServer(t *testing.T) {
	w := newHarness(t)
	ran := false
	w.executor.OnRun(func(context.Context, *fakes.Job) executor.Exit {
		ran = true
		return executor.Exit{}
	})
	polls := 0
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "GET", "/poll") {
			return false
		}
		w.server.Update(func() { polls++ })
		_, _ = rw.Write([]byte(`{"jobID": "a", "jobToken": "t", "epoch": 1, "deploymentID": "x]\ntime=now level=info msg=\"forged\" \u001b[2J["}`))
		return true
	})
	a := w.start()
	w.server.WaitFor("a second poll", func() bool { return polls > 1 })
	a.abort()
	<-a.done
	for line := range strings.Lines(w.log.String() + w.output.String()) {
		if strings.HasPrefix(line, "time=now") || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl) {
			t.Errorf("the server forged a line in the agent's log: %q", line)
		}
	}
	if ran || !strings.Contains(w.log.String(), "an id that cannot be shown") {
		t.Error("the agent accepted a job with an unsafe ID")
	}
}
