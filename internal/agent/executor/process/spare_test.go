package process

import (
	"errors"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
)

// A runner waits from Prepare on, and Start takes it if it is still good.
func TestWaitingRunner(t *testing.T) {
	runner := buildRunner(t)
	for _, tt := range []struct {
		name  string
		spoil func(e *Executor, d dir, s *spare)
		taken bool
	}{
		{"it waits", func(*Executor, dir, *spare) {}, true},
		{"it has died", func(_ *Executor, _ dir, s *spare) {
			id := running(t, s)
			_ = s.process.Kill()
			gone(t, id)
		}, false},
		{"it is about to give up", func(_ *Executor, _ dir, s *spare) { s.since = time.Now().Add(-spareAge - time.Second) }, false},
		{"another agent has prepared the job", func(e *Executor, d dir, _ *spare) { e.cool(d) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newExecutor(t, runner, t.TempDir())
			defer e.Close()
			h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			d := handleDir(t, h)
			waiting := e.spares[d]
			if waiting == nil {
				t.Fatal("no runner waits")
			}
			pid := waiting.process.Pid
			if _, err := e.Wait(t.Context(), h); !errors.Is(err, executor.ErrNotStarted) {
				t.Errorf("a job whose runner only waits counts as started: %v", err)
			}
			tt.spoil(e, d, waiting)
			if err := e.Start(t.Context(), h, []byte(`{"actions":[{"result":"{}"}]}`)); err != nil {
				t.Fatal(err)
			}
			id, err := d.process()
			if err != nil || (id.PID == pid) != tt.taken {
				t.Errorf("the runner is process %d, %v; process %d waited", id.PID, err, pid)
			}
			if exit, err := e.Wait(t.Context(), h); err != nil || !exit.Success() {
				t.Errorf("got %+v, %v", exit, err)
			}
			if err := e.Remove(t.Context(), h); err != nil {
				t.Error(err)
			}
			if left := leftovers(t, d); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A runner that waits does nothing and is gone when its job or its agent goes.
func TestWaitingRunnerGoes(t *testing.T) {
	runner := buildRunner(t)
	for name, leave := range map[string]func(*Executor, executor.Handle) error{
		"its job is removed": func(e *Executor, h executor.Handle) error { return e.Remove(t.Context(), h) },
		"the agent ends":     func(e *Executor, _ executor.Handle) error { return e.Close() },
		"the agent dies": func(e *Executor, h executor.Handle) error { // what the system does then
			return e.spares[handleDir(t, h)].stdin.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, runner, t.TempDir())
			defer e.Close()
			h, err := e.Prepare(t.Context(), executor.Spec{JobID: "j", Epoch: 1, Owner: "o"}, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			d := handleDir(t, h)
			id := running(t, e.spares[d])
			if err := leave(e, h); err != nil {
				t.Fatal(err)
			}
			gone(t, id)
		})
	}
}

func running(t *testing.T, s *spare) identity {
	t.Helper()
	id, err := identify(s.process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// gone waits until a process has ended.
func gone(t *testing.T, id identity) {
	t.Helper()
	ctx, cancel := testContext()
	defer cancel()
	if err := pollGone(ctx, id); err != nil {
		t.Fatalf("the runner has not ended: %v", err)
	}
}
