package kubernetes

import (
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// TestPrivateRegistry runs jobs by digest from a registry that requires credentials, as in a cluster
// without access to the internet.
func TestPrivateRegistry(t *testing.T) {
	s := newSpace(t)
	r, err := lab.StartRegistry(t.Context(), lab.RegistryOptions{Address: s.cluster.HostIP.String(), Username: "puller", Password: "right"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := s.cluster.PlainRegistry(r.Host); err != nil {
		t.Fatal(err)
	}
	s.kubectl("create secret docker-registry mirror --docker-server=" + r.Host + " --docker-username=puller --docker-password=right --namespace " + s.name)

	template := podspec.Config{Template: "spec: {imagePullSecrets: [{name: mirror}]}"}
	for _, tt := range []struct {
		name        string
		config      podspec.Config
		credentials *workflow.ImageCredentials
		want        string // in the error
	}{
		{"no credentials", podspec.Config{}, nil, "cannot be pulled"},
		{"wrong credentials", podspec.Config{}, &workflow.ImageCredentials{Username: "puller", Password: "wrong"}, "cannot be pulled"},
		{"the job's credentials", podspec.Config{}, &workflow.ImageCredentials{Username: "puller", Password: "right"}, ""},
		{"the template's secret", template, nil, ""},
		{"the template's secret and other credentials of the job", template, &workflow.ImageCredentials{Username: "puller", Password: "wrong"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Each image is new, because the node does not pull an image again.
			_, image, err := r.Push(t.Context(), "mirror/job", "1", lab.Picture{Arch: runtime.GOARCH, Files: map[string]string{"/name": tt.name}})
			if err != nil {
				t.Fatal(err)
			}
			spec := executor.Spec{JobID: tt.name, Epoch: 1, Owner: "owner", Image: &workflow.Image{Reference: image, Credentials: tt.credentials}}
			e := s.open(t, Options{Pods: s.builder(tt.config), tolerance: time.Second})
			defer e.Close()
			h, err := e.Prepare(t.Context(), spec, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			launch := merged(t, program.Launch{}, protocol.Launch{Definition: &workflow.JobDefinition{Image: spec.Image}})
			if err := e.Start(t.Context(), h, launch); err != nil {
				t.Fatal(err)
			}
			err = e.AwaitStart(t.Context(), h, func(string) {})
			if tt.want != "" {
				problem, is := errors.AsType[*executor.Error](err)
				if !is || problem.Reason != workflow.ReasonImage || !strings.Contains(problem.Message, tt.want) || strings.Contains(problem.Message, "wrong") {
					t.Errorf("AwaitStart: %v", err)
				}
			} else if err != nil {
				t.Fatalf("AwaitStart: %v", err)
			} else if exit, err := e.Wait(t.Context(), h); err != nil || exit.Code != 0 {
				t.Errorf("Wait: %+v, %v", exit, err)
			}
			if err := e.Remove(t.Context(), h); err != nil {
				t.Errorf("Remove: %v", err)
			}
			if left := s.objects(jobOf(t, h).Name); len(left) > 0 {
				t.Errorf("leftovers: %q", left)
			}
		})
	}
}

// merged returns a document with the fields of all values.
func merged(t *testing.T, values ...any) []byte {
	t.Helper()
	all := map[string]any{}
	for _, v := range values {
		data, err := json.Marshal(v)
		var fields map[string]any
		if err == nil {
			err = json.Unmarshal(data, &fields)
		}
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, fields)
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
