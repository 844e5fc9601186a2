package runner_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// TestForeignAnswersEndNothing has an intermediary respond twice to one kind of call, in the format
// of the API's own responses. The job's log, statuses and result must still arrive.
func TestForeignAnswersEndNothing(t *testing.T) {
	for name, suffix := range map[string]string{
		"heartbeat": "/heartbeat", "step status": "/status", "log": "/log", "result": "/result",
	} {
		for code, body := range map[int]string{
			http.StatusBadRequest: `{"code":400,"message":"Bad Request"}`,
			http.StatusGone:       `{"code":410,"message":"Gone"}`,
			http.StatusConflict:   `{"code":409,"received":999999,"durable":999999,"missing":[{"step":1,"received":0}]}`,
			http.StatusOK:         `{}`,
			http.StatusNoContent:  ``,
		} {
			t.Run(fmt.Sprintf("%s %d", name, code), func(t *testing.T) {
				h := newHarness(t, shellSteps("echo working", "echo done"))
				h.launch.Signed, h.server.Unsigned = true, false
				var seen atomic.Int32
				h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/result") { // the job can end before its first heartbeat
						h.server.WaitFor("a heartbeat", func() bool { return len(h.job.Phases) > 0 })
					}
					if !strings.HasSuffix(r.URL.Path, suffix) || seen.Add(1) > 2 {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(code)
					_, _ = io.WriteString(w, body)
					return true
				})
				if code, left := h.run(); code != 0 || !left.Reported {
					t.Errorf("exit code %d, left %+v\n%s", code, left, h.log.String())
				}
				if seen.Load() < 3 {
					t.Errorf("the call was made %d times: a response that was not the server's was believed", seen.Load())
				}
				h.wantLog(1, "working\n")
				h.wantLog(2, "done\n")
				if result := h.oneResult(); result.Status != workflow.StatusSucceeded {
					t.Errorf("result %+v", result)
				}
				if diff := cmp.Diff([]string{"1 running", "1 succeeded", "2 running", "2 succeeded"}, h.job.Statuses); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestNoStepAfterTheServersOwn410 has the server report the claim as superseded during the first
// step. That step must finish, and no other step may start.
func TestNoStepAfterTheServersOwn410(t *testing.T) {
	for suffix, heard := range map[string]string{
		"/heartbeat": "refuses this job's heartbeats", "/status": "refuses a step's status", "/log": "no longer accepts this job's log",
	} {
		t.Run(suffix[1:], func(t *testing.T) {
			h := newHarness(t, shellSteps("touch begun; echo working; while [ ! -e heard ]; do sleep 0.01; done; touch finished", "touch proof"))
			h.server.Unsigned = false
			h.log.hook = func(written string) {
				if !strings.Contains(written, heard) {
					return
				}
				if err := os.WriteFile(filepath.Join(h.dir, "work", "heard"), nil, 0o600); err != nil {
					t.Error(err)
				}
			}
			h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
				if suffix != "/status" && !exists(h, "begun") || !strings.HasSuffix(r.URL.Path, suffix) && !strings.HasSuffix(r.URL.Path, "/result") {
					return false
				}
				protocol.SignAnswers(w, r).WriteHeader(http.StatusGone)
				return true
			})
			code, left := h.run()
			if code == 0 || left.Reported || left.Reason != workflow.ReasonLost {
				t.Errorf("exit code %d, left %+v", code, left)
			}
			if !exists(h, "finished") || exists(h, "proof") {
				t.Errorf("the step that ran finished: %t; the next one began: %t", exists(h, "finished"), exists(h, "proof"))
			}
		})
	}
}

func exists(h *harness, name string) bool {
	_, err := os.Stat(filepath.Join(h.dir, "work", name))
	return err == nil
}

// TestResultWithoutLog has the server reject all log calls, as a proxy that blocks PUT does. The
// result must be accepted without the log.
func TestResultWithoutLog(t *testing.T) {
	h := newHarness(t, shellSteps("echo working"))
	h.launch.Signed, h.server.Unsigned = true, false
	h.timing.Delivery = 2 * time.Second
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			http.Error(w, "<html>method not allowed", http.StatusMethodNotAllowed)
			return true
		case strings.HasSuffix(r.URL.Path, "/result") && !strings.Contains(string(body), `"gone":true`):
			fakes.Answer(protocol.SignAnswers(w, r), http.StatusConflict, protocol.ResultConflict{Missing: []protocol.MissingLog{{Step: 1, Received: 0}}})
			return true
		}
		return false
	})
	if code, left := h.run(); code != 0 || !left.Reported {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	if results := h.job.Results; len(results) != 1 || results[0].Status != workflow.StatusSucceeded || !results[0].Steps[0].Gone {
		t.Errorf("results %+v", results)
	}
}

// TestHeartbeatsOutlastARefusal has the server itself reject heartbeats for some time, as after a
// start with the wrong database. The runner must continue to send heartbeats, or the job would be
// lost.
func TestHeartbeatsOutlastARefusal(t *testing.T) {
	h := newHarness(t, shellSteps("touch begun; i=0; while [ ! -e heard ]; do i=$((i+1)); [ $i -lt 500 ] || exit 1; sleep 0.01; done"))
	h.server.Unsigned = false
	var beats atomic.Int32
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/heartbeat") || !exists(h, "begun") {
			return false
		}
		if beats.Add(1) < 4 {
			protocol.SignAnswers(w, r).WriteHeader(http.StatusBadRequest)
			return true
		}
		if err := os.WriteFile(filepath.Join(h.dir, "work", "heard"), nil, 0o600); err != nil {
			t.Error(err)
		}
		return false
	})
	if code, left := h.run(); code != 0 || !left.Reported || strings.Count(h.log.String(), "refuses this job's heartbeats") != 1 {
		t.Errorf("exit code %d, left %+v after %d heartbeats\n%s", code, left, beats.Load(), h.log.String())
	}
}
