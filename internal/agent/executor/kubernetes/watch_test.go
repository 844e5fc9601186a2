package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
)

// answering is an API that responds to requests for one pod.
type answering struct {
	mu  sync.Mutex
	pod *corev1.Pod // nil if the pod is missing
}

func (a *answering) set(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pod = pod
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if a.pod == nil || !strings.HasSuffix(r.URL.Path, "/pods/"+a.pod.Name) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
		return
	}
	_ = json.NewEncoder(w).Encode(a.pod)
}

// newIdleWatcher returns a watcher whose watch has no connection; the test reports changes itself.
func newIdleWatcher(t *testing.T, api http.Handler) *watcher {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	e, err := New(Options{Config: &rest.Config{Host: server.URL}, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.newWatcher(nil, "jobs", "owner")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func namedPod(uid types.UID) *corev1.Pod {
	return samplePod(runs(), func(pod *corev1.Pod) {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Namespace, pod.Name, pod.UID = "jobs", "pod", uid
		pod.Labels = map[string]string{podspec.LabelOwner: "owner"}
	})
}

// TestRelabelledPod checks that a pod that has left the watch because its label changed is neither
// missing nor excluded from its removal.
func TestRelabelledPod(t *testing.T) {
	api := &answering{pod: namedPod("1")}
	w := newIdleWatcher(t, api)
	w.depart(namedPod("1"))
	for _, forgotten := range []bool{false, true} {
		if forgotten {
			w.forget("pod")
		}
		if v, err := w.look(t.Context(), "pod", false); err != nil || v.gone || v.pod == nil {
			t.Fatalf("forgotten %t: a running pod is %+v, %v", forgotten, v, err)
		}
	}
	w.expect("pod")
	w.depart(namedPod("1"))
	api.set(nil)
	for range 2 {
		if v, err := w.look(t.Context(), "pod", false); err != nil || !v.gone || v.pod == nil {
			t.Fatalf("a removed pod is %+v, %v", v, err)
		}
	}
}

// TestReplacedPod checks that a pod of the same name is not taken for the pod that it replaced.
func TestReplacedPod(t *testing.T) {
	other := namedPod("2")
	other.Status.ContainerStatuses[1].State = exits(0, "Completed", "")
	t.Run("in the watch", func(t *testing.T) {
		w := newIdleWatcher(t, &answering{pod: other})
		if err := w.informer.GetStore().Add(other); err != nil {
			t.Fatal(err)
		}
		w.depart(namedPod("1"))
		expectGone(t, w)
		w.depart(other)
		expectGone(t, w)
	})
	t.Run("in the cluster", func(t *testing.T) {
		w := newIdleWatcher(t, &answering{pod: other})
		w.depart(namedPod("1"))
		expectGone(t, w)
	})
	t.Run("before the watch", func(t *testing.T) {
		w := newIdleWatcher(t, &answering{pod: other})
		if err := w.informer.GetStore().Add(namedPod("1")); err != nil {
			t.Fatal(err)
		}
		if v, err := w.look(t.Context(), "pod", true); err != nil || !v.gone || v.pod.UID != "1" {
			t.Errorf("%+v, %v", v, err)
		}
	})
	t.Run("during a wait", func(t *testing.T) {
		api := &answering{pod: namedPod("1")}
		w := newIdleWatcher(t, api)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var seen []types.UID
		err := w.until(ctx, "pod", time.Millisecond, func(v view) (bool, error) {
			api.set(other)
			seen = append(seen, v.pod.UID)
			if v.pod.UID != "1" {
				return false, errors.New("the wait continues with the other pod")
			}
			return v.gone, nil
		})
		if err != nil || len(seen) != 2 {
			t.Errorf("%v, saw %q", err, seen)
		}
	})
}

func expectGone(t *testing.T, w *watcher) {
	t.Helper()
	for range 2 {
		if v, err := w.look(t.Context(), "pod", false); err != nil || !v.gone || v.pod == nil || v.pod.UID != "1" {
			t.Fatalf("%+v, %v", v, err)
		}
	}
}
