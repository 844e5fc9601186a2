package kubernetes

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
)

const (
	// killGrace is the grace period in seconds of a pod that is killed. With 0, the cluster would
	// forget the pod before its processes have ended.
	killGrace = 1
	// waitTick is how often Wait judges a pod without a change.
	waitTick = 30 * time.Second
)

// Wait waits until the runner has exited. A pod that is missing, and that this process has not seen,
// may never have been created: then Wait returns [executor.ErrNotStarted]. Wait judges the main container, because other containers of
// the pod can run longer.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	j, w, err := e.open(h)
	if err != nil {
		return executor.Exit{}, err
	}
	var exit executor.Exit
	var deleting time.Time
	err = w.until(ctx, j.Name, waitTick, func(v view) (done bool, err error) {
		if v.pod == nil && j.Cluster != e.client.host {
			return false, fmt.Errorf("the cluster at %s does not have the pod %s: it was created in the cluster at %s, which the agent no longer uses", e.client.host, j.Name, j.Cluster)
		}
		if v.pod == nil && !w.removed(j.Name) {
			return false, executor.ErrNotStarted
		}
		exit, done = ended(v, v.pod != nil && e.wasStopped(v.pod))
		if done || v.pod.DeletionTimestamp == nil {
			return done, nil
		}
		now := time.Now()
		if deleting.IsZero() {
			deleting = now
		}
		if overdue(v.pod, deleting, now) {
			exit, _ = ended(view{v.pod, true}, e.wasStopped(v.pod))
			exit.Detail = fmt.Sprintf("node %s does not confirm the deletion of the job's pod", v.pod.Spec.NodeName)
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		return executor.Exit{}, fmt.Errorf("watching job %s: %w", h.JobID, err)
	}
	return exit, nil
}

// Output follows the cluster's copy of the runner's output. The copy can be incomplete: the cluster
// rotates it, and removes it together with the pod.
func (e *Executor) Output(ctx context.Context, h executor.Handle) (io.ReadCloser, error) {
	j, w, err := e.open(h)
	if err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	err = w.until(ctx, j.Name, awaitTick, func(v view) (done bool, err error) {
		switch {
		case v.pod == nil:
			return false, fmt.Errorf("the job's pod is missing: %w", executor.ErrNotStarted)
		case v.gone:
			return false, errDiscarded
		}
		pod = v.pod
		return final(pod) || mainStarted(pod), nil
	})
	if err != nil {
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := e.client.logs(ctx, pod, corev1.PodLogOptions{Container: podspec.MainContainer, Follow: true})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	return &follower{stream, cancel}, nil
}

// follower is a stream whose Close unblocks a concurrent Read.
type follower struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (f *follower) Close() error {
	f.cancel()
	return f.ReadCloser.Close()
}

// tailOf returns the last lines of a container's output as one line.
func (e *Executor) tailOf(ctx context.Context, pod *corev1.Pod, container string) (string, error) {
	stream, err := e.client.logs(ctx, pod, corev1.PodLogOptions{Container: container, TailLines: new(int64(5))})
	if err != nil {
		return "", err
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, noticeBytes))
	return strings.TrimSpace(oneLine(string(text))), err
}

// Stop deletes the pod. The cluster then sends SIGTERM to the runner, which passes an interrupt to
// its step, and SIGKILL after the grace period. A finished job's pod remains, because its output
// would be lost.
func (e *Executor) Stop(ctx context.Context, h executor.Handle, how executor.Stop) error {
	j, w, err := e.open(h)
	if err != nil {
		return err
	}
	v, err := w.look(ctx, j.Name, false)
	if err != nil {
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	}
	switch {
	case v.pod == nil && !w.removed(j.Name):
		return fmt.Errorf("stopping job %s: %w", h.JobID, executor.ErrNotStarted)
	case v.pod == nil || v.gone || exited(v.pod):
		return nil
	}
	grace := int64(-1)
	if how == executor.StopKill {
		grace = killGrace
	}
	if left := v.pod.DeletionGracePeriodSeconds; v.pod.DeletionTimestamp != nil && (grace < 0 || left != nil && *left <= grace) {
		return nil // an earlier request is at least as strong
	}
	e.markStopped(v.pod)
	if err := e.client.deletePod(ctx, v.pod, grace); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	}
	return nil
}

// exited reports whether the runner has exited.
func exited(pod *corev1.Pod) bool {
	main := mainStatus(pod)
	return main != nil && main.State.Terminated != nil
}

func (e *Executor) markStopped(pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped[pod.UID] = true
}

func (e *Executor) wasStopped(pod *corev1.Pod) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stopped[pod.UID]
}
