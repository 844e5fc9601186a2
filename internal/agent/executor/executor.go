// Package executor is the contract of a place where jobs run. Its
// sub-packages implement it: docker and process. internal/dev has an
// implementation for tests and the suite that all of them pass.
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
// Calls for one job come in this order:
//
//	Prepare → Start → (Output, Wait, Stop in any order and number) → CopySpool → Remove
//
// An executor is used by several goroutines at once, for different jobs and for
// the same job (Wait beside Stop and Output). A [Handle] is plain data: it may be
// stored as JSON, and another process of the same program may go on with it, so
// no method relies on memory of an earlier call. Every method returns when ctx
// ends; ending ctx never ends a job, only Stop and Remove do.
//
// Prepare fetches what is missing and creates the job without running anything
// of it; it is the slow call and tells its progress line by line. When it fails it
// leaves nothing behind. Start runs the runner once and writes launch to its
// standard input, then closes it; a second Start of one handle is an error that
// starts nothing. An [Error] of Start says that nothing of the job runs; after any
// other the job may run, and calling Start or Wait again tells. A job of which Start
// was called must not be reported as ended before Wait or Remove has confirmed that:
// unknown is not failed. Wait blocks until the runner has ended and says how, also when
// it ended before the call, any number of times until Remove; a job whose objects
// are gone is answered with Exit.Lost, not with an error. Wait, Stop and Output of
// a job that was never started fail with [ErrNotStarted]. Output follows the
// runner's standard output and error from their beginning to their end; the
// caller closes it. CopySpool copies the log spool of the job's directory to
// dst, which it creates (and leaves empty if there is no spool), for an agent that
// goes on with a dead runner's streams. Remove deletes every
// object of the job, running or not, and succeeds if they are already gone.
type Executor interface {
	// Name is the deploy_target value: docker, process, …
	Name() string
	// Check reports, in one line a person can act on, why no job can run at the
	// moment; nil means one can. It is cheap and safe to call often.
	Check(ctx context.Context) error
	Prepare(ctx context.Context, spec Spec, progress func(line string)) (Handle, error)
	Start(ctx context.Context, h Handle, launch []byte) error
	Wait(ctx context.Context, h Handle) (Exit, error)
	Output(ctx context.Context, h Handle) (io.ReadCloser, error)
	// Stop asks the runner to end. It returns once the request was delivered, not
	// when the job ended; a job that has ended already is no error.
	Stop(ctx context.Context, h Handle, how Stop) error
	CopySpool(ctx context.Context, h Handle, dst string) error
	Remove(ctx context.Context, h Handle) error
	// List returns the handles of all jobs of this agent (by Spec.Owner) that
	// still have objects here, whatever their state.
	List(ctx context.Context, owner string) ([]Handle, error)
	// Close releases connections; jobs are not touched.
	Close() error
}

// Stop is how a job is asked to end.
type Stop int

const (
	// StopInterrupt sends exactly one SIGINT to the runner, which passes exactly
	// one to the step's leader and then waits.
	StopInterrupt Stop = iota
	// StopKill ends every process of the job at once.
	StopKill
)

// Spec is what an executor needs to know of a job. It holds no secret except
// the registry credentials, which go to the engine's API only.
type Spec struct {
	JobID  string
	Epoch  int64
	Owner  string            // the agent's stable id, a label on all objects
	Labels map[string]string // more labels: deployment_id, stack …, values as they come

	Image      *workflow.Image // ignored by executors without images
	OS         string          // of the job definition; "" = linux
	RootPath   string          // where a non-root image can write; "" = the executor's choice
	Loopback   bool            // the job talks to a server on loopback: it must share the host's network, or be refused
	LoopbackOK bool            // the agent's own settings name that server, so that sharing is the administrator's wish
}

// Handle names a prepared job.
type Handle struct {
	Executor string `json:"executor"` // Executor.Name of its maker
	JobID    string `json:"jobID"`
	Epoch    int64  `json:"epoch"`
	// CreatedAt is when the job's objects were made, by the clock of the place
	// they are in.
	CreatedAt time.Time       `json:"createdAt"`
	Data      json.RawMessage `json:"data"` // the executor's own
}

// Exit says how a runner ended.
type Exit struct {
	Code       int       // exit code; -1 if there is none
	Signal     string    // name of the signal that ended it (SIGKILL …), else ""; then Code is -1
	OOMKilled  bool      // it ended badly and the engine saw the kernel kill for memory
	Lost       bool      // it is gone and nobody knows how it ended (engine restarted, reboot)
	Detail     string    // one line for people, e.g. the engine's own error
	FinishedAt time.Time // zero if unknown
	// Result is the content of [protocol.FileResult], nil if it is missing or unreadable. It is a
	// claim: the job's own processes can write that file and kill the runner. So no
	// executor derives anything from it, and only [protocol.Result.SealedWith] makes it count.
	// All other members are the word of the operating system or the engine.
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

// Error is a failure with the reason that the deployment shows. Its message is
// for the deployment's log: one line, no secrets.
type Error struct {
	Reason  workflow.Reason
	Message string
	Err     error // cause, for errors.Is; not shown if nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
