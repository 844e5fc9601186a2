// Package fakes provides an agent's two peers for tests: an executor whose jobs are Go functions in
// this process, and an in-memory server. A test can make each of their calls fail. Both record
// their calls.
package fakes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/agent/executor"
)

// Name is the deploy_target value of the fake executor.
const Name = "fake"

// Executor is a fake [executor.Executor]. Several executors can share jobs, like the executors of
// successive agent processes on one host: see [Executor.Reopen].
type Executor struct {
	place *place
}

// New returns an executor without jobs. Unless [Executor.OnRun] is called, its jobs exit at once
// with code 0.
func New() *Executor {
	return &Executor{place: &place{
		jobs:    map[string]*job{},
		records: map[string]*Record{},
	}}
}

// Reopen returns another executor for the same jobs, as after a restart of the agent.
func (e *Executor) Reopen() *Executor { return &Executor{place: e.place} }

type place struct {
	mu      sync.Mutex
	jobs    map[string]*job // by object name
	order   []string        // names of jobs, oldest first
	records map[string]*Record
	hooks   hooks
	running sync.WaitGroup
}

type hooks struct {
	check   error
	prepare func(ctx context.Context, spec executor.Spec, progress func(string)) error
	start   func(ctx context.Context, h executor.Handle) error
	started func(h executor.Handle) error
	remove  func(h executor.Handle) error
	run     func(ctx context.Context, j *Job) executor.Exit
	hold    bool // the engine of a [Launcher] begins no function by itself
}

type handleData struct {
	Name string `json:"name"`
}

// Name returns [Name].
func (e *Executor) Name() string { return Name }

// Check returns the error of [Executor.SetCheck].
func (e *Executor) Check(ctx context.Context) error {
	e.place.mu.Lock()
	defer e.place.mu.Unlock()
	return errors.Join(ctx.Err(), e.place.hooks.check)
}

// Prepare registers the job if the hook of [Executor.OnPrepare] returns nil.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	p := e.place
	p.mu.Lock()
	p.record(spec.JobID).Prepares++
	hook := p.hooks.prepare
	p.mu.Unlock()

	if hook != nil {
		if err := hook(ctx, spec, progress); err != nil {
			return executor.Handle{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return executor.Handle{}, err
	}
	name := executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch)
	h, err := executor.NewHandle(Name, spec.JobID, spec.Epoch, time.Now(), handleData{Name: name})
	if err != nil {
		return h, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.jobs[name]; ok {
		return executor.Handle{}, fmt.Errorf("job %s (epoch %d) was already prepared", spec.JobID, spec.Epoch)
	}
	p.jobs[name] = newJob(spec, h)
	p.order = append(p.order, name)
	p.record(spec.JobID).Spec = spec
	return h, nil
}

// Start runs the job's function in a goroutine, for which [Executor.Shutdown] waits.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	p := e.place
	j, err := p.find(h)
	if err != nil {
		return err
	}
	if j == nil {
		return fmt.Errorf("starting job %s: the job no longer exists", h.JobID)
	}
	p.mu.Lock()
	p.record(h.JobID).Starts++
	hook, started, run := p.hooks.start, p.hooks.started, p.hooks.run
	p.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, h); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if run == nil {
		run = func(context.Context, *Job) executor.Exit { return executor.Exit{} }
	}
	if !p.run(j, launch, run) {
		return executor.ErrStarted
	}
	if started != nil {
		return started(h)
	}
	return nil
}

// run starts a job's function, once.
func (p *place) run(j *job, launch []byte, run func(context.Context, *Job) executor.Exit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.started {
		return false
	}
	j.started = true
	h := j.handle
	p.record(h.JobID).Launches = append(p.record(h.JobID).Launches, slices.Clone(launch))
	j.public.Launch = slices.Clone(launch)
	if !p.hooks.hold {
		close(j.release)
	}
	p.running.Go(func() {
		select {
		case <-j.release:
		case <-j.ctx.Done():
			j.end(lost())
			return
		}
		close(j.began)
		exit := run(j.ctx, &j.public)
		if j.ctx.Err() != nil {
			exit = executor.Exit{Code: -1, Signal: "SIGKILL"}
		}
		if exit.FinishedAt.IsZero() {
			exit.FinishedAt = time.Now()
		}
		j.end(exit)
	})
	return true
}

