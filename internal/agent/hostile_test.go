package agent_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"workflowagent/internal/executor"
	"workflowagent/internal/executor/fake"
	"workflowagent/internal/workflow"
)

// TestJobOutputCannotPassForTheAgents has a job print what would move the cursor
// over the agent's own lines, or end its line early.
func TestJobOutputCannotPassForTheAgents(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(sealing(fake.Exit("harmless\r[other-deployment] forged\n\x1b[1A\x1b[2K\x1b]0;title\x07forged above\n\u009b2Jx\x9b2J\v\f\u202eend\n",
		executor.Exit{Result: &executor.Result{Status: workflow.StatusSucceeded, Reported: true}})))
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

// TestHostileServer has a server send what would show as lines of the agent.
func TestHostileServer(t *testing.T) {
	w := newWorld(t)
	ran := false
	w.executor.OnRun(func(context.Context, *fake.Job) executor.Exit {
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
