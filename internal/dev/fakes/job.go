package fakes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent/executor"
)

// Job is a running job, as its function receives it.
type Job struct {
	Spec   executor.Spec
	Launch []byte // the runner's standard input
	// Interrupts receives one value per interrupt. Stop returns after the function has received the
	// value or the job has finished.
	Interrupts <-chan struct{}

	job *job
}

// Write appends to the job's output, as the runner does on standard output.
func (j *Job) Write(b []byte) (int, error) {
	j.job.mu.Lock()
	defer j.job.mu.Unlock()
	j.job.output = append(j.job.output, b...)
	close(j.job.grew)
	j.job.grew = make(chan struct{})
	return len(b), nil
}

// WriteFile writes a file in the job's directory. name is a relative path with slashes, such as
// "spool/1.log" or "result.json".
func (j *Job) WriteFile(name string, data []byte) {
	j.job.mu.Lock()
	defer j.job.mu.Unlock()
	j.job.files[name] = slices.Clone(data)
}

type job struct {
	public Job
	handle executor.Handle
	name   string

	ctx        context.Context // canceled when the job is killed
	kill       context.CancelFunc
	interrupts chan struct{}
	done       chan struct{}
	started    bool // guarded by place.mu

	release chan struct{} // closed when the engine of a [Launcher] may begin the function
	began   chan struct{} // closed when the function begins
	reject  chan error    // receives the reason why the engine cannot begin it

	mu     sync.Mutex
	output []byte
	grew   chan struct{} // closed and replaced whenever output grows
	files  map[string][]byte
	result executor.Exit
	ended  bool
}

func newJob(spec executor.Spec, h executor.Handle) *job {
	ctx, kill := context.WithCancel(context.Background())
	j := &job{
		handle:     h,
		name:       executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch),
		ctx:        ctx,
		kill:       kill,
		interrupts: make(chan struct{}),
		done:       make(chan struct{}),
		grew:       make(chan struct{}),
		release:    make(chan struct{}),
		began:      make(chan struct{}),
		reject:     make(chan error, 1),
		files:      map[string][]byte{},
	}
	j.public = Job{Spec: spec, Interrupts: j.interrupts, job: j}
	return j
}

// end records the job's exit. Only the first call counts.
func (j *job) end(exit executor.Exit) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return
	}
	j.ended = true
	j.result = exit
	close(j.done)
}

// remove finishes the job as if its objects had been deleted.
func (j *job) remove() {
	j.kill()
	j.end(lost())
}

// exit returns the job's exit, with the content of its result file, if any.
func (j *job) exit() executor.Exit {
	j.mu.Lock()
	defer j.mu.Unlock()
	exit := j.result
	if data, ok := j.files[protocol.FileResult]; ok && exit.Result == nil {
		var r protocol.Result
		if json.Unmarshal(data, &r) == nil {
			exit.Result = &r
		}
	}
	return exit
}

func (j *job) spool() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string][]byte{}
	for name, data := range maps.All(j.files) {
		if rest, ok := strings.CutPrefix(name, protocol.DirSpool+"/"); ok {
			out[rest] = data
		}
	}
	return out
}

type follower struct {
	ctx    context.Context
	cancel context.CancelFunc
	job    *job
	offset int
}

func newFollower(ctx context.Context, j *job) *follower {
	ctx, cancel := context.WithCancel(ctx)
	return &follower{ctx: ctx, cancel: cancel, job: j}
}

func (f *follower) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		f.job.mu.Lock()
		n := copy(b, f.job.output[f.offset:])
		ended, grew := f.job.ended, f.job.grew
		f.job.mu.Unlock()
		f.offset += n
		switch {
		case n > 0:
			return n, nil
		case ended:
			return 0, io.EOF
		}
		select {
		case <-grew:
		case <-f.job.done:
		case <-f.ctx.Done():
			return 0, fmt.Errorf("following the output of job %s: %w", f.job.handle.JobID, f.ctx.Err())
		}
	}
}

func (f *follower) Close() error {
	f.cancel()
	return nil
}
