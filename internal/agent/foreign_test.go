package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// callsOfAgent lists the agent's calls for a job whose runner exits before it reports a result.
var callsOfAgent = []struct {
	name, method, suffix string
	phase                string // heartbeat phase of the call; "" for other calls
}{
	{"claimed", "GET", "", ""},
	{"heartbeat", "POST", "/heartbeat", "preparing"},
	{"leave", "POST", "/heartbeat", "starting"},
	{"step status", "PATCH", "/status", ""},
	{"log", "PUT", "/log", ""},
	{"result", "POST", "/result", ""},
}

var foreignBodies = map[int]string{
	http.StatusOK:         `{}`,
	http.StatusBadRequest: `{"code":400,"message":"Bad Request"}`,
	http.StatusGone:       `{"code":410,"message":"Gone"}`,
	http.StatusConflict:   `{"code":409,"received":999999,"durable":999999,"missing":[{"step":0,"received":0}]}`,
}

// TestForeignAnswersEndNothing simulates an intermediary that responds twice to one kind of call,
// in the format of the API's own responses. The job must run once, and its log and result must be
// delivered.
func TestForeignAnswersEndNothing(t *testing.T) {
	for _, call := range callsOfAgent {
		for _, codes := range [][2]int{
			{http.StatusBadRequest, http.StatusGone},
			{http.StatusOK, http.StatusNoContent},
			{http.StatusConflict, http.StatusConflict},
		} {
			if codes[0] != http.StatusBadRequest && call.name != "leave" && call.name != "log" && call.name != "result" {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", call.name, codes[0]), func(t *testing.T) {
				t.Parallel()
				w := newHarness(t)
				w.executor.OnRun(func(_ context.Context, j *fakes.Job) executor.Exit {
					spoolStep(t, j, 2, "all done\n")
					return sealed(j, executor.Exit{Result: &protocol.Result{Status: workflow.StatusSucceeded}})
				})
				var beaten chan struct{}
				if call.phase == "preparing" { // otherwise, the preparation would finish before the second heartbeat
					beaten = make(chan struct{})
					w.executor.OnPrepare(func(ctx context.Context, _ executor.Spec, _ func(string)) error {
						select {
						case <-beaten:
						case <-ctx.Done():
						}
						return ctx.Err()
					})
				}
				var seen atomic.Int32
				const times = 2
				w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
					if !strings.HasPrefix(r.URL.Path, "/api/workflow/jobs/") || !fakes.IsCall(r, call.method, call.suffix) {
						return false
					}
					if call.phase != "" {
						body, _ := io.ReadAll(r.Body)
						if !strings.Contains(string(body), call.phase) {
							return false
						}
					}
					n := seen.Add(1)
					if n == times+1 && beaten != nil {
						close(beaten)
					}
					if n > times {
						return false
					}
					rw.Header().Set("Content-Type", "application/json")
					rw.WriteHeader(codes[n-1])
					_, _ = io.WriteString(rw, foreignBodies[codes[n-1]])
					return true
				})
				job := w.server.Add()
				a := w.start()
				w.server.WaitForFreeSlot()
				a.drain()
				if len(job.Results) != 1 {
					t.Fatalf("%d results after %d such calls: the agent did not report the job's result", len(job.Results), seen.Load())
				}
				if seen.Load() <= times {
					t.Errorf("the agent made the call %d times: it trusted a response from an intermediary", seen.Load())
				}
				if got := job.Results[0]; got.Status != workflow.StatusSucceeded || got.Steps[0].Gone {
					t.Errorf("result: %+v", got)
				}
				if !job.Has(0, "runs this job") || !job.Has(2, "all done") {
					t.Errorf("set-up log %q, step 2 %q", job.Log(0), job.Log(2))
				}
				if n := len(w.executor.Record(job.ID).Launches); n != 1 {
					t.Errorf("the job ran %d times", n)
				}
				if job.Steps[0] != workflow.StepSucceeded {
					t.Errorf("step 0: %q", job.Steps[0])
				}
				w.cleanState(a)
			})
		}
	}
}

// TestSignaturesAreExpectedAfterARestart simulates an intermediary that responds to the first calls
// after a restart. These calls include the delivery of the previous process's result.
func TestSignaturesAreExpectedAfterARestart(t *testing.T) {
	w := newHarness(t)
	w.executor.OnPrepare(func(context.Context, executor.Spec, func(string)) error { return errors.New("no image") })
	var process, told atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case process.Load() == 0:
			if fakes.IsCall(r, "POST", "/result") {
				told.Add(1)
				w.server.Update(func() {})
				fakes.Drop(rw)
				return true
			}
		case told.Load() < 4 && !fakes.IsCall(r, "POST", "/result"), told.Add(1) < 4:
			_, _ = io.WriteString(rw, "{}")
			return true
		}
		return false
	})
	job := w.server.Add()
	first := w.start()
	w.server.WaitFor("the first result", func() bool { return told.Load() > 0 })
	first.kill()
	process.Store(1)
	second := w.start()
	second.finish(job)
	w.cleanState(second)
}

