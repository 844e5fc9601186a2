package fakes

import (
	"context"
	"slices"

	"workflowagent/internal/agent/executor"
)

// Record contains all calls for one job, in all its epochs, to the executors that share the job.
type Record struct {
	Spec        executor.Spec // spec of the last successful Prepare
	Prepares    int
	Starts      int      // calls, including failed ones
	Launches    [][]byte // launch documents of the starts that ran the job
	Interrupts  int      // calls of Stop, whether or not the job still ran
	Kills       int
	SpoolCopies int
	Removes     int
}

// record returns the record of a job. The caller holds p.mu.
func (p *place) record(jobID string) *Record {
	r, ok := p.records[jobID]
	if !ok {
		r = &Record{}
		p.records[jobID] = r
	}
	return r
}

// Record returns a copy of a job's record.
func (e *Executor) Record(jobID string) Record {
	e.place.mu.Lock()
	defer e.place.mu.Unlock()
	r := *e.place.record(jobID)
	r.Launches = slices.Clone(r.Launches)
	return r
}

func (e *Executor) hook(set func(h *hooks)) {
	e.place.mu.Lock()
	defer e.place.mu.Unlock()
	set(&e.place.hooks)
}

// OnRun sets the function of jobs that start after the call. ctx is canceled when the job is killed
// or removed; the function's result is then ignored.
func (e *Executor) OnRun(run func(ctx context.Context, j *Job) executor.Exit) {
	e.hook(func(h *hooks) { h.run = run })
}

// OnPrepare sets a hook that Prepare calls first. Prepare returns the hook's error.
func (e *Executor) OnPrepare(prepare func(ctx context.Context, spec executor.Spec, progress func(line string)) error) {
	e.hook(func(h *hooks) { h.prepare = prepare })
}

// OnStart sets a hook that Start calls first. If the hook fails, Start returns its error and does
// not run the job.
func (e *Executor) OnStart(start func(ctx context.Context, h executor.Handle) error) {
	e.hook(func(h *hooks) { h.start = start })
}

// OnStarted sets a hook that Start calls last, after it has started the job. Start returns the
// hook's error, as after a broken connection to an engine.
func (e *Executor) OnStarted(started func(h executor.Handle) error) {
	e.hook(func(h *hooks) { h.started = started })
}

// OnRemove sets a hook that Remove calls first. If the hook fails, Remove returns its error and
// keeps the job.
func (e *Executor) OnRemove(remove func(h executor.Handle) error) {
	e.hook(func(h *hooks) { h.remove = remove })
}

// SetCheck sets the result of Check; nil means that jobs can run.
func (e *Executor) SetCheck(err error) {
	e.hook(func(h *hooks) { h.check = err })
}

// Exit returns a function for [Executor.OnRun] that prints output and returns exit. A job killed
// for its memory use returns executor.Exit{Code: 137, OOMKilled: true}.
func Exit(output string, exit executor.Exit) func(context.Context, *Job) executor.Exit {
	return func(_ context.Context, j *Job) executor.Exit {
		if _, err := j.Write([]byte(output)); err != nil {
			return executor.Exit{Code: 1, Detail: err.Error()}
		}
		return exit
	}
}

// UntilInterrupt returns a function for [Executor.OnRun] that runs until the first interrupt and
// then returns exit.
func UntilInterrupt(exit executor.Exit) func(context.Context, *Job) executor.Exit {
	return func(ctx context.Context, j *Job) executor.Exit {
		select {
		case <-j.Interrupts:
		case <-ctx.Done():
		}
		return exit
	}
}
