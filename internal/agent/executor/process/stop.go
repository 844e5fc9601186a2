package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/bootid"
)

// Stop interrupts the runner alone, or kills every process of the job.
func (e *Executor) Stop(ctx context.Context, h executor.Handle, how executor.Stop) error {
	d, err := e.open(h)
	if err != nil {
		return err
	}
	id, err := d.started(ctx)
	switch {
	case errors.Is(err, errEnded) || errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	case how == executor.StopKill:
		err = killTree(ctx, id, d.marker())
	default:
		err = id.signal(syscall.SIGINT)
	}
	if err != nil {
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	}
	return nil
}

// signal sends sig to the process unless its number was reused. On Linux the descriptor that
// os.FindProcess opens keeps the number from being reused between the check and the signal.
func (id identity) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	defer func() { _ = p.Release() }()
	if found, ok := id.find(); !ok || found.zombie {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	return nil
}

// killTree kills the leader's session, its descendants and every process that carries marker,
// repeatedly until none exists: they may start more while they are being killed. A zero leader
// is an unknown one.
func killTree(ctx context.Context, leader identity, marker string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		members, err := tree(leader, marker)
		if err != nil {
			return fmt.Errorf("looking for the processes of the job: %w", err)
		}
		if len(members) == 0 {
			return nil
		}
		var errs []error
		for _, m := range members {
			errs = append(errs, m.signal(syscall.SIGKILL))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d processes of the job could not be killed: %w", len(members), errors.Join(append(errs, ctx.Err())...))
		}
	}
}

// tree returns the running processes of a job. The leader's session and descendants count only
// while the leader exists, even as a zombie: afterwards its number may belong to another
// process.
func tree(leader identity, marker string) ([]identity, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	_, known := leader.find()
	ours := map[int]bool{}
	if known {
		ours[leader.PID] = true
	}
	for grew := known; grew; {
		grew = false
		for _, p := range all {
			if !ours[p.pid] && (ours[p.parent] || p.session == leader.PID) {
				ours[p.pid], grew = true, true
			}
		}
	}
	boot, err := bootid.Get()
	if err != nil {
		return nil, err
	}
	// A process older than the leader does not carry the job's marker, and reading the
	// environment of every process of a big host is expensive. Linux counts the start from
	// boot; elsewhere the clock may have been set.
	var since uint64
	if leader.BootID == boot && runtime.GOOS == "linux" {
		since = leader.StartTime
	}
	var out []identity
	for _, p := range all {
		if p.pid == os.Getpid() || p.zombie || (!ours[p.pid] && (p.start < since || !p.carries(marker))) {
			continue
		}
		out = append(out, identity{PID: p.pid, StartTime: p.start, BootID: boot})
	}
	return out, nil
}
