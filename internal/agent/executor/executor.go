// Package executor defines the contract of a place where jobs run. The docker and process
// sub-packages implement it; internal/dev has a test implementation and the suite that all of
// them pass.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// Executor runs jobs in one kind of place.
//
// The calls for one job come in this order:
//
//	Prepare → Start → (Output, Wait, Stop in any order and number) → CopySpool → Remove
//
// An Executor is safe for concurrent use, also for one job. A [Handle] is plain data: another
// process of the same program may resume the job from its JSON, so no method relies on the
// memory of an earlier call. Every method returns when ctx ends, which never ends a job: only
// Stop and Remove do.
//
// Prepare fetches what is missing and creates the job without running any of it. It is the slow
// call and reports progress line by line; when it fails it leaves nothing behind. Start runs
// the runner once, writes launch to its standard input and closes it; a second Start of one
// handle returns [ErrStarted] and starts nothing. An [Error] from Start means that nothing of
// the job runs. After any other error the job may run: the caller must not report it as ended
// before Wait or Remove confirms that. Wait blocks until the runner has ended and returns its
// [Exit], as often as it is called until Remove. For a job whose objects are gone it sets
// Exit.Lost and returns no error. Wait, Stop and Output of a job that was never started return
// [ErrNotStarted]. Output follows the runner's standard output and error from beginning to end;
// the caller closes it. CopySpool copies the job's log spool to dst, for an agent that resumes
// the streams of a dead runner. It creates dst and leaves it empty if there is no spool. Remove
// deletes every object of the job, running or not, and succeeds if they are already gone.
type Executor interface {
	// Name is the deploy_target value.
	Name() string
	// Check returns nil if a job can run now, or an error of one line that the operator can act
	// on. It is cheap.
	Check(ctx context.Context) error
	Prepare(ctx context.Context, spec Spec, progress func(line string)) (Handle, error)
	Start(ctx context.Context, h Handle, launch []byte) error
	Wait(ctx context.Context, h Handle) (Exit, error)
	Output(ctx context.Context, h Handle) (io.ReadCloser, error)
	// Stop asks the runner to end and returns once the request is delivered. Stopping a job
	// that has ended is no error.
	Stop(ctx context.Context, h Handle, how Stop) error
	CopySpool(ctx context.Context, h Handle, dst string) error
	Remove(ctx context.Context, h Handle) error
	// List returns the handles of all jobs of owner that still have objects, in any state.
	List(ctx context.Context, owner string) ([]Handle, error)
	// Close releases connections and leaves jobs alone.
	Close() error
}

// Stop selects how Executor.Stop ends a job.
type Stop int

const (
	// StopInterrupt sends exactly one SIGINT to the runner, which passes exactly one to the
	// step's leader and then waits.
	StopInterrupt Stop = iota
	// StopKill ends every process of the job at once.
	StopKill
)

// Spec describes a job to an executor. Its only secrets are the registry credentials, which
// reach nothing but the engine's API.
type Spec struct {
	JobID  string
	Epoch  int64
	Owner  string            // the agent's stable id, a label on all objects
	Labels map[string]string // more labels (deployment_id, stack, …)

	Image      *workflow.Image // ignored by executors without images
	OS         string          // the job definition's; "" = linux
	RootPath   string          // where a non-root image can write; "" = the executor's choice
	Loopback   bool            // the job's server is on loopback: the job must share the host's network, or be refused
	LoopbackOK bool            // the agent's own settings name that server, so the administrator wants the sharing
}

// Handle names a prepared job.
type Handle struct {
	Executor string `json:"executor"` // Executor.Name of the executor that made it
	JobID    string `json:"jobID"`
	Epoch    int64  `json:"epoch"`
	// CreatedAt is when the job's objects were created, by the clock of their host.
	CreatedAt time.Time       `json:"createdAt"`
	Data      json.RawMessage `json:"data"` // private to the executor
}

// Exit describes how a runner ended.
type Exit struct {
	Code       int       // exit code; -1 if none
	Signal     string    // name of the ending signal (SIGKILL, …), else ""; if set, Code is -1
	OOMKilled  bool      // it failed and the engine reported the kernel's out-of-memory kill
	Lost       bool      // it is gone and its exit status is unknown (engine restart, reboot)
	Detail     string    // one line for display, such as the engine's own error
	FinishedAt time.Time // zero if unknown
	// Result is the content of [protocol.FileResult], nil if missing or unreadable. It is only
	// a claim, because the job's own processes can write that file and kill the runner:
	// executors derive nothing from it, and only [protocol.Result.SealedWith] makes it count.
	// The other members come from the operating system or the engine.
	Result *protocol.Result
}

// Success reports whether the runner ended with exit code 0.
func (e Exit) Success() bool {
	return e.Code == 0 && e.Signal == "" && !e.OOMKilled && !e.Lost
}

// ErrStarted is returned by Start for a job that was started before.
var ErrStarted = errors.New("the job was already started")

// ErrNotStarted is returned by Wait, Stop and Output for a job that was prepared
// but never started.
var ErrNotStarted = errors.New("the job was not started")

// Error is a failure with the reason that the deployment shows. Its message appears in the
// deployment's log: one line, no secrets.
type Error struct {
	Reason  workflow.Reason
	Message string
	Err     error // cause, for errors.Is; not shown
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
