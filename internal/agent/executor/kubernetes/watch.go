package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/retry"
)

const (
	// askTime is how long a wait relies on the watch before it asks the cluster for the pod itself.
	askTime = 2 * time.Minute
	// memory is how long the last state of a removed pod is kept for a caller that waits for it
	// later.
	memory = time.Hour
)

// watcher follows the pods of one owner.
type watcher struct {
	client    *client
	namespace string
	informer  cache.SharedIndexInformer

	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by the pod's name
	gone    map[string]departed
}

// departed is the last state of a pod that has left the watch: the cluster removed the pod, or a
// user changed the label by which the watch selects it. The pod is nil if the job was removed by its
// caller, which then no longer needs the state.
type departed struct {
	pod  *corev1.Pod
	sure bool // the cluster has confirmed that it removed the pod
	seen time.Time
}

// view is a pod's state. The pod is nil if the cluster has no such pod and its last state is
// unknown.
type view struct {
	pod  *corev1.Pod
	gone bool
}

func (e *Executor) newWatcher(s *session, namespace, owner string) (*watcher, error) {
	w := &watcher{client: e.client, namespace: namespace, waiting: map[string]map[chan struct{}]bool{}, gone: map[string]departed{}}
	source := cache.NewFilteredListWatchFromClient(e.client.rest, "pods", namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = podspec.Selector(owner)
	})
	w.informer = cache.NewSharedIndexInformer(source, new(corev1.Pod), 0, cache.Indexers{})
	changed := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			w.notify(pod.Name)
			if pod.DeletionTimestamp != nil && !w.removed(pod.Name) {
				e.keepTail(s, w, pod)
			}
		}
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(old, object any) {
			// A watch that broke can miss that a pod was replaced by another one of the same name.
			before, ok := old.(*corev1.Pod)
			if after, also := object.(*corev1.Pod); ok && also && before.UID != after.UID {
				w.depart(before)
			}
			changed(object)
		},
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				w.depart(pod)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	err = w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if !errors.Is(err, context.Canceled) {
			e.opts.Log.WithError(err).Debug("the watch of the jobs' pods broke; resuming it")
		}
	})
	return w, err
}

func (w *watcher) notify(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.waiting[name] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (w *watcher) subscribe(name string) (changed <-chan struct{}, unsubscribe func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[name] == nil {
		w.waiting[name] = map[chan struct{}]bool{}
	}
	w.waiting[name][c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting[name], c)
		if len(w.waiting[name]) == 0 {
			delete(w.waiting, name)
		}
	}
}

// awaited reports whether a call waits for the pod.
func (w *watcher) awaited(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting[name]) > 0
}

func (w *watcher) depart(pod *corev1.Pod) {
	w.mu.Lock()
	now := time.Now()
	for name, d := range w.gone {
		if now.Sub(d.seen) > memory {
			delete(w.gone, name)
		}
	}
	d, known := w.gone[pod.Name]
	if !known || d.pod != nil && !d.sure {
		d.pod = pod
	}
	w.gone[pod.Name] = departed{d.pod, d.sure, now}
	w.mu.Unlock()
	w.notify(pod.Name)
}

// forget discards the last state of a pod, and the states that are still to come.
func (w *watcher) forget(name string) {
	w.mu.Lock()
	w.gone[name] = departed{sure: w.gone[name].sure, seen: time.Now()}
	w.mu.Unlock()
	w.notify(name)
}

// expect reverts [watcher.forget] for a pod that is about to be created.
func (w *watcher) expect(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.gone, name)
}

func (w *watcher) removed(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, known := w.gone[name]
	return known && d.pod == nil
}

// confirm records that the cluster has removed a pod that left the watch.
func (w *watcher) confirm(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d, known := w.gone[name]; known {
		w.gone[name] = departed{d.pod, true, d.seen}
	}
}

// look returns the pod's state. It asks the cluster if the watch does not know the pod, or if ask is
// set. A pod of the same name that replaced the pod is not the job's.
func (w *watcher) look(ctx context.Context, name string, ask bool) (view, error) {
	w.mu.Lock()
	last, departed := w.gone[name]
	w.mu.Unlock()
	if departed && last.sure {
		return view{last.pod, true}, nil
	}
	var known *corev1.Pod
	if object, found, _ := w.informer.GetStore().GetByKey(w.namespace + "/" + name); found {
		known, _ = object.(*corev1.Pod)
	}
	if known != nil && replaced(last.pod, known) {
		w.confirm(name)
		return view{last.pod, true}, nil
	}
	if known != nil && !ask {
		return view{known, false}, nil
	}
	pod, err := w.client.pod(ctx, w.namespace, name)
	known = cmp.Or(known, last.pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && replaced(known, pod):
		w.confirm(name)
		return view{known, true}, nil
	case err == nil:
		return view{pod, false}, nil
	case ctx.Err() != nil:
		return view{}, context.Cause(ctx)
	case known != nil:
		return view{known, false}, nil
	}
	return view{}, fmt.Errorf("asking the cluster for pod %s: %w", name, err)
}

// replaced reports whether now is another pod than before, which can be nil.
func replaced(before, now *corev1.Pod) bool { return before != nil && before.UID != now.UID }

// until calls decide with the pod's states until decide is done or fails. It calls decide for each
// change, and at least once per tick. It fails if the watch does not know the pod and the cluster
// does not respond.
func (w *watcher) until(ctx context.Context, name string, tick time.Duration, decide func(view) (done bool, err error)) error {
	changed, unsubscribe := w.subscribe(name)
	defer unsubscribe()
	var last *corev1.Pod
	asked := time.Now()
	for {
		ask := time.Since(asked) > askTime
		v, err := w.look(ctx, name, ask)
		if err != nil {
			return err
		}
		if ask {
			asked = time.Now()
		}
		switch {
		case v.pod == nil:
			v.pod = last // a pod that this wait saw before the watch did
		case replaced(last, v.pod):
			v = view{last, true}
		}
		last = v.pod
		if done, err := decide(v); done || err != nil {
			return err
		}
		timer := time.NewTimer(retry.Spread(tick))
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
