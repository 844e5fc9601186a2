package process

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/sys/bootid"
	"workflowagent/internal/sys/procs"
)

// identity identifies a process even after its PID is reused or the host reboots.
type identity struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // in the operating system's unit; only compared
	BootID    string `json:"bootID"`
}

func identify(pid int) (identity, error) {
	boot, err := bootid.Get()
	if err != nil {
		return identity{}, fmt.Errorf("reading the boot id: %w", err)
	}
	p, err := procs.Find(pid)
	if err != nil {
		return identity{}, fmt.Errorf("finding process %d: %w", pid, err)
	}
	return identity{PID: pid, StartTime: p.Start, BootID: boot}, nil
}

func (id identity) find() (procs.Process, bool) {
	if id.PID <= 0 {
		return procs.Process{}, false
	}
	p, err := procs.Find(id.PID)
	if err != nil || p.Start != id.StartTime {
		return procs.Process{}, false
	}
	boot, err := bootid.Get()
	return p, err == nil && boot == id.BootID
}

func (id identity) running() bool {
	p, ok := id.find()
	return ok && !p.Zombie
}

// pollGone polls until the process has exited. It is for systems that do not report exits.
func pollGone(ctx context.Context, id identity) error {
	for id.running() {
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
