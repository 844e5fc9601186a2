// Package executor defines the interface to the environments in which jobs run. The docker,
// kubernetes and process packages implement it. The internal/dev directory contains a test
// implementation and a test suite for all implementations.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Executor runs jobs in one kind of environment.
//
// The calls for one job come in this order:
//
//	Prepare → Start → (Output, Wait, Stop in any order and number) → CopySpool → Remove
//
// An Executor is safe for concurrent use, even for the same job. A [Handle] is plain data: another
// process of the same program may resume the job from the handle's JSON, so no method relies on data
// that an earlier call left in memory. Every method returns when ctx is canceled. Canceling ctx
// never ends a job; only Stop and Remove do.
//
// Prepare fetches missing images and files and creates the job without running any part of it.
// Prepare can be slow, so it reports progress line by line. If it fails, it leaves nothing behind.
//
// Start runs the runner once, writes launch to its standard input and closes that input. A second
// Start with the same handle returns [ErrStarted] and starts nothing. An [Error] from Start means
// that no process of the job is running. After any other error, the job may be running: the caller
// must not report its end before Wait or Remove confirms it.
//
// Wait blocks until the runner has exited and returns its [Exit]. It may be called any number of
// times before Remove. It fails while the engine is unavailable, and the caller must call it again.
// For a job whose objects are missing, Wait sets Exit.Lost and returns no error. For a job that was
// never started, Wait, Stop and Output return [ErrNotStarted].
//
// Output returns a stream of the runner's standard output and error, from the beginning until the
// runner exits. The caller must close the stream.
//
// CopySpool copies the job's log spool to dst, for an agent that resumes the log streams of a dead
// runner. CopySpool creates dst. If the spool is missing, dst stays empty.
//
// Remove deletes all objects of the job, running or not. It succeeds if the objects are missing.
type Executor interface {
	// Name returns the executor's deploy_target value.
	Name() string
	// Check returns nil if a job can run now. Otherwise, it returns a one-line error that contains
	// the remedy for the operator. Check is cheap.
	Check(ctx context.Context) error
	Prepare(ctx context.Context, spec Spec, progress func(line string)) (Handle, error)
	Start(ctx context.Context, h Handle, launch []byte) error
	Wait(ctx context.Context, h Handle) (Exit, error)
	Output(ctx context.Context, h Handle) (io.ReadCloser, error)
	// Stop requests that the runner exit, and returns once the request is delivered. Stopping a
	// finished job is not an error.
	Stop(ctx context.Context, h Handle, how Stop) error
	CopySpool(ctx context.Context, h Handle, dst string) error
	Remove(ctx context.Context, h Handle) error
	// List returns the handles of all jobs of owner that still have objects, in any state.
	List(ctx context.Context, owner string) ([]Handle, error)
	// Close releases connections. It does not affect jobs.
	Close() error
}

// Launcher is an [Executor] whose engine starts the runner some time after Start returns, because it
// first schedules the job and fetches its images. So the runner, not the agent, requests leave from
// the server: see [protocol.Launch]. The server then lets only one runner of a claim start.
//
// The calls for one job come in this order:
//
//	Prepare → Start → AwaitStart → (Output, Wait, Stop in any order and number) → CopySpool → Remove
//
// Start can be repeated with the same handle and document, also by another process, until AwaitStart
// has returned. If the engine has the job already, Start completes what is missing and returns
// [ErrStarted]. Stop, CopySpool and Remove are valid at any time after Prepare.
type Launcher interface {
	Executor
	// AwaitStart returns nil once the runner's process was started; it may have exited since.
	// Meanwhile, it reports progress line by line. The engine then no longer needs the launch
	// document, so AwaitStart removes it from where Start stored it.
	//
	// AwaitStart returns an [*Error] if the engine cannot start the runner: no machine accepts the
	// job, an image is missing, the start takes too long, or the job was deleted. Then it has
	// removed the job's objects, and no process of the job ran as far as the engine knows. A machine
	// can be cut off from its engine, so the caller has the server confirm that. If the engine does
	// not have the job, AwaitStart returns [ErrNotStarted]. After any other error, the caller must
	// call it again.
	AwaitStart(ctx context.Context, h Handle, progress func(line string)) error
}

// Stop selects how [Executor.Stop] stops a job.
type Stop int

const (
	// StopInterrupt sends exactly one SIGINT to the runner. The runner passes exactly one SIGINT to
	// the step's leader and then waits.
	StopInterrupt Stop = iota
	// StopKill kills all processes of the job immediately.
	StopKill
)

