package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// late returns a harness whose engine begins jobs when the test releases them.
func late(t *testing.T) (*harness, fakes.Launcher) {
	t.Helper()
	w := newHarness(t)
	launcher := fakes.Launcher{Executor: w.executor}
	launcher.Hold()
	w.options = func(o *agent.Options) { o.Executor = launcher.Reopen() }
	w.executor.OnRun(w.asking("pod-1", w.runner(workflow.StatusSucceeded)))
	return w, launcher
}

// asking returns a runner that asks leave under a name and then runs.
func (w *harness) asking(holder string, run func(context.Context, *fakes.Job) executor.Exit) func(context.Context, *fakes.Job) executor.Exit {
	return func(ctx context.Context, j *fakes.Job) executor.Exit {
		client, launch := w.runnerClient(j.Launch)
		defer client.Close()
		if !launch.AskLeave {
			w.t.Error("the launch document does not say that the runner must ask leave")
		}
		job := client.Job(launch.JobID, launch.JobToken)
		job.SetHolder(holder)
		if _, err := job.Heartbeat(ctx, protocol.PhaseStarting); err != nil {
			return executor.Exit{Code: protocol.ExitNoLeave}
		}
		return run(ctx, j)
	}
}

func (w *harness) waitForStart(job *fakes.ServerJob) {
	w.t.Helper()
	w.server.WaitFor("the job to be at the engine", func() bool { return job.Has(0, "fetches the image") })
}

func TestLateStart(t *testing.T) {
	w, launcher := late(t)
	job := w.server.Add()
	r := w.start()
	w.waitForStart(job)
	w.server.View(func() {
		if job.Leave {
			t.Error("the agent asked leave")
		}
	})
	launcher.Release(job.ID)
	r.finish(job)
	if job.Status != workflow.StatusSucceeded || job.Holder != "pod-1" || len(job.Results) != 1 {
		t.Errorf("%s for %q: %+v", job.Status, job.Holder, job.Results)
	}
	if !job.Has(0, "The job was started.") || job.Steps[0] != workflow.StepSucceeded {
		t.Errorf("set-up log %q, status %s", job.Log(0), job.Steps[0])
	}
	w.cleanState(r)
}

// TestLateStartIsInterrupted kills the agent at each point of a late start. The engine begins the
// job before the next agent runs, or afterwards. The job runs once.
func TestLateStartIsInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   func(w *harness, launcher fakes.Launcher, killed func())
	}{
		{"before the engine has the job", func(w *harness, _ fakes.Launcher, killed func()) {
			w.executor.OnStart(func(context.Context, executor.Handle) error {
				w.executor.OnStart(nil)
				killed()
				return errors.New("killed")
			})
		}},
		{"after the engine has the job", func(w *harness, _ fakes.Launcher, killed func()) {
			w.executor.OnStarted(func(executor.Handle) error {
				w.executor.OnStarted(nil)
				killed()
				return errors.New("killed")
			})
		}},
		{"before leave", func(w *harness, _ fakes.Launcher, killed func()) {
			w.server.OnFault(func(_ http.ResponseWriter, r *http.Request) bool {
				// An agent that is killed earlier, while it prepares the job, hands the job back.
				if body, err := io.ReadAll(r.Body); err == nil && fakes.IsCall(r, "PUT", "/0/log") && bytes.Contains(body, []byte("fetches the image")) {
					killed()
				}
				return false
			})
		}},
	} {
		for _, early := range []bool{true, false} {
			name := tc.name + ", begun later"
			if early {
				name = tc.name + ", begun meanwhile"
			}
			t.Run(name, func(t *testing.T) {
				w, launcher := late(t)
				kill := make(chan struct{}, 100)
				tc.at(w, launcher, func() { kill <- struct{}{} })
				job := w.server.Add()
				r := w.start()
				select {
				case <-kill:
				case <-time.After(time.Minute):
					t.Fatal("the point was not reached")
				}
				r.kill()
				w.server.OnFault(nil)
				if early && tc.name != "before the engine has the job" {
					launcher.Release(job.ID)
				} else {
					early = false
				}
				r = w.start()
				if !early {
					w.waitForStart(job)
					launcher.Release(job.ID)
				}
				r.finish(job)
				if n := len(w.executor.Record(job.ID).Launches); n != 1 || job.Status != workflow.StatusSucceeded || len(job.Results) != 1 || len(job.Refused) != 0 {
					t.Errorf("%d runs, %s, results %+v, refused %q", n, job.Status, job.Results, job.Refused)
				}
				w.cleanState(r)
			})
		}
	}
}

