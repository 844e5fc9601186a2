// Package fakes has the two peers of an agent for tests: an executor whose jobs are Go functions in
// this process, and an in-memory server. Both can fail at every call on demand, and record their
// calls.
package fakes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"workflowagent/internal/agent/executor"
)

// Name is the deploy_target value of the fake.
const Name = "fake"

// Executor is a fake [executor.Executor]. Several can share one place of jobs, as several agent
// processes do on one host: see [Executor.Reopen].
type Executor struct {
	place *place
}

// New returns an executor in its own place. Without [Executor.OnRun] its jobs end at once with exit
// code 0.
func New() *Executor {
	return &Executor{place: &place{
		jobs:    map[string]*job{},
		records: map[string]*Record{},
	}}
}

// Reopen returns another executor for the same place, as after an agent's restart: it shares only
// the jobs.
func (e *Executor) Reopen() *Executor { return &Executor{place: e.place} }

type place struct {
	mu      sync.Mutex
	jobs    map[string]*job // by object name
	order   []string        // of jobs, oldest first
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
	data, err := json.Marshal(handleData{Name: name})
	if err != nil {
		return executor.Handle{}, fmt.Errorf("writing the job's handle: %w", err)
	}
	h := executor.Handle{Executor: Name, JobID: spec.JobID, Epoch: spec.Epoch, CreatedAt: time.Now(), Data: data}

	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.jobs[name]; ok {
		return executor.Handle{}, fmt.Errorf("job %s (epoch %d) was prepared before", spec.JobID, spec.Epoch)
	}
	p.jobs[name] = newJob(spec, h)
	p.order = append(p.order, name)
	p.record(spec.JobID).Spec = spec
	return h, nil
}

// Start runs the job's function on a goroutine that [Executor.Shutdown] waits for.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	p := e.place
	j, err := p.find(h)
	if err != nil {
		return err
	}
	if j == nil {
		return fmt.Errorf("starting job %s: it is gone", h.JobID)
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

// run starts the function of a job, once.
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
	p.running.Go(func() {
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

// Wait returns the result of the job's function.
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
	return executor.Exit{Code: -1, Lost: true, Detail: "the job is gone"}
}

// Output follows the writes of the job's function to [Job.Write].
func (e *Executor) Output(ctx context.Context, h executor.Handle) (io.ReadCloser, error) {
	j, err := e.place.started(h)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, fmt.Errorf("following the output of job %s: it is gone", h.JobID)
	}
	return newFollower(ctx, j), nil
}

// Stop sends an interrupt to the job's function, or ends its context.
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

// CopySpool writes the files of [Job.WriteFile] below the spool to dst.
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
		return fmt.Errorf("copying the log spool of job %s: it is gone", h.JobID)
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

// Remove deletes the job and ends its context if it still runs.
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
	p.mu.Lock()
	defer p.mu.Unlock()
	if j == nil {
		return nil
	}
	j.remove()
	delete(p.jobs, j.name)
	p.order = slices.DeleteFunc(p.order, func(name string) bool { return name == j.name })
	return nil
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

// Close does nothing: jobs keep running. See [Executor.Shutdown] for the end of a test.
func (e *Executor) Close() error { return nil }

// Shutdown kills every job of the place and waits until their functions have returned.
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
	if h.Executor != Name {
		return nil, fmt.Errorf("the handle of job %s belongs to executor %q, not to %q", h.JobID, h.Executor, Name)
	}
	if err := json.Unmarshal(h.Data, &d); err != nil {
		return nil, fmt.Errorf("reading the handle of job %s: %w", h.JobID, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[d.Name], nil
}

// started is find for calls that are valid only after Start.
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
