package process

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/bootid"
)

// identity names one process across reuse of its number and reboots of the host.
type identity struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // in the system's own unit; only compared
	BootID    string `json:"bootID"`
}

type proc struct {
	pid, parent, session int
	start                uint64
	zombie               bool // ended, its exit status not yet collected
	status               int  // of a zombie, as in wait(2); 0 also if the system does not report it
}

func identify(pid int) (identity, error) {
	boot, err := bootid.Get()
	if err != nil {
		return identity{}, fmt.Errorf("asking for the boot id: %w", err)
	}
	p, err := lookUp(pid)
	if err != nil {
		return identity{}, fmt.Errorf("looking up process %d: %w", pid, err)
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

// pollGone polls, where the system offers no notification.
func pollGone(ctx context.Context, id identity) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if p, ok := id.find(); !ok || p.zombie {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