// TestJobsWithoutAFreeSlotAreNotRun simulates a server that assigns a job in response to a poll
// without free slots. The agent must not run the job.
func TestJobsWithoutAFreeSlotAreNotRun(t *testing.T) {
	w := newHarness(t)
	first := w.server.Add()
	handed := make(chan struct{})
	w.executor.OnRun(func(ctx context.Context, j *fakes.Job) executor.Exit {
		select {
		case <-handed:
		case <-ctx.Done():
		}
		return w.runner(workflow.StatusSucceeded)(ctx, j)
	})
	var second *fakes.ServerJob
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		if !fakes.IsCall(r, "GET", "/poll") || r.Header.Get(protocol.HeaderAgentSlots) != "0" || second != nil {
			return false
		}
		second = w.server.Add()
		w.server.Update(func() { w.server.Queue = nil })
		signer := protocol.SignAnswers(rw, r)
		signer.Header().Set(protocol.HeaderPreferenceApplied, "wait")
		_ = json.NewEncoder(signer).Encode(protocol.PollResponse{JobID: second.ID, JobToken: second.Token, TypeSpecificID: "deployment-" + second.ID, Epoch: 1})
		return true
	})
	a := w.start()
	w.log.await(t, "no free slot")
	close(handed)
	a.finish(first)
	if n := len(w.executor.Record(second.ID).Launches); n != 0 || len(second.Results) != 0 || len(second.Phases) != 0 {
		t.Errorf("the second job ran %d times, with %d results and heartbeats %v", n, len(second.Results), second.Phases)
	}
}

// TestNoStartAfterTheServersOwn410 simulates a server that rejects a part of the set-up log because
// the claim is superseded, while the agent requests permission to start the job. The agent must not
// start the job.
func TestNoStartAfterTheServersOwn410(t *testing.T) {
	w := newHarness(t)
	told := make(chan struct{})
	var once sync.Once
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		switch {
		case fakes.IsCall(r, "PUT", "/log"):
			protocol.SignAnswers(rw, r).WriteHeader(http.StatusGone)
			return true
		case fakes.IsCall(r, "POST", "/heartbeat"):
			body, _ := io.ReadAll(r.Body)
			if strings.Contains(string(body), "starting") {
				w.log.await(t, "no longer accepts this job's log")
				once.Do(func() { close(told) })
			}
		}
		return false
	})
	job := w.server.Add()
	a := w.start()
	<-told
	w.server.WaitForFreeSlot()
	a.drain()
	if n := len(w.executor.Record(job.ID).Launches); n != 0 || len(job.Results) != 0 {
		t.Errorf("the job ran %d times, with %d results", n, len(job.Results))
	}
	w.cleanState(a)
}

// TestRefusedResultsAreBounded simulates a server that assigns jobs that cannot run, and rejects
// their results. The agent must accept only a limited number of such jobs.
func TestRefusedResultsAreBounded(t *testing.T) {
	w := newHarness(t)
	var handed, busy atomic.Int32
	full := make(chan struct{})
	enough := sync.OnceFunc(func() { close(full) })
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		signer := protocol.SignAnswers(rw, r)
		switch {
		case fakes.IsCall(r, "GET", "/poll"):
			if r.Header.Get(protocol.HeaderAgentSlots) == "0" {
				if busy.Add(1) == 20 { // while the agent has no free slot
					enough()
				}
				signer.Header().Set(protocol.HeaderPreferenceApplied, "wait")
				signer.WriteHeader(http.StatusNoContent)
				return true
			}
			busy.Store(0)
			n := handed.Add(1)
			if n > 100 {
				enough()
				signer.WriteHeader(http.StatusNoContent)
				return true
			}
			_ = json.NewEncoder(signer).Encode(protocol.PollResponse{JobID: fmt.Sprintf("job-%d", n), JobToken: "token", TypeSpecificID: "d", Epoch: 1})
		case fakes.IsCall(r, "PUT", "/log"), fakes.IsCall(r, "POST", "/result"):
			signer.WriteHeader(http.StatusBadRequest)
		case fakes.IsCall(r, "POST", "/heartbeat"), fakes.IsCall(r, "PATCH", "/status"):
			_, _ = io.WriteString(signer, "{}")
		case strings.HasPrefix(r.URL.Path, "/api/workflow/jobs/"):
			_, _ = io.WriteString(signer, `{"steps": 7}`)
		default:
			return false
		}
		return true
	})
	a := w.start()
	<-full
	a.kill()
	if n := handed.Load(); n > 33 { // 32 jobs without a slot and one job with a slot
		t.Errorf("the agent accepted %d jobs whose results the server rejects", n)
	}
}

// TestStockJobsAreNotRunAgain simulates a cache that repeats an earlier claim. The job must not run
// again, although a stock server permits a start by sending the definition.
func TestStockJobsAreNotRunAgain(t *testing.T) {
	w := newHarness(t)
	w.server.Stock = true
	w.executor.OnRun(w.runner(workflow.StatusSucceeded))
	job := w.server.Add()
	var again atomic.Int32
	w.server.OnFault(func(rw http.ResponseWriter, r *http.Request) bool {
		claimed := false
		w.server.Update(func() { claimed = job.Claimed > 0 })
		if !fakes.IsCall(r, "GET", "/poll") || !claimed {
			return false
		}
		w.server.Update(func() { again.Add(1) })
		_ = json.NewEncoder(rw).Encode(protocol.PollResponse{JobID: job.ID, JobToken: job.Token, TypeSpecificID: "deployment-" + job.ID})
		return true
	})
	a := w.start()
	w.server.WaitFor("the cached claim", func() bool { return again.Load() >= 10 })
	a.drain()
	if n := len(w.executor.Record(job.ID).Launches); n != 1 || !strings.Contains(w.log.String(), "has already run") {
		t.Errorf("the job ran %d times", n)
	}
}
