package kubernetes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/dev/executortest/program"
)

// TestKeptPod keeps the pod of a job without its Secret, copies the pod, and lets it expire.
func TestKeptPod(t *testing.T) {
	s := newSpace(t)
	pods := s.builder(podspec.Config{DebugPod: true})
	e := s.open(t, Options{Pods: pods, DebugPodTTL: time.Hour})
	defer e.Close()
	spec := s.spec()
	spec.JobID, spec.Epoch, spec.Owner = "kept", 1, "owner"
	h, err := e.Prepare(t.Context(), spec, func(string) {})
	if err == nil {
		err = e.Start(t.Context(), h, launchDocument(t, program.Action{Print: "done"}))
	}
	if err == nil {
		err = e.AwaitStart(t.Context(), h, func(string) {})
	}
	if err == nil {
		_, err = e.Wait(t.Context(), h)
	}
	if err == nil {
		err = e.Remove(t.Context(), h)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := jobOf(t, h).Name
	if left := s.objects(name); !slices.Equal(left, []string{"pods/" + name}) {
		t.Errorf("after the job, the namespace contains %q", left)
	}
	if listed, err := e.List(t.Context(), "owner"); err != nil || len(listed) > 0 {
		t.Errorf("List: %v, %v", listed, err)
	}

	text, err := e.CopyPod(t.Context(), name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	made := new(corev1.Pod)
	if err := yaml.Unmarshal(text, made); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.createPod(t.Context(), made, true, rest.NoWarnings{}); err != nil {
		t.Errorf("the cluster refuses the copy: %v\n%s", err, text)
	}
	for what, want := range map[string]string{"missing": "debug_pod", name + "-debug": "has no pod"} {
		if _, err := e.CopyPod(t.Context(), what, time.Hour); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("copying %s: %v", what, err)
		}
	}

	for _, tt := range []struct {
		keep time.Duration
		left int
	}{{time.Hour, 1}, {time.Nanosecond, 0}} {
		// Another executor, because an agent can restart in between.
		e := s.open(t, Options{Pods: pods, DebugPodTTL: tt.keep})
		defer e.Close()
		w, err := e.watcher(s.name, "owner")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
			t.Fatal("the watch did not begin")
		}
		e.reapExpired(ctx, w)
		if tt.left == 0 {
			if err := w.until(ctx, name, time.Second, func(v view) (bool, error) { return v.gone, nil }); err != nil {
				t.Error(err)
			}
		}
		if left := s.objects(name); len(left) != tt.left {
			t.Errorf("with a lifetime of %s, the namespace contains %q", tt.keep, left)
		}
	}
}