// forgetful is an engine that has no record of jobs that it does not have: it cannot tell whether it
// ever had them.
type forgetful struct{ fakes.Launcher }

func (f forgetful) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	exit, err := f.Launcher.Wait(ctx, h)
	if errors.Is(err, executor.ErrNotStarted) {
		return executor.Exit{Code: -1, Lost: true}, nil
	}
	return exit, err
}

// TestLateStartOnForgetfulEngine kills the agent before the engine has the job. The next agent hands
// the job to the engine, because the server has not permitted it to start.
func TestLateStartOnForgetfulEngine(t *testing.T) {
	w, launcher := late(t)
	w.options = func(o *agent.Options) { o.Executor = forgetful{launcher.Reopen()} }
	tried := make(chan struct{})
	w.executor.OnStart(func(context.Context, executor.Handle) error {
		w.executor.OnStart(nil)
		close(tried)
		return errors.New("killed")
	})
	job := w.server.Add()
	r := w.start()
	<-tried
	r.kill()
	r = w.start()
	w.waitForStart(job)
	launcher.Release(job.ID)
	r.finish(job)
	if job.Status != workflow.StatusSucceeded || len(job.Results) != 1 {
		t.Errorf("%s, results %+v, log %q", job.Status, job.Results, job.Log(0))
	}
	w.cleanState(r)
}

// TestLateRunnerIsKilledBeforeLeave kills the runner before it has asked leave. The agent reports
// that the job did not run.
func TestLateRunnerIsKilledBeforeLeave(t *testing.T) {
	for _, tc := range []struct {
		name string
		exit executor.Exit
		want workflow.Reason
	}{
		{"by a signal", executor.Exit{Code: -1, Signal: "SIGKILL"}, workflow.ReasonSignal},
		{"together with its objects", executor.Exit{Code: -1, Lost: true}, workflow.ReasonLaunch},
		{"by an eviction", executor.Exit{Code: -1, Lost: true, Reason: workflow.ReasonEvicted, Detail: "drained"}, workflow.ReasonEvicted},
		{"by an eviction, after its request failed", executor.Exit{Code: protocol.ExitNoLeave, Reason: workflow.ReasonEvicted}, workflow.ReasonEvicted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, launcher := late(t)
			w.executor.OnRun(func(context.Context, *fakes.Job) executor.Exit { return tc.exit })
			job := w.server.Add()
			r := w.start()
			w.waitForStart(job)
			launcher.Release(job.ID)
			result := w.server.WaitForResult(job)
			r.drain()
			if result.Reason != tc.want || !result.NotStarted || !strings.Contains(result.Message, "The job did not run.") {
				t.Errorf("result %+v, want not started, %s", result, tc.want)
			}
			w.cleanState(r)
		})
	}
}

func TestLateStartFails(t *testing.T) {
	w, launcher := late(t)
	job := w.server.Add()
	r := w.start()
	w.waitForStart(job)
	launcher.Reject(job.ID, &executor.Error{Reason: workflow.ReasonImage, Message: "the registry has no such image"})
	result := w.server.WaitForResult(job)
	r.drain()
	if result.Reason != workflow.ReasonImage || !result.NotStarted || !job.Has(0, "no such image") || job.Steps[0] != workflow.StepFailed {
		t.Errorf("result %+v, log %q", result, job.Log(0))
	}
	w.cleanState(r)
}

// TestLateStartFailsAfterLeave checks that the agent does not report that a job was not started if a
// runner has leave, although the engine says so.
func TestLateStartFailsAfterLeave(t *testing.T) {
	for _, when := range []string{"before the agent asks", "while the agent reports"} {
		t.Run(when, func(t *testing.T) {
			w, launcher := late(t)
			job := w.server.Add()
			grant := func() {
				w.server.Update(func() { job.Leave, job.Holder, job.Status = true, "pod-1", workflow.StatusRunning })
			}
			r := w.start()
			w.waitForStart(job)
			if when == "before the agent asks" {
				grant()
			} else {
				reports := 0
				w.server.OnFault(func(_ http.ResponseWriter, r *http.Request) bool {
					if fakes.IsCall(r, "POST", "/result") {
						if reports++; reports == 1 {
							grant()
						}
					}
					return false
				})
			}
			launcher.Reject(job.ID, &executor.Error{Reason: workflow.ReasonLaunch, Message: "no node reported"})
			result := w.server.WaitForResult(job)
			r.drain()
			if result.Reason != workflow.ReasonLost || result.NotStarted || !strings.Contains(result.Message, "no node reported") || len(job.Results) != 1 {
				t.Errorf("results %+v", job.Results)
			}
			w.cleanState(r)
		})
	}
}

