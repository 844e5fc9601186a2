package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/retry"
)

const (
	// removeTime bounds the wait until a node has ended a pod.
	removeTime = time.Minute
	// reapPause is the time between the searches for expired debug pods. The first search follows
	// it, so that a restarted agent has resumed its jobs by then.
	reapPause = 10 * time.Minute
)

// Remove deletes the Secret and the pod, and waits until the pod's processes have ended. The pod of
// a finished job remains if it is kept for debugging.
func (e *Executor) Remove(ctx context.Context, h executor.Handle) (err error) {
	j, w, err := e.open(h)
	if err != nil {
		return err
	}
	defer executor.Explain(&err, "removing", h)
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	// Without its Secret, a pod that has not started yet does not start.
	if err := e.client.deleteSecret(ctx, j.Namespace, j.Name); err != nil {
		return err
	}
	v, err := w.look(ctx, j.Name, false)
	if err != nil {
		return err
	}
	if v.pod != nil && !v.gone && e.kept(v.pod, time.Now()) {
		e.release(v.pod)
		return nil
	}
	w.forget(j.Name)
	deleted := false
	return w.until(ctx, j.Name, awaitTick, func(v view) (done bool, err error) {
		if v.pod != nil && (v.gone || deleted) {
			e.release(v.pod)
		}
		if v.gone {
			return true, nil
		}
		if !deleted {
			deleted = true
			return false, e.client.deletePod(ctx, v.pod, killGrace)
		}
		return false, nil
	})
}

// release discards what the executor has kept about a pod.
func (e *Executor) release(pod *corev1.Pod) {
	e.mu.Lock()
	var t *tail
	if e.session != nil {
		t = e.session.tails[pod.UID]
		delete(e.session.tails, pod.UID)
	}
	delete(e.stopped, pod.UID)
	e.mu.Unlock()
	if t != nil {
		t.discard()
	}
}

// kept reports whether the pod remains for debugging.
func (e *Executor) kept(pod *corev1.Pod, now time.Time) bool {
	main := mainStatus(pod)
	return e.opts.DebugPodTTL > 0 && pod.Labels[podspec.LabelDebug] == "true" &&
		main != nil && main.State.Terminated != nil && now.Sub(main.State.Terminated.FinishedAt.Time) < e.opts.DebugPodTTL
}

// reap deletes the debug pods that have expired, until ctx is canceled.
func (e *Executor) reap(ctx context.Context, w *watcher) {
	for retry.Sleep(ctx, retry.Spread(reapPause)) == nil {
		e.reapExpired(ctx, w)
	}
}

func (e *Executor) reapExpired(ctx context.Context, w *watcher) {
	for _, object := range w.informer.GetStore().List() {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Labels[podspec.LabelDebug] != "true" || !exited(pod) || e.kept(pod, time.Now()) || w.awaited(pod.Name) {
			continue
		}
		if err := e.client.deletePod(ctx, pod, killGrace); err != nil {
			e.opts.Log.WithError(err).WithField("pod", pod.Name).Warn("deleting an expired debug pod failed; retrying")
		}
	}
}

// List returns the jobs of owner that have a pod, except for pods that are kept for debugging. A pod
// with another name, such as a copy that a user made for debugging, is not a job's pod, even if it
// has the labels.
//
// An agent lists its jobs when it starts. List therefore also begins to remove the ended pods of
// agents that are gone.
func (e *Executor) List(ctx context.Context, owner string) ([]executor.Handle, error) {
	if _, err := e.watcher(e.opts.Pods.Namespace(), owner); err != nil {
		return nil, err
	}
	pods, err := e.client.pods(ctx, e.opts.Pods.Namespace(), podspec.Selector(owner), 0)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of jobs: %w", err)
	}
	var out []executor.Handle
	for _, pod := range pods {
		id := pod.Annotations[podspec.LabelJob]
		epoch, err := strconv.ParseInt(pod.Annotations[podspec.LabelEpoch], 10, 64)
		if err != nil || pod.Annotations[podspec.LabelOwner] != owner || pod.Name != podspec.Name(owner, id, epoch) || e.kept(&pod, time.Now()) {
			continue
		}
		h, err := executor.NewHandle(Name, id, epoch, pod.CreationTimestamp.Time, e.newJob(owner, &pod))
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}
