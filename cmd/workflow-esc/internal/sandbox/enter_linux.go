//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// margin is what the process may use beyond the limit of memory before the kernel refuses more: the Go runtime
// maps memory in blocks of 64 MiB, and the process must be able to report which limit it exceeds.
const margin = 128 << 20

func enter(limits Limits) (bool, error) {
	if err := closeFiles(); err != nil {
		return false, err
	}
	// If memory runs out, the kernel must end this process, and not the server. The write fails on a system
	// without this file, which then chooses a process itself.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	// Memory and environment of this process are hidden from the user's other processes, and core dumps are
	// off.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return false, fmt.Errorf("hiding the process: %w", err)
	}
	seconds := uint64((limits.CPU + time.Second - 1) / time.Second)
	for _, one := range []struct {
		name     string
		resource int
		most     uint64
	}{
		// Address space is no measure, because the runtime reserves a lot that it never uses.
		{"memory", unix.RLIMIT_DATA, limits.Memory + margin},
		{"processor time", unix.RLIMIT_CPU, seconds + 1},
		{"open files", unix.RLIMIT_NOFILE, 0},
		{"core dumps", unix.RLIMIT_CORE, 0},
	} {
		if err := unix.Prlimit(0, one.resource, &unix.Rlimit{Cur: one.most, Max: one.most}, nil); err != nil {
			return false, fmt.Errorf("limiting %s: %w", one.name, err)
		}
	}
	return true, install(filter(uint32(os.Getpid())))
}

// closeFiles closes files that the process inherited besides the standard ones. The runtime's own are not
// files of the system.
func closeFiles() error {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing open files: %w", err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		target, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// install installs a filter for all threads of the process. It cannot be removed.
func install(program []unix.SockFilter) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	compiled := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&compiled)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return fmt.Errorf("filtering system calls (seccomp): %w", errno)
	}
	if thread != 0 {
		return errors.New("filtering system calls (seccomp): a thread has another filter")
	}
	return nil
}
