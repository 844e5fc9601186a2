package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/delivery"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

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

type gate struct {
	once sync.Once
	open chan struct{}
}

func newGate() *gate     { return &gate{open: make(chan struct{})} }
func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func TestStopDetachesAndTheNextProcessGoesOn(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			w := newHarness(t)
			g := newGate()
			t.Cleanup(g.release)
			w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
				j.Write([]byte("before\n"))
				<-g.open
				return w.runner(workflow.StatusSucceeded)(ctx, j)
			})
			job := w.server.Add()
			first := w.start()
			w.server.WaitFor("the start", func() bool { return job.Steps[0] == workflow.StepSucceeded })
			if how == "stop" {
				first.Stop()
				first.wait()
			} else {
				first.kill()
			}
			r := w.executor.Record(job.ID)
			if r.Interrupts+r.Kills+r.Removes != 0 || len(job.Results) != 0 {
				t.Fatalf("stopping the agent affected its job: %+v", r)
			}
			entries, err := filepath.Glob(first.identity.Dir + "/jobs/*.json")
			if err != nil || len(entries) != 1 {
				t.Fatalf("journal: %v, %v", entries, err)
			}
			if info, err := os.Stat(entries[0]); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the journal entry has mode %v (error: %v)", info.Mode(), err)
			}
			second := w.start()
			if second.identity.ID != first.identity.ID {
				t.Fatal("the identity changed")
			}
			w.log.await(t, "resuming a job from before the restart")
			// The agent reports its presence even without a free slot, because an agent update
			// waits for that report.
			w.server.WaitFor("presence", func() bool { return w.server.Polls[len(w.server.Polls)-1].Session == second.Status().Agent.SessionID })
			g.release()
			second.finish(job)
			if n := len(w.executor.Record(job.ID).Launches); n != 1 || job.Status != workflow.StatusSucceeded {
				t.Errorf("ran %d times, %s", n, job.Status)
			}
			if how == "stop" && strings.Count(w.output.String(), "before") != 1 {
				t.Errorf("output: %q", w.output)
			}
			w.cleanState(second)
		})
	}
}

func TestRunnerThatDiedWhileNobodyWatched(t *testing.T) {
	w := newHarness(t)
	g := newGate()
	w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
		spoolStep(t, j, 1, "last words\n")
		<-g.open
		return executor.Exit{Code: 137, OOMKilled: true}
	})
	job := w.server.Add()
	first := w.start()
	w.server.WaitFor("the start", func() bool { return job.Steps[0] == workflow.StepSucceeded })
	first.kill()
	g.release()
	second := w.start()
	second.finish(job)
	if job.Results[0].Reason != workflow.ReasonOOM || !job.Has(1, "last words") || !job.Has(3, "out of memory") {
		t.Errorf("result %+v, logs %q %q", job.Results[0], job.Log(1), job.Log(3))
	}
	w.cleanState(second)
}

func TestKilledWhileAskingLeave(t *testing.T) {
	w := newHarness(t)
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	asked := make(chan struct{})
	var once sync.Once
	release := newGate()
	t.Cleanup(release.release)
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "POST", "/heartbeat") {
			return false
		}
		select {
		case <-release.open:
			return false
		default:
		}
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), "starting") {
			rw.Write([]byte("{}"))
			return true
		}
		once.Do(func() { close(asked) })
		<-r.Context().Done()
		return true
	})
	job := w.server.Add()
	first := w.start()
	<-asked
	first.kill()
	if len(job.Results) != 0 {
		t.Errorf("results: %+v", job.Results)
	}
	release.release()
	second := w.start()
	second.finish(job)
	if n := len(w.executor.Record(job.ID).Launches); n != 1 || job.Status != workflow.StatusSucceeded {
		t.Errorf("ran %d times, %s", n, job.Status)
	}
	w.cleanState(second)
}