// Spec describes a job to an executor. Its only secrets are the registry credentials, which the
// executor sends only to the engine's API.
type Spec struct {
	JobID  string
	Epoch  int64
	Owner  string            // the agent's stable ID, which labels all objects
	Labels map[string]string // additional labels (deployment_id, stack, …)

	Image      *workflow.Image // ignored by executors without images
	OS         string          // from the job's definition; "" means linux
	RootPath   string          // a directory that the user of a non-root image can write to; "" selects the executor's default
	Loopback   bool            // the job's server is on loopback, so the job must share the host's network or be rejected
	LoopbackOK bool            // the agent's own settings name that server, so the administrator permits the job to share the host's network
	// Workspace is the scope of the job's workspace, or "" if it has none: see [LocalScope]. A job whose
	// workspace is unavailable runs without it, and Prepare reports that.
	Workspace string

	// Pulumi, if set, returns the release of pulumi for a platform. The executor puts it into the job's
	// environment, and returns its directory there as [Handle.PulumiDir].
	Pulumi func(ctx context.Context, goos, goarch string) (Pulumi, error)

	Timeout  time.Duration // the job's own time limit; 0: none
	Patience time.Duration // time that pulumi gets after an interrupt; the runner then needs up to 30 s for its log and result
}

// Pulumi is a release of pulumi on the agent's host. The zero Pulumi is none.
type Pulumi struct {
	Version string // such as 3.276.0
	Dir     string // contains only programs: pulumi and its language hosts
}

// Handle identifies a prepared job. It is plain data. [Handle.Decode] decodes the executor's part.
type Handle struct {
	Executor string `json:"executor"` // Executor.Name of the executor that created the handle
	JobID    string `json:"jobID"`
	Epoch    int64  `json:"epoch"`
	// CreatedAt is the time at which the job's objects were created, according to the clock of
	// their host.
	CreatedAt time.Time       `json:"createdAt"`
	Data      json.RawMessage `json:"data"` // private to the executor
	// PulumiDir is the directory of the pulumi that the job runs, in the job's environment; "" if it runs
	// the one of its image or host.
	PulumiDir string `json:"pulumiDir,omitempty"`
}

// NewHandle returns a handle with the executor's own data about the job.
func NewHandle(executor, jobID string, epoch int64, created time.Time, data any) (Handle, error) {
	encoded, err := json.Marshal(data)
	if err != nil {
		return Handle{}, fmt.Errorf("encoding the handle of job %s: %w", jobID, err)
	}
	return Handle{Executor: executor, JobID: jobID, Epoch: epoch, CreatedAt: created, Data: encoded}, nil
}

// Decode decodes the executor's data in a handle. It returns an error if another executor created
// the handle.
func (h Handle) Decode(executor string, data any) error {
	if h.Executor != executor {
		return fmt.Errorf("the handle of job %s is for executor %q, not for %q", h.JobID, h.Executor, executor)
	}
	if err := json.Unmarshal(h.Data, data); err != nil {
		return fmt.Errorf("decoding the handle of job %s: %w", h.JobID, err)
	}
	return nil
}

// Explain adds to an error, if there is one, what was attempted with the job of a handle.
func Explain(err *error, attempted string, h Handle) {
	if *err != nil {
		*err = fmt.Errorf("%s job %s: %w", attempted, h.JobID, *err)
	}
}

// Exit describes how a runner exited.
type Exit struct {
	Code      int    // exit code; -1 if the runner has none
	Signal    string // name of the signal that killed the runner (SIGKILL, …), or ""; if set, Code is -1
	OOMKilled bool   // the runner failed, and the engine reported an out-of-memory kill
	Lost      bool   // the job is missing and its exit status is unknown (after an engine restart or a reboot)
	Detail    string // one line for display, such as an error from the engine
	// Reason is the cause that the engine states, if no other field expresses it, such as
	// [workflow.ReasonEvicted].
	Reason     workflow.Reason
	FinishedAt time.Time // zero if unknown
	// Result is the content of [protocol.FileResult], or nil if the file is missing or unreadable.
	// It is untrusted, because the job's own processes can write that file and kill the runner.
	// Executors do not use it, and callers verify it with [protocol.Result.SealedWith]. All other
	// fields come from the operating system or the engine.
	Result *protocol.Result
}

// Success reports whether the runner exited with code 0.
func (e Exit) Success() bool {
	return e.Code == 0 && e.Signal == "" && !e.OOMKilled && !e.Lost
}

// Ran reports whether the runner is known to have received the job: it exited by itself or was killed,
// and it does not say that nothing was started.
func (e Exit) Ran() bool {
	switch {
	case e.Lost, e.Code == protocol.ExitNoLaunch, e.Code == protocol.ExitNoLeave:
		return false
	}
	return e.Code >= 0 || e.Signal != ""
}

// signals maps the numbers of signals that terminate a process on Linux to the signals' names.
var signals = map[int]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}

// SignalOf returns the name of the signal that a container's exit code stands for, or "". A container
// whose program is killed by a signal exits with 128 plus the signal's number.
func SignalOf(code int) string { return signals[code-128] }

// ErrStarted is returned by Start for a job that has already been started.
var ErrStarted = errors.New("the job was already started")

// ErrNotStarted is returned by Wait, Stop and Output for a job that was prepared but never started.
var ErrNotStarted = errors.New("the job was not started")

// Error is a failure with a reason, which the deployment displays. Message is one line without
// secrets. It is written to the deployment's log.
type Error struct {
	Reason  workflow.Reason
	Message string
	Err     error // the cause, for errors.Is; not displayed
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
