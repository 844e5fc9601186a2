package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest"
	"workflowagent/internal/workflow"
)

const memoryLimit = 64

func TestConformance(t *testing.T) {
	s := newSpace(t)
	pods := s.builder(podspec.Config{
		Template:          fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"resources":{"limits":{"memory":"%dMi"}}}]}}`, podspec.MainContainer, memoryLimit),
		WorkspaceHostPath: filepath.Join(t.TempDir(), "workspaces"),
	})
	executortest.Run(t, executortest.Place{
		Workspaces: true,
		Open:       func(t *testing.T) executor.Executor { return s.open(t, Options{Pods: pods}) },
		Spec:       func(*testing.T) executor.Spec { return s.spec() },
		BadSpec: func(*testing.T) executor.Spec {
			return executor.Spec{Image: &workflow.Image{Reference: " an invalid name"}}
		},
		Visible:   s.visible,
		Leftovers: func(t *testing.T, h executor.Handle) []string { return s.objects(jobOf(t, h).Name) },
		LeftoversOf: func(_ *testing.T, spec executor.Spec) []string {
			return s.objects(podspec.Name(spec.Owner, spec.JobID, spec.Epoch))
		},
		Broken: func(t *testing.T) executor.Executor {
			config := rest.CopyConfig(s.admin)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return breaking{next} })
			e := s.open(t, Options{Pods: pods, Config: config})
			t.Cleanup(func() { _ = e.Close() })
			return e
		},
		MemoryLimit: memoryLimit,
		// An agent that exits between Prepare and its journal entry would leave objects behind, because
		// it may not list Secrets.
		Unprepared: true,
		// The only request that stops a pod deletes it.
		StopDiscards: true,
		// Reading files in a running container requires the right to run programs in it.
		SpoolAtExit: true,
	})
}

// visible returns the pod and its Secret as an administrator sees them.
func (s *space) visible(t *testing.T, h executor.Handle) string {
	j := jobOf(t, h)
	pod, err := s.client.pod(t.Context(), s.name, j.Name)
	if err != nil {
		t.Fatal(err)
	}
	secret := new(corev1.Secret)
	if err := s.client.rest.Get().Namespace(s.name).Resource("secrets").Name(j.Name).Do(t.Context()).Into(secret); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + string(secret.Data[podspec.LaunchKey]) + string(j.Pod)
}
