package kubernetes

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/workflow"
)

// TestLargeDefinition checks that a job whose launch document exceeds a Secret fails with a remedy,
// before anything is created.
func TestLargeDefinition(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	b, err := podspec.New(podspec.Options{Config: podspec.Config{Namespace: "jobs", AgentImage: "agent"}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Config: &rest.Config{Host: server.URL}, Pods: b, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	spec := executor.Spec{JobID: "job", Epoch: 1, Owner: "owner", Image: &workflow.Image{Reference: "image"}}
	pod, err := b.Pod(spec)
	if err != nil {
		t.Fatal(err)
	}
	j := e.newJob(spec.Owner, pod)
	if j.Pod, err = json.Marshal(pod); err != nil {
		t.Fatal(err)
	}
	h, err := executor.NewHandle(Name, spec.JobID, spec.Epoch, time.Now(), j)
	if err != nil {
		t.Fatal(err)
	}
	err = e.Start(t.Context(), h, []byte(strings.Repeat("x", maxLaunch+1)))
	if final, ok := errors.AsType[*executor.Error](err); !ok || !strings.Contains(final.Message, "1 MiB") {
		t.Errorf("%v", err)
	}
}