// TestKilledWhileAJobIsBeingStarted kills the agent at each point after the runner was started. The set-up
// log must say once that the job was started, and not at all if the runner says that it ran nothing.
func TestKilledWhileAJobIsBeingStarted(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ended bool // before the agent is back
		exit  *executor.Exit
		entry func(e *instance.Entry, size int64) // changes the entry while no agent runs
		want  int
	}{
		{name: "before it knew", want: 1},
		{name: "before it knew, and the job ended", ended: true, want: 1},
		{name: "before it knew, and the runner died", ended: true, exit: &executor.Exit{Code: -1, Signal: "SIGKILL"}, want: 1},
		{name: "before it knew, and the runner ran nothing", ended: true, exit: &executor.Exit{Code: protocol.ExitNoLaunch}},
		{name: "before it knew, and the container failed to start", ended: true, exit: &executor.Exit{Code: -1}},
		{name: "before the line", want: 1, entry: func(e *instance.Entry, size int64) { e.Phase, e.SetupBytes = instance.Started, size }},
		{name: "after the line", want: 0, entry: func(e *instance.Entry, size int64) { e.Phase, e.SetupBytes = instance.Started, size-1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newHarness(t)
			g := newGate()
			t.Cleanup(g.release)
			w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
				<-g.open
				if tt.exit != nil {
					return *tt.exit
				}
				return w.runner(workflow.StatusSucceeded)(ctx, j)
			})
			started, gone := make(chan struct{}), make(chan struct{})
			w.executor.OnStarted(func(executor.Handle) error {
				close(started)
				<-gone
				return errors.New("the connection broke")
			})
			job := w.server.Add()
			first := w.start()
			<-started
			first.abort()
			close(gone)
			<-first.done
			w.executor.OnStarted(nil)
			w.changeEntry(job, func(e *instance.Entry, size int64) {
				if tt.ended {
					g.release()
					if _, err := w.executor.Wait(t.Context(), *e.Handle); err != nil {
						t.Error(err)
					}
				}
				if tt.entry != nil {
					tt.entry(e, size)
				}
			})
			a := w.start()
			if !tt.ended && tt.want > 0 { // kill it again, after the line
				w.server.WaitFor("the line", func() bool { return job.Has(0, "The job was started.") })
				a.kill()
				a = w.start()
			}
			g.release()
			a.finish(job)
			if n := strings.Count(strings.Join(job.Log(0), "\n"), "The job was started."); n != tt.want {
				t.Errorf("the set-up log says %d times that the job was started, want %d: %q", n, tt.want, job.Log(0))
			}
			if n := len(w.executor.Record(job.ID).Launches); n != 1 {
				t.Errorf("the job was started %d times", n)
			}
		})
	}
}

