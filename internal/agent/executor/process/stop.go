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
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/bootid"
	"workflowagent/internal/sys/procs"
)

// Stop interrupts the runner, or kills all processes of the job.
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

// signal sends sig to the process unless the process's PID was reused. On Linux, the descriptor
// that os.FindProcess opens prevents the PID from being reused between the check and the signal.
func (id identity) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	defer func() { _ = p.Release() }()
	if !id.running() {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signalling process %d: %w", id.PID, err)
	}
	return nil
}

// killTree kills the leader's session, its descendants and every process that carries marker. It
// repeats this until no such process exists, because these processes can start others meanwhile. A
// zero leader means that the leader is unknown.
func killTree(ctx context.Context, leader identity, marker string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		members, err := tree(leader, marker)
		if err != nil {
			return fmt.Errorf("finding the job's processes: %w", err)
		}
		if len(members) == 0 {
			return nil
		}
		var errs []error
		for _, m := range members {
			errs = append(errs, m.signal(syscall.SIGKILL))
		}
		if err := retry.Sleep(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("killing the job's %d processes: %w", len(members), errors.Join(append(errs, err)...))
		}
	}
}

// tree returns the running processes of a job. It includes the leader's session and descendants
// only while the leader exists, at least as a zombie. Afterwards, another process can have the
// leader's PID.
func tree(leader identity, marker string) ([]identity, error) {
	all, err := procs.All()
	if err != nil {
		return nil, err
	}
	_, known := leader.find()
	ours := map[int]bool{leader.PID: known}
	for grew := known; grew; {
		grew = false
		for _, p := range all {
			if !ours[p.PID] && (ours[p.Parent] || p.Session == leader.PID) {
				ours[p.PID], grew = true, true
			}
		}
	}
	boot, err := bootid.Get()
	if err != nil {
		return nil, err
	}
	// A process that is older than the leader does not carry the job's marker, and reading the
	// environments of all processes is expensive on a large host. Only Linux counts start times
	// from boot; on other systems, a clock change makes them incomparable.
	var since uint64
	if leader.BootID == boot && runtime.GOOS == "linux" {
		since = leader.StartTime
	}
	var out []identity
	for _, p := range all {
		if p.PID == os.Getpid() || p.Zombie || (!ours[p.PID] && (p.Start < since || !carries(p.PID, marker))) {
			continue
		}
		out = append(out, identity{PID: p.PID, StartTime: p.Start, BootID: boot})
	}
	return out, nil
}
