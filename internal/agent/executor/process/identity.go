package process

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/sys/bootid"
)

// identity identifies a process even after its PID is reused or the host reboots.
type identity struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // in the operating system's unit; only compared
	BootID    string `json:"bootID"`
}

type proc struct {
	pid, parent, session int
	start                uint64
	zombie               bool // whether the process has exited, but its exit status has not been collected
	status               int  // exit status of a zombie, as in wait(2); 0 if the system does not report it
}

func identify(pid int) (identity, error) {
	boot, err := bootid.Get()
	if err != nil {
		return identity{}, fmt.Errorf("reading the boot id: %w", err)
	}
	p, err := lookUp(pid)
	if err != nil {
		return identity{}, fmt.Errorf("finding process %d: %w", pid, err)
	}
	return identity{PID: pid, StartTime: p.start, BootID: boot}, nil
}

func (id identity) find() (proc, bool) {
	if id.PID <= 0 {
		return proc{}, false
	}
	p, err := lookUp(id.PID)
	if err != nil || p.start != id.StartTime {
		return proc{}, false
	}
	boot, err := bootid.Get()
	return p, err == nil && boot == id.BootID
}

func (id identity) running() bool {
	p, ok := id.find()
	return ok && !p.zombie
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
