// Package filelock provides exclusive locks between processes, based on files. The operating system
// releases a lock when the process that holds it exits or crashes.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/retry"
)

// HeldError reports that the lock is already held, usually by another process.
type HeldError struct {
	PID int // process that holds the lock; 0 if unknown
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return "another process holds the lock"
	}
	return fmt.Sprintf("process %d holds the lock", e.PID)
}

// Lock is a lock that this process holds.
type Lock struct{ f *os.File }

// Try locks the open file and writes this process's ID into it. The lock then owns the file. If Try
// fails, it closes the file. If the lock is held, the error is a [*HeldError].
func Try(f *os.File) (*Lock, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			sign(f)
			return &Lock{f}, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			err = &HeldError{PID: holder(f)}
		default:
			err = fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		f.Close()
		return nil, err
	}
}

// waitPause is the pause between two attempts of [Wait]. It is short because locks are held
// briefly.
const waitPause = 5 * time.Millisecond

// Wait opens or creates the file at path and locks it. If the lock is held, it waits until the lock
// is released or ctx is done.
func Wait(ctx context.Context, path string) (*Lock, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		l, err := Try(f)
		held, isHeld := errors.AsType[*HeldError](err)
		if !isHeld {
			return l, err
		}
		if cause := retry.Sleep(ctx, waitPause); cause != nil {
			return nil, fmt.Errorf("%w: %w", held, cause)
		}
	}
}

// Holder reports whether a process holds the lock of the file at path, and which; pid is 0 if that is unknown. A
// missing file is not locked. For a moment, Holder itself prevents others from locking the file, who should use
// [Wait].
func Holder(path string) (pid int, held bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return holder(f), true, nil
		case err != nil:
			return 0, false, fmt.Errorf("checking the lock of %s: %w", path, err)
		}
		return 0, false, unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
}

// Stat describes the file, which is not the one at its path if another process has removed or replaced that.
func (l *Lock) Stat() (fs.FileInfo, error) { return l.f.Stat() }

// Release unlocks the file before closing it. Closing alone would not suffice, because a new child
// process shares the open file until its exec.
func (l *Lock) Release() {
	_ = unix.Flock(int(l.f.Fd()), unix.LOCK_UN)
	_ = l.f.Close()
}

// sign writes this process's ID into the file. It ignores errors, because a full disk must not
// prevent locking.
func sign(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

func holder(f *os.File) int {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}
