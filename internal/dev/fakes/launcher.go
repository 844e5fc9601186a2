package fakes

import (
	"context"

	"workflowagent/internal/agent/executor"
)

// Launcher is an [Executor] whose engine begins a job's function some time after Start.
type Launcher struct{ *Executor }

// Reopen returns another launcher for the same jobs, as after a restart of the agent.
func (l Launcher) Reopen() Launcher { return Launcher{l.Executor.Reopen()} }

// AwaitStart waits until the job's function has begun.
func (l Launcher) AwaitStart(ctx context.Context, h executor.Handle, progress func(line string)) error {
	j, err := l.place.started(h)
	if err != nil {
		return err
	}
	if j == nil {
		return executor.ErrNotStarted
	}
	progress("The engine fetches the image.")
	select {
	case <-j.began:
		return nil
	case err := <-j.reject:
		l.Delete(h.JobID)
		return err
	case <-j.done:
		select {
		case <-j.began:
			return nil // the function has ended since
		default:
			return executor.ErrNotStarted
		}
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Hold makes the engine begin no function before [Launcher.Release].
func (l Launcher) Hold() {
	l.place.mu.Lock()
	defer l.place.mu.Unlock()
	l.place.hooks.hold = true
}

// Release makes the engine begin the function of a job that was started.
func (l Launcher) Release(jobID string) {
	for _, j := range l.jobs(jobID) {
		close(j.release)
	}
}

// Reject makes AwaitStart remove the job and fail with err.
func (l Launcher) Reject(jobID string, err *executor.Error) {
	for _, j := range l.jobs(jobID) {
		j.reject <- err
	}
}

// Delete removes the objects of a job without its agent's knowledge.
func (l Launcher) Delete(jobID string) {
	for _, j := range l.jobs(jobID) {
		l.place.forget(j)
	}
}

// jobs returns the jobs with an ID, in all epochs.
func (l Launcher) jobs(jobID string) []*job {
	l.place.mu.Lock()
	defer l.place.mu.Unlock()
	var out []*job
	for _, j := range l.place.jobs {
		if j.handle.JobID == jobID {
			out = append(out, j)
		}
	}
	return out
}

var _ executor.Launcher = Launcher{}
