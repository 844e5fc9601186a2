package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"workflowagent/internal/retry"
)

// carries reports whether the process was started with the environment entry marker. The
// environments of other users' processes are unreadable, but these processes do not belong to the
// job.
func carries(pid int, marker string) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(env), "\x00"), marker)
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
	if p.Parent == os.Getpid() {
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
		if p, ok := id.find(); ok && p.Zombie && p.Status != 0 {
			status := unix.WaitStatus(p.Status)
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
