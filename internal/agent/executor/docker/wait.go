package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/protocol"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
)

const (
	// maxResult bounds a result file, which the job writes, in bytes.
	maxResult = 64 << 10
)

var engineRetry = retry.Policy{First: 100 * time.Millisecond, Max: 10 * time.Second}

// Wait waits for the container's end. It survives a restart of the engine, which knows how its
// containers ended; with live-restore they even keep running.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	j, err := e.open(h)
	if err != nil {
		return executor.Exit{}, err
	}
	log := e.opts.Log.WithField("job_id", h.JobID)
	for failures := 0; ; failures++ {
		asked := time.Now()
		exit, err := e.waitOnce(ctx, j)
		var broken *connectionError
		switch {
		case ctx.Err() != nil:
			return executor.Exit{}, ctx.Err()
		case err == nil || !errors.As(err, &broken):
			return exit, err
		}
		if time.Since(asked) > engineRetry.Max {
			failures = 0 // it had answered and waited for long
		}
		log.WithError(err).Warn("The Docker Engine does not answer; asking it again")
		if err := engineRetry.Wait(ctx, failures, nil); err != nil {
			return executor.Exit{}, err
		}
	}
}

type connectionError struct{ err error }

func (e *connectionError) Error() string { return engineText(e.err.Error()) }
func (e *connectionError) Unwrap() error { return e.err }

func (e *Executor) waitOnce(ctx context.Context, j job) (executor.Exit, error) {
	engine, err := e.engine()
	if err != nil {
		return executor.Exit{}, &connectionError{err}
	}
	for {
		found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return gone(engine, j)
		case err != nil:
			e.forget(engine)
			return executor.Exit{}, &connectionError{err}
		}
		state := found.Container.State
		switch state.Status {
		case container.StateCreated:
			if state.Error != "" { // a Start that failed in the engine
				return executor.Exit{Code: -1, Detail: engineText(state.Error)}, nil
			}
			return executor.Exit{}, executor.ErrNotStarted
		case container.StateExited, container.StateDead, container.StateRemoving:
			return ended(ctx, engine, j, state)
		}
		if err := waitStopped(ctx, engine, j.Name); err != nil && !errdefs.IsNotFound(err) {
			return executor.Exit{}, &connectionError{err}
		}
	}
}

func gone(engine *client.Client, j job) (executor.Exit, error) {
	if j.Engine != engine.DaemonHost() {
		return executor.Exit{}, fmt.Errorf("the job's container %s is not on the Docker Engine at %s: it was made on the one at %s, which the agent no longer uses", j.Name, engine.DaemonHost(), j.Engine)
	}
	return executor.Exit{Code: -1, Lost: true, Detail: "the job's container is gone"}, nil
}

func waitStopped(ctx context.Context, engine *client.Client, containerName string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := engine.ContainerWait(ctx, containerName, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	case <-ctx.Done():
		select { // the client's goroutine is about to deliver one or the other
		case <-wait.Result:
		case <-wait.Error: //nolint:errcheck // the caller has gone
		}
		return ctx.Err()
	}
}

func ended(ctx context.Context, engine *client.Client, j job, state *container.State) (executor.Exit, error) {
	exit := executor.Exit{Code: state.ExitCode, Detail: engineText(state.Error)}
	if t, err := time.Parse(time.RFC3339Nano, state.FinishedAt); err == nil && t.Year() > 1 {
		exit.FinishedAt = t
	}
	data, err := readFile(ctx, engine, j.Name, j.JobDir+"/"+protocol.FileResult, maxResult)
	if err != nil && ctx.Err() != nil {
		return executor.Exit{}, ctx.Err()
	}
	if err == nil {
		var r protocol.Result
		if json.Unmarshal(data, &r) == nil {
			exit.Result = &r
		}
	}
	if exit.Code == 0 {
		return exit, nil
	}
	exit.OOMKilled = state.OOMKilled || exit.Code == 128+9 && outOfMemory(ctx, engine, j)
	if name, ok := signals[exit.Code-128]; ok {
		exit.Code, exit.Signal = -1, name
	}
	// An engine that finds a container dead after its own or the host's restart makes up this
	// code.
	if exit.Code == 255 && !exit.OOMKilled {
		exit = executor.Exit{
			Code: -1, Lost: true, Result: exit.Result, FinishedAt: exit.FinishedAt,
			Detail: "the Docker Engine or its host was restarted while the job ran",
		}
	}
	return exit, nil
}

// oomPatience is how long the engine may take to learn why a container was killed.
const oomPatience = 3 * time.Second

// outOfMemory reports whether a killed container ran out of memory. The engine learns of that
// separately from the end: sometimes later or, on a busy host, never
// (https://github.com/containerd/containerd/issues/8893).
func outOfMemory(ctx context.Context, engine *client.Client, j job) bool {
	ctx, cancel := context.WithTimeout(ctx, oomPatience)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(oomPatience / 30):
		}
		found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		if err != nil {
			return false
		}
		if found.Container.State.OOMKilled {
			return true
		}
	}
}

// signals maps numbers on Linux to the signals that end a process. The container's init reports
// them as 128 plus the number.
var signals = map[int]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}
