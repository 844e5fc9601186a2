package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/delivery"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/workflow"
)

// spoolStep makes the spool that a runner leaves, with one line for a step.
func spoolStep(t *testing.T, j *fakes.Job, step int, text string) {
	dir := t.TempDir()
	spool, err := delivery.Open(dir, delivery.Options{})
	if err != nil {
		t.Error(err)
		return
	}
	stream, err := spool.Step(step)
	if err == nil {
		_, err = stream.Write([]byte(text))
	}
	if err != nil {
		t.Error(err)
	}
	if err := spool.Close(); err != nil {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			t.Error(err)
		}
		j.WriteFile(protocol.DirSpool+"/"+file.Name(), data)
	}
}

// gate lets the jobs of a fake executor go on.
type gate struct {
	once sync.Once
	open chan struct{}
}

func newGate() *gate     { return &gate{open: make(chan struct{})} }
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func TestStopDetachesAndTheNextProcessGoesOn(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			g := newGate()
			t.Cleanup(g.release)
			w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
				j.Write([]byte("before\n"))
				<-g.open
				return w.runner(workflow.StatusSucceeded)(ctx, j)
			})
			job := w.server.add()
			first := w.start()
			w.server.waitFor("the start", func() bool { return job.steps[0] == workflow.StepSucceeded })
			if how == "stop" {
				first.Stop()
				first.wait()
			} else {
				first.kill()
			}
			r := w.executor.Record(job.id)
			if r.Interrupts+r.Kills+r.Removes != 0 || len(job.results) != 0 {
				t.Fatalf("stopping the agent touched its job: %+v", r)
			}
			entries, err := filepath.Glob(first.identity.Dir + "/jobs/*.json")
			if err != nil || len(entries) != 1 {
				t.Fatalf("journal: %v, %v", entries, err)
			}
			if info, err := os.Stat(entries[0]); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the journal's entry has mode %v, %v", info.Mode(), err)
			}
			second := w.start()
			if second.identity.ID != first.identity.ID {
				t.Fatal("the identity changed")
			}
			waitLog(t, w, "Going on with a job of before the restart")
			// It shows that it is there while it has no room: who updates the agent waits for that.
			w.server.waitFor("presence", func() bool { return w.server.polls[len(w.server.polls)-1].session == second.Status().Agent.SessionID })
			g.release()
			w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
			second.Drain()
			second.wait()
			if n := len(w.executor.Record(job.id).Launches); n != 1 || job.status != workflow.StatusSucceeded {
				t.Errorf("ran %d times, %s", n, job.status)
			}
			if how == "stop" && strings.Count(w.output.String(), "before") != 1 {
				t.Errorf("output: %q", w.output)
			}
			w.cleanState(second)
		})
	}
}

func TestRunnerThatDiedWhileNobodyWatched(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
		spoolStep(t, j, 1, "last words\n")
		<-g.open
		return executor.Exit{Code: 137, OOMKilled: true}
	})
	job := w.server.add()
	first := w.start()
	w.server.waitFor("the start", func() bool { return job.steps[0] == workflow.StepSucceeded })
	first.kill()
	g.release()
	second := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	second.Drain()
	second.wait()
	if job.results[0].Reason != workflow.ReasonOOM || !job.has(1, "last words") || !job.has(3, "out of memory") {
		t.Errorf("result %+v, logs %q %q", job.results[0], job.text(1), job.text(3))
	}
	w.cleanState(second)
}

func TestKilledWhileAskingLeave(t *testing.T) {
	w := newWorld(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	asked := make(chan struct{})
	var once sync.Once
	release := newGate()
	t.Cleanup(release.release)
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "POST", "/heartbeat") {
			return false
		}
		select {
		case <-release.open:
			return false
		default:
		}
		if body := readBody(r); !strings.Contains(string(body), "starting") {
			rw.Write([]byte("{}"))
			return true
		}
		once.Do(func() { close(asked) })
		<-r.Context().Done()
		return true
	})
	job := w.server.add()
	first := w.start()
	<-asked
	first.kill()
	if len(job.results) != 0 {
		t.Errorf("results: %+v", job.results)
	}
	release.release()
	second := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	second.Drain()
	second.wait()
	if n := len(w.executor.Record(job.id).Launches); n != 1 || job.status != workflow.StatusSucceeded {
		t.Errorf("ran %d times, %s", n, job.status)
	}
	w.cleanState(second)
}

