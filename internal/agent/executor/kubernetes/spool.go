package kubernetes

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/kubernetes/podspec"
	"workflowagent/internal/delivery"
	"workflowagent/internal/delivery/spooldump"
)

// spoolTime bounds the wait for the sidecar, which prints the spool once the runner has exited.
const spoolTime = time.Minute

var (
	errDiscarded = errors.New("the cluster removed the output together with the pod")
	errRunning   = errors.New("the spool of a running job is not available")
	// errTailSpace is not [executor.ErrNoSpace], because a later copy cannot succeed either.
	errTailSpace = errors.New("the disk had no space for the log spool, which the cluster removes together with the pod")
)

// CopySpool copies the part of the log that the runner could not send. The pod's sidecar prints it
// after the runner has exited. If the pod was deleted meanwhile, CopySpool uses the copy that the
// executor made during the deletion.
func (e *Executor) CopySpool(ctx context.Context, h executor.Handle, dst string) (err error) {
	j, w, err := e.open(h)
	if err != nil {
		return err
	}
	defer executor.Explain(&err, "copying the log spool of", h)
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, spoolTime)
	defer cancel()
	v, err := w.look(ctx, j.Name, false)
	if err != nil || v.pod == nil {
		return err
	}
	if t := e.tail(v.pod); t != nil {
		return t.read(ctx, func(r io.Reader) error { return spooldump.Read(r, to.Add) })
	}
	err = w.until(ctx, j.Name, awaitTick, func(next view) (done bool, err error) {
		v = next
		switch {
		case v.gone:
			return true, nil
		case !exited(v.pod) && v.pod.DeletionTimestamp == nil && !final(v.pod):
			return false, errRunning
		}
		return spoolStatus(v.pod) == nil || spoolStatus(v.pod).State.Running == nil, nil
	})
	switch {
	case err != nil:
		return err
	case v.gone:
		if t := e.tail(v.pod); t != nil {
			return t.read(ctx, func(r io.Reader) error { return spooldump.Read(r, to.Add) })
		}
		return nil
	case spoolStatus(v.pod) == nil || spoolStatus(v.pod).State.Terminated == nil:
		return nil // the sidecar never started
	}
	stream, err := e.client.logs(ctx, v.pod, corev1.PodLogOptions{Container: podspec.SpoolContainer})
	if err != nil {
		return err
	}
	defer stream.Close()
	return spooldump.Read(stream, to.Add)
}

// maxTail bounds the output of a sidecar: a spool in frames of text.
const maxTail = 2 * delivery.MaxCopy

// tail is a copy of a sidecar's output, which would disappear together with the pod.
type tail struct {
	cancel context.CancelFunc
	done   chan struct{}
	file   *os.File // has no name; nil if the copy failed
	err    error
}

func (e *Executor) tail(pod *corev1.Pod) *tail {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return nil
	}
	return e.session.tails[pod.UID]
}

// keepTail starts to copy the output of the sidecar of a pod that is being deleted.
func (e *Executor) keepTail(s *session, w *watcher, pod *corev1.Pod) {
	if status := spoolStatus(pod); status == nil || status.State.Waiting != nil || !e.wasStopped(pod) && !w.awaited(pod.Name) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.tails[pod.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	t := &tail{cancel: cancel, done: make(chan struct{})}
	s.tails[pod.UID] = t
	s.work.Go(func() {
		defer close(t.done)
		if t.err = t.copy(ctx, e.client, pod); t.err != nil && ctx.Err() == nil {
			e.opts.Log.WithError(t.err).WithField("pod", pod.Name).Warn("copying the log spool of a pod that is being deleted failed")
		}
	})
}

func (t *tail) copy(ctx context.Context, c *client, pod *corev1.Pod) error {
	stream, err := c.logs(ctx, pod, corev1.PodLogOptions{Container: podspec.SpoolContainer, Follow: true})
	if err != nil {
		return err
	}
	defer stream.Close()
	file, err := os.CreateTemp("", "workflow-spool-")
	if err != nil {
		return err
	}
	t.file = file
	if err := os.Remove(file.Name()); err != nil {
		return err
	}
	return copyTail(executor.NewSpoolWriter(file), stream)
}

func copyTail(to io.Writer, stream io.Reader) error {
	_, err := io.Copy(to, io.LimitReader(stream, maxTail))
	if errors.Is(err, executor.ErrNoSpace) {
		return errTailSpace
	}
	return err
}

// read waits for the end of the copy and calls use with its content.
func (t *tail) read(ctx context.Context, use func(io.Reader) error) error {
	select {
	case <-t.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if t.file == nil {
		return t.err
	}
	return errors.Join(use(io.NewSectionReader(t.file, 0, maxTail)), t.err)
}

// discard ends the copy and releases it.
func (t *tail) discard() {
	t.cancel()
	<-t.done
	if t.file != nil {
		_ = t.file.Close()
	}
}
