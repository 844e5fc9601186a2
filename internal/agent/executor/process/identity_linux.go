package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"workflowagent/internal/retry"
)

func lookUp(pid int) (proc, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, err
	}
	// The name in field 2 can contain any character, but the last closing parenthesis ends it.
	// Field 3 follows.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return proc{}, fmt.Errorf("unknown form of /proc/%d/stat", pid)
	}
	parent, err1 := strconv.Atoi(f[1])
	session, err2 := strconv.Atoi(f[3])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return proc{}, fmt.Errorf("unknown form of /proc/%d/stat: %w", pid, err)
	}
	p := proc{pid: pid, parent: parent, session: session, start: start, zombie: f[0] == "Z" || f[0] == "X"}
	if p.zombie && len(f) > 49 {
		p.status, _ = strconv.Atoi(f[49]) // old kernels lack the field; 0 has the same meaning
	}
	return p, nil
}

func processes() ([]proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []proc
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, err := lookUp(pid); err == nil { // if lookUp fails, the process has exited
			out = append(out, p)
		}
	}
	return out, nil
}

// carries reports whether the process was started with the environment entry marker. The
// environments of other users' processes are unreadable, but these processes do not belong to the
// job.
func (p proc) carries(marker string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == marker {
			return true
		}
	}
	return false
}

// waitGone waits until the process has exited. For a process that is not a child, waitGone returns
// the exit status if the kernel provides it, and nil otherwise.
func waitGone(ctx context.Context, id identity) (*unix.WaitStatus, error) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, pollGone(ctx, id) // the process has exited, or the kernel has no pidfd
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	// The descriptor refers to the process that had this PID when PidfdOpen was called.
	p, ok := id.find()
	if !ok {
		return nil, nil
	}
	if f.SetReadDeadline(time.Time{}) != nil {
		return nil, pollGone(ctx, id)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, pollGone(ctx, id)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, pollGone(ctx, id)
	}
	if p.parent == os.Getpid() {
		return nil, nil // the parent process can now collect the status
	}
	return exitInfo(ctx, id, fd), nil
}

// exitInfo returns the exit status of an exited process that is not a child. While the process is a
// zombie, its stat file contains the status; 0 can also mean missing permission. After the parent
// has collected the status, Linux 6.15 and later report it through the descriptor.
func exitInfo(ctx context.Context, id identity, fd int) *unix.WaitStatus {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		if p, ok := id.find(); ok && p.zombie && p.status != 0 {
			status := unix.WaitStatus(p.status)
			return &status
		}
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
		if errno == 0 && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			status := unix.WaitStatus(info.Exit_code)
			return &status
		}
		if retry.Sleep(ctx, 2*time.Millisecond) != nil {
			return nil
		}
	}
}
