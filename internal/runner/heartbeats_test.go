package runner

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// TestSupersededRunners tests that a runner whose job was assigned again ends a policy evaluation, and lets pulumi finish in a
// deployment.
func TestSupersededRunners(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.SignAnswers(w, r).WriteHeader(http.StatusGone)
	}))
	defer server.Close()
	for _, restarts := range []bool{true, false} {
		client, err := protocol.NewClient(protocol.Options{BaseURL: server.URL, Signed: true})
		if err != nil {
			t.Fatal(err)
		}
		logger := logrus.New()
		logger.SetOutput(&bytes.Buffer{})
		stop := newStopper()
		h := newHeartbeats(client.Job("job", "token"), time.Millisecond, stop, logrus.NewEntry(logger))
		h.restarts.Store(restarts)
		h.run(t.Context())
		if reason, stopped := stop.reason(); stopped != restarts || stopped && reason != workflow.ReasonLost {
			t.Errorf("a job that restarts: %t; it is stopped: %t, %s", restarts, stopped, reason)
		}
	}
}

// TestHeartbeatsEndWithTheResult has the server refuse heartbeats because the job's result is final.
// That is a warning only before the runner has begun to deliver the result.
func TestHeartbeatsEndWithTheResult(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.SignAnswers(w, r).WriteHeader(http.StatusGone)
	}))
	defer server.Close()
	for name, finishing := range map[string]bool{"the job runs": false, "the job has finished": true} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logger := logrus.New()
			logger.SetOutput(&log)
			client, err := protocol.NewClient(protocol.Options{BaseURL: server.URL, Signed: true})
			if err != nil {
				t.Fatal(err)
			}
			h := newHeartbeats(client.Job("job", "token"), time.Millisecond, nil, logrus.NewEntry(logger))
			if finishing {
				h.finish()
			}
			h.run(t.Context())
			if warned := strings.Contains(log.String(), "refuses"); warned == finishing {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}
