package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func call(number uintptr, arguments ...uintptr) error {
	var a [6]uintptr
	copy(a[:], arguments)
	_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

// fork ends the new process at once, if there is one.
func fork(number, flags uintptr) error {
	child, _, errno := unix.RawSyscall6(number, flags, 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if child == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

type attack struct {
	do   func() error
	want string
}

func attacks() map[string]attack {
	text := func(s string) uintptr {
		bytes, _ := unix.BytePtrFromString(s)
		return uintptr(unsafe.Pointer(bytes))
	}
	parent := uintptr(os.Getppid())
	here := unix.AT_FDCWD
	all := map[string]attack{
		"read a file":            {func() error { _, err := os.ReadFile("/etc/passwd"); return err }, forbidden},
		"write a file":           {func() error { return os.WriteFile("/tmp/workflow-esc-attack", nil, 0o600) }, forbidden},
		"list a directory":       {func() error { _, err := os.ReadDir("/"); return err }, forbidden},
		"openat2":                {func() error { return call(unix.SYS_OPENAT2, uintptr(here), text("/etc/passwd")) }, forbidden},
		"file handle":            {func() error { return call(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(here)) }, killed},
		"remove a file":          {func() error { return os.Remove("/tmp/workflow-esc-attack") }, forbidden},
		"own memory as file":     {func() error { _, err := os.Open("/proc/self/mem"); return err }, forbidden},
		"parent's memory":        {func() error { _, err := os.Open(fmt.Sprintf("/proc/%d/mem", parent)); return err }, forbidden},
		"parent's environment":   {func() error { _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", parent)); return err }, forbidden},
		"read the parent":        {func() error { return call(unix.SYS_PROCESS_VM_READV, parent) }, killed},
		"trace the parent":       {func() error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, parent) }, killed},
		"signal the parent":      {func() error { return syscall.Kill(int(parent), 0) }, killed},
		"signal a thread":        {func() error { return call(unix.SYS_TGKILL, parent, parent, 0) }, killed},
		"parent's files":         {func() error { return call(unix.SYS_PIDFD_OPEN, parent, 0) }, killed},
		"connect":                {func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err }, killed},
		"look up a name":         {func() error { _, err := net.LookupHost("example.com"); return err }, killed},
		"listen":                 {func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err }, killed},
		"local socket":           {func() error { _, err := net.Dial("unix", "/run/docker.sock"); return err }, killed},
		"start a program":        {func() error { return exec.Command("/bin/true").Run() }, forbidden}, // it opens /dev/null first
		"execve":                 {func() error { return syscall.Exec("/bin/true", []string{"true"}, nil) }, killed},
		"fork":                   {func() error { return fork(unix.SYS_CLONE, uintptr(unix.SIGCHLD)) }, killed},
		"fork with memory":       {func() error { return fork(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK|uintptr(unix.SIGCHLD)) }, killed},
		"thread with namespaces": {func() error { return call(unix.SYS_CLONE, threadFlags|unix.CLONE_NEWUSER) }, killed},
		"clone3":                 {func() error { return call(unix.SYS_CLONE3, 0, 0) }, killed},
		"namespace":              {func() error { return unix.Unshare(unix.CLONE_NEWUSER) }, killed},
		"bpf":                    {func() error { return call(unix.SYS_BPF) }, killed},
		"io_uring":               {func() error { return call(unix.SYS_IO_URING_SETUP) }, killed},
		"program in memory":      {func() error { _, err := unix.MemfdCreate("x", 0); return err }, killed},
		"code in memory": {func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
			return err
		}, killed},
		"shared memory": {func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_SHARED)
			return err
		}, killed},
		"memory of a stack": {func() error {
			_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_GROWSDOWN)
			return err
		}, killed},
		"make memory code": {func() error {
			page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
			if err != nil {
				return fmt.Errorf("no memory: %s", err.Error())
			}
			return unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC)
		}, killed},
		"another filter": {func() error { return install(filter(0)) }, "giving up new privileges: invalid argument"},
		"more memory": {func() error {
			return unix.Prlimit(0, unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
		}, forbidden},
		"parent's limits":  {func() error { return unix.Prlimit(int(parent), unix.RLIMIT_CORE, &unix.Rlimit{}, nil) }, forbidden},
		"unlink by number": {func() error { return call(unix.SYS_UNLINKAT, uintptr(here), text("/tmp/x"), 0) }, forbidden},
		"inherited file": {func() error {
			_, err := unix.Read(3, make([]byte, 1))
			return err
		}, "bad file descriptor"},
		"environment": {func() error {
			if len(os.Environ()) > 0 {
				return nil
			}
			return errors.New("there is none")
		}, "there is none"},
		// These end because of the kernel's limits: the process does not watch itself.
		"take memory": {func() error {
			var all [][]byte
			for range 1000 {
				all = append(all, bytes.Repeat([]byte{1}, 1<<20))
			}
			runtime.KeepAlive(all)
			return nil
		}, ended},
		"take time": {func() error {
			for n := 0; n >= 0; n++ {
			}
			return nil
		}, ended},
		// What an evaluation needs still works.
		"threads, memory, timers": {usualWork, worked},
	}
	addHere(all)
	return all
}

// usualWork uses many threads, the garbage collection, timers and preemption.
func usualWork() error {
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var keep [][]byte
			for i := range 400 {
				keep = append(keep[max(0, len(keep)-10):], make([]byte, 64<<10))
				keep[len(keep)-1][i] = 1
			}
			<-time.After(time.Millisecond)
		})
	}
	group.Wait()
	runtime.GC()
	return nil
}
