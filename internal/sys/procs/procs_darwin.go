package procs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

// Find returns a process.
func Find(pid int) (Process, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return Process{}, err
	}
	if int(info.Proc.P_pid) != pid {
		return Process{}, fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	return fromKinfo(info), nil
}

func fromKinfo(info *unix.KinfoProc) Process {
	pid := int(info.Proc.P_pid)
	session, err := unix.Getsid(pid)
	if err != nil {
		session = 0
	}
	start := info.Proc.P_starttime
	return Process{
		PID:     pid,
		Parent:  int(info.Eproc.Ppid),
		Session: session,
		Start:   uint64(start.Sec)*1_000_000 + uint64(start.Usec),
		Zombie:  info.Proc.P_stat == zombieState,
	}
}

// All returns all processes.
func All() ([]Process, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	out := make([]Process, 0, len(infos))
	for i := range infos {
		out = append(out, fromKinfo(&infos[i]))
	}
	return out, nil
}
