package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"workflowagent/internal/protocol"

	"golang.org/x/sys/unix"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/bootid"
)

type exitRecord struct {
	Code       int       `json:"code"` // -1 if none
	Signal     string    `json:"signal,omitempty"`
	Detail     string    `json:"detail,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

// Wait returns how the runner ended. The operating system reports that to the agent process
// that started the runner and, on newer Linux, to any other that watched it end. Otherwise
// Exit.Lost is set; a sealed result still counts.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	d, err := e.open(h)
	if err != nil {
		return executor.Exit{}, err
	}
	id, err := d.started(ctx)
	switch {
	case err == nil:
		return d.await(ctx, id)
	case errors.Is(err, errEnded):
		return d.settle(ctx)
	case errors.Is(err, fs.ErrNotExist):
		return executor.Exit{Code: -1, Lost: true, Detail: "the job's directory is gone"}, nil
	}
	return executor.Exit{}, err
}

var errEnded = errors.New("the job has ended")

// started returns the runner's identity. It waits for a concurrent Start.
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
	return d.settleWith(ctx, status)
}

func (d dir) settle(ctx context.Context) (executor.Exit, error) { return d.settleWith(ctx, nil) }

// settleWith is settle with the status, if any, that the kernel reported of a process that is
// not a child. It waits for a child, and keeps the outcome for later calls.
func (d dir) settleWith(ctx context.Context, told *unix.WaitStatus) (executor.Exit, error) {
	unlock, err := d.lock(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return executor.Exit{Code: -1, Lost: true, Detail: "the job's directory is gone"}, nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	defer unlock()

	var record exitRecord
	if err := readJSON(d.path(fileExit), &record); err == nil {
		return record.exit(d.result()), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return executor.Exit{}, err
	}
	id, err := d.process()
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(string(d)); errors.Is(err, fs.ErrNotExist) {
			return executor.Exit{Code: -1, Lost: true, Detail: "the job's directory is gone"}, nil
		}
		if _, err := os.Lstat(d.path(fileStarted)); errors.Is(err, fs.ErrNotExist) {
			return executor.Exit{}, executor.ErrNotStarted
		}
		return executor.Exit{Code: -1, Lost: true, Detail: "the agent ended while it was starting the runner, which therefore did nothing"}, nil
	}
	if err != nil {
		return executor.Exit{}, err
	}
	status, ok, err := reap(ctx, id)
	if err != nil {
		return executor.Exit{}, err
	}
	if !ok && told != nil {
		status, ok = *told, true
	}
	if ok {
		record = fromStatus(status)
		if err := writeJSON(d.path(fileExit), record); err != nil {
			return executor.Exit{}, err
		}
		return record.exit(d.result()), nil
	}
	exit := executor.Exit{Code: -1, Lost: true, Result: d.result(), Detail: "the runner ended while no agent watched it, and left no result: it was killed or it crashed"}
	if boot, err := bootid.Get(); err == nil && boot != id.BootID {
		exit.Detail = "the agent's host was restarted while the job ran"
	}
	return exit, nil
}

// reap collects the exit status of an ended child. Any other process is safe: reap checks that
// it is the one that was started. A process of several threads looks dead a moment before its
// status is available.
func reap(ctx context.Context, id identity) (unix.WaitStatus, bool, error) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		if p, ok := id.find(); !ok || !p.zombie {
			return 0, false, nil
		}
		var status unix.WaitStatus
		pid, err := unix.Wait4(id.PID, &status, unix.WNOHANG, nil)
		switch {
		case err == nil && pid == id.PID:
			return status, true, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, false, nil // not a child
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return 0, false, ctx.Err()
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
