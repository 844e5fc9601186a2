package process

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"workflowagent/internal/sys/procguard"
	"workflowagent/internal/sys/procs"
)

// Protect makes the runner's memory unreadable to the user's other processes, such as the steps. It
// also makes orphans of the steps children of the runner, so that the runner can kill them.
func Protect() error {
	if err := procguard.Protect(); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// KillSessions kills the process groups of leaders and every process in their sessions, because
// pulumi starts its plugins in separate groups.
func KillSessions(leaders ...int) {
	if nothingLeft() {
		return
	}
	for _, leader := range leaders {
		_ = syscall.Kill(-leader, syscall.SIGKILL)
	}
	for _, p := range all() {
		if !p.Zombie && slices.Contains(leaders, p.Session) {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
}

// descendantsTime limits the time that KillDescendants takes. Only a process that forks faster than
// it can be killed, and leaves its group each time, survives.
const descendantsTime = 5 * time.Second

// KillDescendants kills every remaining process of the job, including processes that left their
// step's session. It finds them because the runner adopts orphans: the children of a killed process
// become the runner's children. It reports whether no process remains.
func KillDescendants() bool {
	if !adopting() {
		return true // not all children belong to the job
	}
	timeout := time.NewTimer(descendantsTime)
	defer timeout.Stop()
	tick := time.NewTicker(time.Millisecond) // the runner adopts a killed process's children with a delay
	defer tick.Stop()
	for {
		if nothingLeft() {
			return true
		}
		pids, known := children()
		if !known {
			self := os.Getpid()
			for _, p := range all() {
				if p.Parent == self {
					pids = append(pids, p.PID)
				}
			}
		}
		for _, pid := range pids {
			kill(pid)
		}
		ReapOrphans()
		select {
		case <-tick.C:
		case <-timeout.C:
			return false
		}
	}
}

// kill kills a process and its group, because no process leaves its group by forking: the kernel lets none fork while the
// signal is pending.
func kill(pid int) {
	if group, err := unix.Getpgid(pid); err == nil && group != unix.Getpgrp() {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// nothingLeft reports whether no process of any step is alive. Because the runner adopts orphans, all such processes are
// its descendants, and as long as there are any, it has children. The kernel decides that at once, while a list can miss a
// process that forks and exits.
func nothingLeft() bool {
	if !adopting() {
		return false
	}
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

func adopting() bool {
	var adopts int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&adopts)), 0, 0, 0)
	return err == nil && adopts != 0
}

// ReapOrphans reaps exited processes that became the runner's children. The leaders of steps have
// already been reaped.
func ReapOrphans() {
	reap := func(pid int) {
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
	}
	if pids, known := children(); known {
		for _, pid := range pids {
			reap(pid)
		}
		return
	}
	self := os.Getpid()
	for _, p := range all() {
		if p.Parent == self && p.Zombie {
			reap(p.PID)
		}
	}
}

// children returns the runner's children, including exited ones. It reports false if the kernel
// does not list children. Reading all processes of the machine instead takes milliseconds.
func children() (pids []int, known bool) {
	const tasks = "/proc/self/task"
	dir, err := os.Open(tasks)
	if err != nil {
		return nil, false
	}
	defer dir.Close() // opened for reading only
	threads, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	for _, thread := range threads {
		data, err := os.ReadFile(tasks + "/" + thread + "/children")
		if err != nil {
			return nil, false // the thread has exited; another thread adopted its children
		}
		for field := range bytes.FieldsSeq(data) {
			pid, err := strconv.Atoi(string(field))
			if err != nil {
				return nil, false
			}
			pids = append(pids, pid)
		}
	}
	return pids, true
}

// all returns all processes of the machine, or none if they cannot be listed.
func all() []procs.Process {
	found, _ := procs.All()
	return found
}

// OOMKills returns the number of processes in the runner's control group that the kernel has killed
// for lack of memory, or 0 if it is unknown.
func OOMKills() int {
	for _, file := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if value, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
				n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
				if err == nil {
					return n
				}
			}
		}
	}
	return 0
}
