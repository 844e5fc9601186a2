package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/bootid"
)

type exitRecord struct {
	Code       int       `json:"code"` // -1 if none
	Signal     string    `json:"signal,omitempty"`
	Detail     string    `json:"detail,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

// Wait returns how the runner exited. The operating system reports the exit status to the agent
// process that started the runner and, on newer Linux kernels, to any other process that watched
// the runner. In all other cases, Exit.Lost is set, and only a sealed result can report the job's
// result.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	d, err := e.open(h)
	if err != nil {
		return executor.Exit{}, err
	}
	id, err := d.started(ctx)
	switch {
	case err == nil:
		return d.await(ctx, id)
	case errors.Is(err, errEnded), errors.Is(err, fs.ErrNotExist):
		return d.exit(ctx, nil)
	}
	return executor.Exit{}, err
}

var errEnded = errors.New("the job has ended")

func lost(detail string) executor.Exit { return executor.Exit{Code: -1, Lost: true, Detail: detail} }

// started waits for a concurrent Start and returns the runner's identity.
func (d dir) started(ctx context.Context) (identity, error) {
	if id, err := d.process(); err == nil {
		return id, nil
	}
	unlock, err := d.lock(ctx)
	if err != nil {
		return identity{}, err
	}
	defer unlock()
	if id, err := d.process(); err == nil {
		return id, nil
	}
	if _, err := os.Lstat(d.path(fileStarted)); errors.Is(err, fs.ErrNotExist) {
		return identity{}, executor.ErrNotStarted
	}
	return identity{}, errEnded
}

func (d dir) await(ctx context.Context, id identity) (executor.Exit, error) {
	status, err := waitGone(ctx, id)
	if err != nil {
		return executor.Exit{}, err
	}
	return d.exit(ctx, status)
}

// exit returns how the runner exited, and records it for later calls. If the runner is a child,
// exit waits for it. observed is the status, if any, that the kernel reported for a process that is
// not a child.
func (d dir) exit(ctx context.Context, observed *unix.WaitStatus) (executor.Exit, error) {
	unlock, err := d.lock(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return lost("the job's directory is missing"), nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	defer unlock()

	var record exitRecord
	if err := readJSON(d.path(fileExit), &record); !errors.Is(err, fs.ErrNotExist) {
		return record.exit(d.result()), err
	}
	id, err := d.process()
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(string(d)); errors.Is(err, fs.ErrNotExist) {
			return lost("the job's directory is missing"), nil // the directory was removed meanwhile
		}
		if _, err := os.Lstat(d.path(fileStarted)); errors.Is(err, fs.ErrNotExist) {
			return executor.Exit{}, executor.ErrNotStarted
		}
		return lost("the agent exited while it was starting the runner, so the runner did nothing"), nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	status, err := reap(ctx, id)
	if err != nil {
		return executor.Exit{}, err
	}
	if status == nil {
		status = observed
	}
	if status != nil {
		record = fromStatus(*status)
		return record.exit(d.result()), writeJSON(d.path(fileExit), record)
	}
	exit := lost("the runner exited without a result while no agent watched it: it was killed or it crashed")
	exit.Result = d.result()
	if boot, err := bootid.Get(); err == nil && boot != id.BootID {
		exit.Detail = "the agent's host was restarted while the job ran"
	}
	return exit, nil
}

// reap collects the exit status of an exited child. It returns nil for any other process. It checks
// the identity, because the PID can be reused. A process with several threads looks like a zombie
// shortly before its status is available.
func reap(ctx context.Context, id identity) (*unix.WaitStatus, error) {
	for {
		if p, ok := id.find(); !ok || !p.Zombie {
			return nil, nil
		}
		var status unix.WaitStatus
		pid, err := unix.Wait4(id.PID, &status, unix.WNOHANG, nil)
		switch {
		case err == nil && pid == id.PID:
			return &status, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return nil, nil // not a child process
		}
		if err := retry.Sleep(ctx, time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func fromStatus(status unix.WaitStatus) exitRecord {
	r := exitRecord{Code: status.ExitStatus(), FinishedAt: time.Now()}
	if status.Signaled() {
		r.Code, r.Signal = -1, unix.SignalName(status.Signal())
	}
	return r
}

func (r exitRecord) exit(result *protocol.Result) executor.Exit {
	return executor.Exit{Code: r.Code, Signal: r.Signal, Detail: r.Detail, FinishedAt: r.FinishedAt, Result: result}
}
