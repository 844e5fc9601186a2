package kubernetes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

const (
	awaitTick = time.Second
	// A pod that has started within eventDelay needs no explanation. Later, the events are read after
	// pauses that double from eventPause to maxEventPause: for each read, the cluster searches all
	// events of the namespace, and a busy cluster starts many pods slowly.
	eventDelay    = 3 * time.Second
	eventPause    = 5 * time.Second
	maxEventPause = time.Minute
	// noticeTime and noticeBytes bound the output of a failed container that a message quotes.
	noticeTime  = 5 * time.Second
	noticeBytes = 2048
)

// AwaitStart waits until the runner was started. It ends a pod that cannot start.
func (e *Executor) AwaitStart(ctx context.Context, h executor.Handle, progress func(line string)) error {
	j, w, err := e.open(h)
	if err != nil {
		return err
	}
	a := &awaiting{executor: e, told: map[string]bool{}, progress: progress, deadline: h.CreatedAt.Add(e.opts.PodStartTimeout)}
	var failed *executor.Error
	err = w.until(ctx, j.Name, awaitTick, func(v view) (done bool, err error) {
		if v.pod == nil {
			return true, executor.ErrNotStarted
		}
		a.pod = v.pod
		done, failed = a.judge(ctx, v, time.Now())
		return done, nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("awaiting the start of job %s: %w", h.JobID, err)
	case failed == nil:
		e.spend(ctx, a.pod)
		return nil
	}
	return e.giveUp(ctx, h, w, a, failed)
}

// giveUp removes a pod that cannot start. If it started meanwhile, the job continues, although its
// pod is being deleted.
func (e *Executor) giveUp(ctx context.Context, h executor.Handle, w *watcher, a *awaiting, failed *executor.Error) error {
	started := false
	deleted := false
	err := w.until(ctx, a.pod.Name, awaitTick, func(v view) (done bool, err error) {
		started = v.pod != nil && mainStarted(v.pod)
		if started || v.gone {
			return true, nil
		}
		if !deleted {
			e.markStopped(v.pod)
			if err := e.client.deletePod(ctx, v.pod, killGrace); err != nil {
				return false, err
			}
			deleted = true
		}
		return false, nil
	})
	if err == nil && !started {
		err = e.Remove(ctx, h)
	}
	switch {
	case err != nil:
		return fmt.Errorf("removing job %s, which could not start (%s): %w", h.JobID, failed.Message, err)
	case started:
		return nil
	}
	return failed
}

// awaiting is the state of one AwaitStart.
type awaiting struct {
	executor *Executor
	progress func(line string)
	deadline time.Time
	pod      *corev1.Pod

	told    map[string]bool // lines that were reported
	problem problem         // the current problem
	since   time.Time       // when the problem's kind first occurred
	asked   time.Time       // when the events were last read
	pause   time.Duration   // until they are read again
	began   time.Time
	warning string // the last warning among the events
}

// judge reports whether the wait is over, and the failure if the pod cannot start.
func (a *awaiting) judge(ctx context.Context, v view, now time.Time) (done bool, failed *executor.Error) {
	if a.began.IsZero() {
		a.began = now
	}
	s := startOf(v)
	switch {
	case s.started:
		return true, nil
	case s.failure != nil:
		if s.container != "" {
			s.failure.Message += a.lastWords(ctx, v.pod, s.container)
		}
		return true, s.failure
	}
	if v.pod.Spec.NodeName != "" {
		a.tell("The pod was assigned to node " + v.pod.Spec.NodeName)
	}
	if s.problem.kind != a.problem.kind {
		a.since = now
	}
	a.problem = s.problem
	if s.problem.text != "" {
		a.tell(s.problem.text)
	}
	late := now.After(a.deadline)
	if now.Sub(a.began) > eventDelay && (late || now.Sub(a.asked) > a.pause) {
		a.asked, a.pause = now, min(max(2*a.pause, eventPause), maxEventPause)
		a.readEvents(ctx)
	}
	switch {
	case late:
		cause := a.problem.text
		if cause == "" {
			cause = a.warning
		}
		if cause == "" {
			cause = "its containers were not ready"
		}
		reason := a.problem.reason
		if reason == workflow.ReasonNone {
			reason = workflow.ReasonLaunch
		}
		return true, failure(reason, fmt.Sprintf("The pod did not start within %s; the job did not run: %s", a.executor.opts.PodStartTimeout, cause), nil)
	case a.problem.fatal && now.Sub(a.since) >= min(a.problem.tolerance, a.executor.opts.tolerance):
		return true, failure(a.problem.reason, a.problem.text, nil)
	}
	return false, nil
}

// tell reports a line once.
func (a *awaiting) tell(line string) {
	if !a.told[line] && len(a.told) < maxLines {
		a.told[line] = true
		a.progress(line)
	}
}

// maxLines bounds the lines of one wait, because the scheduler rephrases its reasons again and
// again.
const maxLines = 100

// readEvents reports what the cluster does with the pod. The events are not essential, so errors are
// only logged.
func (a *awaiting) readEvents(ctx context.Context) {
	events, err := a.executor.client.events(ctx, a.pod)
	if err != nil {
		a.executor.opts.Log.WithError(err).WithField("pod", a.pod.Name).Debug("reading the events of a pod failed")
		return
	}
	for _, event := range events {
		line := oneLine(event.Reason + ": " + event.Message)
		switch {
		case event.Type == corev1.EventTypeWarning:
			a.warning = line
			a.tell(line)
		case event.Reason == "Pulling" || event.Reason == "Pulled" || event.Reason == "Preempted" || event.Reason == "TriggeredScaleUp":
			a.tell(line)
		}
	}
}

// lastWords returns the end of a container's output, as the continuation of a message.
func (a *awaiting) lastWords(ctx context.Context, pod *corev1.Pod, container string) string {
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	text, err := a.executor.tailOf(ctx, pod, container)
	if err != nil || text == "" {
		return ""
	}
	return ": " + text
}
