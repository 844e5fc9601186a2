package process

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

func lookUp(pid int) (proc, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return proc{}, err
	}
	if int(info.Proc.P_pid) != pid {
		return proc{}, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return fromKinfo(info), nil
}

func fromKinfo(info *unix.KinfoProc) proc {
	pid := int(info.Proc.P_pid)
	session, err := unix.Getsid(pid)
	if err != nil {
		session = 0
	}
	start := info.Proc.P_starttime
	return proc{
		pid:     pid,
		parent:  int(info.Eproc.Ppid),
		session: session,
		start:   uint64(start.Sec)*1_000_000 + uint64(start.Usec),
		zombie:  info.Proc.P_stat == zombieState,
	}
}

func processes() ([]proc, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	out := make([]proc, 0, len(infos))
	for i := range infos {
		out = append(out, fromKinfo(&infos[i]))
	}
	return out, nil
}

// carries always returns false, because macOS does not expose the environments of processes. The
// executor therefore does not find the job's processes outside the session.
func (p proc) carries(string) bool { return false }

func waitGone(ctx context.Context, id identity) (*unix.WaitStatus, error) {
	return nil, pollGone(ctx, id)
}
