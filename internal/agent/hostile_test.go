package agent_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

// TestJobOutputCannotPassForTheAgents has a job print what would move the cursor
// over the agent's own lines, or end its line early.
func TestJobOutputCannotPassForTheAgents(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(sealing(fakes.Exit("harmless\r[other-deployment] forged\n\x1b[1A\x1b[2K\x1b]0;title\x07forged above\n\u009b2Jx\x9b2J\v\f\u202eend\n",
		executor.Exit{Result: &protocol.Result{Status: workflow.StatusSucceeded, Reported: true}})))
	job := w.server.add()
	a := w.start()
	w.server.waitFor("leave", func() bool { return job.leave })
	a.Drain()
	a.wait()
	tag := "[deployment-" + job.id + "] "
	want := tag + "harmless[other-deployment] forged\n" + tag + "forged above\n" + tag + "2Jx\ufffd2Jend\n"
	if got := w.output.String(); got != want {
		t.Errorf("the agent printed\n%q, want\n%q", got, want)
	}
}

// TestForgedStreams has a job leave streams of steps that are not its runner's and kill the runner.
// The server refuses a result that names a step twice, or one that does not exist; the agent must
// not send such a one for a day, while it reports nothing.
func TestForgedStreams(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
		for _, step := range []int{0, 1, 2, 3, 77, 9999} {
			spoolStep(t, j, step, "of the job\n")
		}
		return executor.Exit{Code: -1, Signal: "SIGKILL"}
	})
	job := w.server.add()
	a := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) > 0 })
	a.Drain()
	a.wait()
	var steps []int
	for _, s := range job.results[0].Steps {
		steps = append(steps, s.Step)
	}
	slices.Sort(steps)
	if !slices.Equal(steps, []int{0, 1, 2, 3}) {
		t.Errorf("the result names the steps %v", steps)
	}
	if job.has(0, "of the job") || job.has(3, "of the job") || !job.has(1, "of the job") || !job.has(2, "of the job") {
		t.Errorf("set-up %q, first %q, second %q, end %q", job.text(0), job.text(1), job.text(2), job.text(3))
	}
}

// TestHostileServer has a server send what would show as lines of the agent.
func TestHostileServer(t *testing.T) {
	w := newWorld(t)
	ran := false
	w.executor.OnRun(func(context.Context, *fakes.Job) executor.Exit {
		ran = true
		return executor.Exit{}
	})
	polls := 0
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "GET", "/poll") {
			return false
		}
		w.server.update(func() { polls++ })
		_, _ = rw.Write([]byte(`{"jobID": "a", "jobToken": "t", "epoch": 1, "deploymentID": "x]\ntime=now level=info msg=\"forged\" \u001b[2J["}`))
		return true
	})
	a := w.start()
	w.server.waitFor("a second poll", func() bool { return polls > 1 })
	a.abort()
	<-a.done
	for line := range strings.Lines(w.log.String() + w.output.String()) {
		if strings.HasPrefix(line, "time=now") || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unicode.IsControl) {
			t.Errorf("the server wrote a line of the agent's: %q", line)
		}
	}
	if ran || !strings.Contains(w.log.String(), "an id that cannot be shown") {
		t.Error("the job with the odd id was taken")
	}
}