func TestLateJobIsRequeued(t *testing.T) {
	w, launcher := late(t)
	job := w.server.Add()
	r := w.start()
	w.waitForStart(job)
	r.kill()
	w.server.Update(func() { job.Gone = true })
	r = w.start()
	w.server.WaitForFreeSlot()
	w.executor.Shutdown() // the objects are gone
	r.drain()
	launcher.Release(job.ID)
	if len(job.Results) != 0 || job.Leave {
		t.Errorf("results %+v, leave %v", job.Results, job.Leave)
	}
	w.cleanState(r)
}

// TestLateJobIsClosedWhileItRuns checks that the agent does not remove a runner that has started,
// even if the server has closed the job: only the runner knows whether it has leave.
func TestLateJobIsClosedWhileItRuns(t *testing.T) {
	w, launcher := late(t)
	done := make(chan struct{})
	w.executor.OnRun(w.asking("pod-1", func(ctx context.Context, _ *fakes.Job) executor.Exit {
		select {
		case <-done:
		case <-ctx.Done():
			t.Error("the runner was killed")
		}
		return executor.Exit{Code: 3}
	}))
	job := w.server.Add()
	r := w.start()
	w.waitForStart(job)
	r.kill()
	launcher.Release(job.ID)
	w.server.WaitFor("leave", func() bool { return job.Leave })
	w.server.Update(func() { job.Gone = true })
	r = w.start()
	w.log.await(t, "the job was started")
	close(done)
	r.drain()
	w.cleanState(r)
}

func TestLateJobIsCancelled(t *testing.T) {
	w, _ := late(t)
	job := w.server.Add(func(j *fakes.ServerJob) { j.Cancel = true })
	r := w.start()
	result := w.server.WaitForResult(job)
	r.drain()
	if result.Reason != workflow.ReasonCancelled || job.Leave {
		t.Errorf("result %+v", result)
	}
	w.cleanState(r)
}

// TestLateRunnerWithoutLeave checks the report for a runner that ran nothing, and for one whose
// leave another runner of the same claim has.
func TestLateRunnerWithoutLeave(t *testing.T) {
	for _, other := range []bool{false, true} {
		w, launcher := late(t)
		w.executor.OnRun(func(context.Context, *fakes.Job) executor.Exit {
			return executor.Exit{Code: protocol.ExitNoLeave}
		})
		job := w.server.Add()
		r := w.start()
		w.waitForStart(job)
		if other {
			w.server.Update(func() { job.Leave, job.Holder, job.Status = true, "another", workflow.StatusRunning })
		}
		launcher.Release(job.ID)
		result := w.server.WaitForResult(job)
		r.drain()
		want := workflow.ReasonLaunch
		if other {
			want = workflow.ReasonLost
		}
		if result.Reason != want || result.NotStarted == other || !job.Has(len(job.Definition.Steps), "permission") && !job.Has(len(job.Definition.Steps), "permitted") {
			t.Errorf("other %v: %+v, log %q", other, result, job.Log(len(job.Definition.Steps)))
		}
		w.cleanState(r)
	}
}

// TestLateJobVanishes deletes the job at the engine while no agent runs.
func TestLateJobVanishes(t *testing.T) {
	for _, leave := range []bool{false, true} {
		w, launcher := late(t)
		job := w.server.Add()
		r := w.start()
		w.waitForStart(job)
		r.kill()
		launcher.Delete(job.ID)
		if leave {
			w.server.Update(func() { job.Leave, job.Holder, job.Status = true, "pod-1", workflow.StatusRunning })
		}
		r = w.start()
		result := w.server.WaitForResult(job)
		r.drain()
		if want := map[bool]workflow.Reason{false: workflow.ReasonLaunch, true: workflow.ReasonLost}[leave]; result.Reason != want || result.NotStarted == leave {
			t.Errorf("leave %v: %+v", leave, result)
		}
		if n := len(w.executor.Record(job.ID).Launches); n != 1 {
			t.Errorf("leave %v: %d starts", leave, n)
		}
		w.cleanState(r)
	}
}

func TestAgentStopsDuringLateStart(t *testing.T) {
	w, launcher := late(t)
	job := w.server.Add()
	r := w.start()
	w.waitForStart(job)
	r.Stop()
	r.wait()
	launcher.Release(job.ID) // the engine begins the job without an agent
	w.server.WaitForResult(job)
	r = w.start()
	w.server.WaitForFreeSlot()
	r.drain()
	if job.Status != workflow.StatusSucceeded || len(job.Results) != 1 || !slices.Contains(job.Phases, protocol.PhasePreparing) {
		t.Errorf("%s: %+v", job.Status, job.Results)
	}
	w.cleanState(r)
}