// Wait waits for the job's function and returns its result.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	j, err := e.place.started(h)
	if err != nil {
		return executor.Exit{}, err
	}
	if j == nil {
		return lost(), nil
	}
	select {
	case <-j.done:
		return j.exit(), nil
	case <-ctx.Done():
		return executor.Exit{}, ctx.Err()
	}
}

func lost() executor.Exit {
	return executor.Exit{Code: -1, Lost: true, Detail: "the job no longer exists"}
}

// Output returns a reader that follows the output that the job's function writes with [Job.Write].
func (e *Executor) Output(ctx context.Context, h executor.Handle) (io.ReadCloser, error) {
	j, err := e.place.started(h)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, fmt.Errorf("following the output of job %s: the job no longer exists", h.JobID)
	}
	return newFollower(ctx, j), nil
}

// Stop sends an interrupt to the job's function or, for executor.StopKill, cancels its context.
func (e *Executor) Stop(ctx context.Context, h executor.Handle, how executor.Stop) error {
	p := e.place
	p.mu.Lock()
	if how == executor.StopKill {
		p.record(h.JobID).Kills++
	} else {
		p.record(h.JobID).Interrupts++
	}
	p.mu.Unlock()
	j, err := p.started(h)
	if err != nil || j == nil {
		return err
	}
	if how == executor.StopKill {
		j.kill()
		return ctx.Err()
	}
	select {
	case j.interrupts <- struct{}{}:
		return nil
	case <-j.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CopySpool copies the spool files that the job wrote with [Job.WriteFile] to dst.
func (e *Executor) CopySpool(_ context.Context, h executor.Handle, dst string) error {
	p := e.place
	p.mu.Lock()
	p.record(h.JobID).SpoolCopies++
	p.mu.Unlock()
	j, err := p.find(h)
	if err != nil {
		return err
	}
	if j == nil {
		return fmt.Errorf("copying the log spool of job %s: the job no longer exists", h.JobID)
	}
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return fmt.Errorf("copying the log spool of job %s: %w", h.JobID, err)
	}
	for name, data := range j.spool() {
		err = errors.Join(err, to.Add(name, int64(len(data)), bytes.NewReader(data)))
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copying the log spool of job %s: %w", h.JobID, err)
	}
	return nil
}

// Remove deletes the job and cancels its context if it is still running.
func (e *Executor) Remove(_ context.Context, h executor.Handle) error {
	p := e.place
	j, err := p.find(h)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.record(h.JobID).Removes++
	hook := p.hooks.remove
	p.mu.Unlock()
	if hook != nil {
		if err := hook(h); err != nil {
			return err
		}
	}
	if j != nil {
		p.forget(j)
	}
	return nil
}

// forget kills a job and deletes its objects.
func (p *place) forget(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.remove()
	delete(p.jobs, j.name)
	p.order = slices.DeleteFunc(p.order, func(name string) bool { return name == j.name })
}

// List returns the jobs of owner, oldest first.
func (e *Executor) List(_ context.Context, owner string) ([]executor.Handle, error) {
	p := e.place
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []executor.Handle
	for _, name := range p.order {
		if j := p.jobs[name]; j.public.Spec.Owner == owner {
			out = append(out, j.handle)
		}
	}
	return out, nil
}

// Close does nothing: jobs keep running. [Executor.Shutdown] stops them at the end of a test.
func (e *Executor) Close() error { return nil }

// Shutdown kills all jobs and waits until their functions have returned.
func (e *Executor) Shutdown() {
	p := e.place
	p.mu.Lock()
	for _, j := range p.jobs {
		j.kill()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *place) find(h executor.Handle) (*job, error) {
	var d handleData
	if err := h.Decode(Name, &d); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[d.Name], nil
}

// started is like find, for calls that are valid only after Start.
func (p *place) started(h executor.Handle) (*job, error) {
	j, err := p.find(h)
	if err != nil || j == nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !j.started {
		return nil, executor.ErrNotStarted
	}
	return j, nil
}

var _ executor.Executor = (*Executor)(nil)