// changeEntry changes the journal entry of the job. size is the size of the set-up log.
func (w *harness) changeEntry(job *fakes.ServerJob, change func(e *instance.Entry, size int64)) {
	w.t.Helper()
	identity, err := instance.OpenIdentity(w.state)
	if err != nil {
		w.t.Fatal(err)
	}
	defer identity.Close()
	journal, err := instance.OpenJournal(identity.Dir)
	if err != nil {
		w.t.Fatal(err)
	}
	entries, _, err := journal.Read()
	if err != nil {
		w.t.Fatal(err)
	}
	name := instance.JobName(job.ID, job.Epoch)
	spool, err := delivery.Open(filepath.Join(journal.SpoolDir(name), "agent"), delivery.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer spool.Close()
	stream, err := spool.Step(0)
	if err != nil {
		w.t.Fatal(err)
	}
	entry := entries[name]
	change(&entry, stream.Size())
	if err := journal.Write(name, entry); err != nil {
		w.t.Fatal(err)
	}
}

// TestHostRestartsWhileAJobIsBeingStarted simulates a power failure that is so early that the
// executor has no record of the start. The agent must assume that the job may have run.
func TestHostRestartsWhileAJobIsBeingStarted(t *testing.T) {
	w := newHarness(t)
	boot := "first"
	w.options = func(o *agent.Options) { o.BootID = boot }
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	starting, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.executor.OnStart(func(context.Context, executor.Handle) error {
		once.Do(func() { close(starting) })
		<-gone
		return errors.New("the host lost its power")
	})
	job := w.server.Add()
	first := w.start()
	<-starting
	first.abort()
	close(gone)
	<-first.done
	w.executor.OnStart(nil)
	boot = "second"
	second := w.start()
	second.finish(job)
	if n := len(w.executor.Record(job.ID).Launches); n != 0 {
		t.Errorf("the agent started a job that may have run, %d times", n)
	}
	if r := job.Results[0]; r.Status != workflow.StatusFailed || r.Reason != workflow.ReasonLost {
		t.Errorf("result: %+v", r)
	}
	if !job.Has(0, "restarted") {
		t.Errorf("set-up log: %q", job.Log(0))
	}
	w.cleanState(second)
}

func TestKilledWhilePreparingLeavesNothing(t *testing.T) {
	w := newHarness(t)
	preparing := make(chan struct{})
	w.executor.OnPrepare(func(ctx context.Context, _ executor.Spec, _ func(string)) error {
		close(preparing)
		<-ctx.Done()
		return ctx.Err()
	})
	job := w.server.Add()
	a := w.start()
	<-preparing
	a.Stop()
	a.wait()
	if len(job.Results) != 0 || job.Leave || !slices.Contains(job.Phases, protocol.PhaseReturned) {
		t.Errorf("results %+v, leave %v, heartbeats %v: want a job that was handed back", job.Results, job.Leave, job.Phases)
	}
	w.cleanState(a)
}

func TestResultIsDeliveredByTheNextProcess(t *testing.T) {
	w := newHarness(t)
	w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error {
		return &executor.Error{Reason: workflow.ReasonImage, Message: "no such image"}
	})
	tried := make(chan struct{})
	var once sync.Once
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "POST", "/result") {
			return false
		}
		once.Do(func() { close(tried) })
		rw.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	job := w.server.Add()
	first := w.start()
	<-tried
	first.kill()
	w.server.OnFault(nil)
	second := w.start()
	second.finish(job)
	if job.Results[0].Reason != workflow.ReasonImage || !job.Has(0, "no such image") || len(job.Log(0)) != 2 {
		t.Errorf("result %+v, log %q", job.Results[0], job.Log(0))
	}
	w.cleanState(second)
}

func TestForeignJournalEntriesAreLeftAlone(t *testing.T) {
	w := newHarness(t)
	g := newGate()
	t.Cleanup(g.release)
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		<-g.open
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	job := w.server.Add()
	first := w.start()
	w.server.WaitFor("the start", func() bool { return job.Steps[0] == workflow.StepSucceeded })
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
	w.log.await(t, "ignoring a journal entry")
	other := w.server.Add()
	g.release()
	w.server.WaitFor("another job's result", func() bool { return len(other.Results) == 1 })
	second.drain()
	after, err := os.ReadFile(entries[0])
	if err != nil || string(after) != string(data) {
		t.Errorf("the agent changed the foreign entry: %v", err)
	}
	if n := w.executor.Record(job.ID).Removes; n != 0 {
		t.Error("the agent removed the foreign entry's objects")
	}
}

func TestRemainsOfEarlierJobsAreRemoved(t *testing.T) {
	w := newHarness(t)
	identity, err := instance.OpenIdentity(w.state)
	if err != nil {
		t.Fatal(err)
	}
	mine := executor.Spec{JobID: "left-over", Epoch: 1, Owner: identity.ID}
	other := executor.Spec{JobID: "not-mine", Epoch: 1, Owner: "another owner"}
	for _, spec := range []executor.Spec{mine, other} {
		if _, err := w.executor.Prepare(t.Context(), spec, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	identity.Close()
	a := w.start()
	w.log.await(t, "removed leftovers of an earlier job")
	a.drain()
	w.cleanState(a)
	if left, err := w.executor.List(t.Context(), "another owner"); err != nil || len(left) != 1 {
		t.Errorf("another agent's jobs: %v (error: %v), want 1", left, err)
	}
}