// TestHostRestartsWhileAJobIsBeingStarted has the host lose its power so early that the
// place of the job has forgotten the start: the job may have run.
func TestHostRestartsWhileAJobIsBeingStarted(t *testing.T) {
	w := newWorld(t)
	boot := "first"
	w.options = func(o *agent.Options) { o.BootID = boot }
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	starting, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.executor.OnStart(func(context.Context, executor.Handle) error {
		once.Do(func() { close(starting) })
		<-gone
		return errors.New("the power is gone")
	})
	job := w.server.add()
	first := w.start()
	<-starting
	first.abort()
	close(gone)
	<-first.done
	w.executor.OnStart(nil)
	boot = "second"
	second := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	second.Drain()
	second.wait()
	if n := len(w.executor.Record(job.id).Launches); n != 0 {
		t.Errorf("a job that may have run was started, %d times", n)
	}
	if r := job.results[0]; r.Status != workflow.StatusFailed || r.Reason != workflow.ReasonLost {
		t.Errorf("result: %+v", r)
	}
	if !job.has(0, "restarted") {
		t.Errorf("set-up log: %q", job.text(0))
	}
	w.cleanState(second)
}

func TestKilledWhilePreparingLeavesNothing(t *testing.T) {
	w := newWorld(t)
	preparing := make(chan struct{})
	w.executor.OnPrepare(func(ctx context.Context, _ executor.Spec, _ func(string)) error {
		close(preparing)
		<-ctx.Done()
		return ctx.Err()
	})
	job := w.server.add()
	a := w.start()
	<-preparing
	a.Stop()
	a.wait()
	if len(job.results) != 0 || job.leave {
		t.Errorf("results %+v, leave %v: the job should go back to the queue", job.results, job.leave)
	}
	w.cleanState(a)
}

func TestResultIsDeliveredByTheNextProcess(t *testing.T) {
	w := newWorld(t)
	w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
		return &executor.Error{Reason: workflow.ReasonImage, Message: "no such image"}
	})
	tried := make(chan struct{})
	var once sync.Once
	w.server.onFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !isCall(r, "POST", "/result") {
			return false
		}
		once.Do(func() { close(tried) })
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	job := w.server.add()
	first := w.start()
	<-tried
	first.kill()
	w.server.onFault(nil)
	second := w.start()
	w.server.waitFor("the result", func() bool { return len(job.results) == 1 })
	second.Drain()
	second.wait()
	if job.results[0].Reason != workflow.ReasonImage || !job.has(0, "no such image") || len(job.text(0)) != 2 {
		t.Errorf("result %+v, log %q", job.results[0], job.text(0))
	}
	w.cleanState(second)
}

func TestForeignJournalEntriesAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	t.Cleanup(g.release)
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-g.open
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.add()
	first := w.start()
	w.server.waitFor("the start", func() bool { return job.steps[0] == workflow.StepSucceeded })
	first.kill()
	entries, err := filepath.Glob(first.identity.Dir + "/jobs/*.json")
	if err != nil || len(entries) != 1 {
		t.Fatalf("journal: %v, %v", entries, err)
	}
	data, err := os.ReadFile(entries[0])
	if err != nil {
		t.Fatal(err)
	}
	var entry map[string]any
	if err := json.Unmarshal(data, &entry); err != nil {
		t.Fatal(err)
	}
	entry["version"] = 99
	data, err = json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(entries[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	second := w.start()
	waitLog(t, w, "left alone")
	other := w.server.add()
	g.release()
	w.server.waitFor("another job's result", func() bool { return len(other.results) == 1 })
	second.Drain()
	second.wait()
	after, err := os.ReadFile(entries[0])
	if err != nil || string(after) != string(data) {
		t.Errorf("the foreign entry changed: %v", err)
	}
	if n := w.executor.Record(job.id).Removes; n != 0 {
		t.Error("the objects of the foreign entry were removed")
	}
}

func TestRemainsOfEarlierJobsAreRemoved(t *testing.T) {
	w := newWorld(t)
	identity, err := agent.OpenIdentity(w.state)
	if err != nil {
		t.Fatal(err)
	}
	mine := executor.Spec{JobID: "left-over", Epoch: 1, Owner: identity.ID}
	other := executor.Spec{JobID: "not-mine", Epoch: 1, Owner: "somebody else"}
	for _, spec := range []executor.Spec{mine, other} {
		if _, err := w.executor.Prepare(t.Context(), spec, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	identity.Close()
	a := w.start()
	waitLog(t, w, "Removed what an earlier job had left")
	a.Drain()
	a.wait()
	w.cleanState(a)
	if left, err := w.executor.List(t.Context(), "somebody else"); err != nil || len(left) != 1 {
		t.Errorf("another agent's job was touched: %v, %v", left, err)
	}
}
