package kubernetes

import (
	"context"
	"errors"
	"testing"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
)

func (s *space) prepared(e *Executor, id string) executor.Handle {
	s.t.Helper()
	spec := s.spec()
	spec.JobID, spec.Epoch, spec.Owner = id, 1, "owner"
	h, err := e.Prepare(s.t.Context(), spec, func(string) {})
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// TestForeignLabel removes the label by which the agent watches its pods from the pod of a running
// job. The job continues, and the agent can still stop and remove it.
func TestForeignLabel(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	h := s.prepared(e, "relabelled")
	if err := e.Start(t.Context(), h, launchDocument(t, program.Action{Forever: true})); err != nil {
		t.Fatal(err)
	}
	if err := e.AwaitStart(t.Context(), h, func(string) {}); err != nil {
		t.Fatal(err)
	}
	name := jobOf(t, h).Name
	if _, err := s.cluster.Kubectl(t.Context(), "label", "pod", name, "--namespace", s.name, podspec.LabelOwner+"-"); err != nil {
		t.Fatal(err)
	}
	_, w, err := e.open(h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = w.until(ctx, name, time.Second, func(v view) (bool, error) { // until the watch has lost the pod
		if v.gone {
			return true, errors.New("the running pod counts as gone")
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		_, departed := w.gone[name]
		return departed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	limited, done := context.WithTimeout(t.Context(), 2*time.Second)
	defer done()
	if exit, err := e.Wait(limited, h); err == nil {
		t.Errorf("the job runs, but Wait reports %+v", exit)
	}
	if err := e.Stop(t.Context(), h, executor.StopKill); err != nil {
		t.Error(err)
	}
	if err := e.Remove(t.Context(), h); err != nil {
		t.Error(err)
	}
	if left := s.objects(name); len(left) > 0 {
		t.Errorf("leftovers: %q", left)
	}
}

// TestForeignPod lets another program create a pod with the name of the job's pod.
func TestForeignPod(t *testing.T) {
	s := newSpace(t)
	e := s.open(t, Options{})
	defer e.Close()
	h := s.prepared(e, "foreign")
	name := jobOf(t, h).Name
	if _, err := s.cluster.Kubectl(t.Context(), "run", name, "--namespace", s.name, "--image", s.agentImage, "--image-pull-policy", "Never"); err != nil {
		t.Fatal(err)
	}
	err := e.Start(t.Context(), h, launchDocument(t, program.Action{Forever: true}))
	if _, final := errors.AsType[*executor.Error](err); !final {
		t.Errorf("Start: %v", err)
	}
}
