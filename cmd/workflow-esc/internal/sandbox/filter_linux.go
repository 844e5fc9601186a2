//go:build amd64 || arm64

package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, which describes a system call to a filter.
const (
	numberAt       = 0
	architectureAt = 4
	argumentsAt    = 16 // 8 bytes each; both architectures store the lower half first
)

const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	kill   = unix.SECCOMP_RET_KILL_PROCESS
)

// usual are the system calls of the Go runtime, and those on open files and the process itself.
func usual() []uint32 {
	return []uint32{
		unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_NANOSLEEP, unix.SYS_MADVISE, unix.SYS_EPOLL_PWAIT,
		unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGACTION, unix.SYS_SIGALTSTACK,
		unix.SYS_SCHED_YIELD, unix.SYS_MUNMAP, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRUSAGE,
		unix.SYS_CLOCK_GETTIME, unix.SYS_GETRANDOM, unix.SYS_MINCORE, unix.SYS_RESTART_SYSCALL, unix.SYS_CLOSE,
		unix.SYS_SCHED_GETAFFINITY, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}
}

// hostile are system calls that neither the evaluator nor a library has a reason for. The process is killed
// at the first one: there is no second attempt, and the server sees it.
func hostile() []uint32 {
	return append([]uint32{
		unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_CLONE3, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
		unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
		unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
		unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT,
		unix.SYS_ACCEPT4, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVMSG,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_BPF, unix.SYS_MEMFD_CREATE, unix.SYS_USERFAULTFD, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_INIT_MODULE,
		unix.SYS_FINIT_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_PERSONALITY, unix.SYS_SECCOMP,
		unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETRESUID, unix.SYS_CAPSET,
	}, hostileHere()...)
}

// filter returns the program that decides about each system call of the process. Everything that it does not
// mention fails with EPERM, because the Go runtime and libraries look for files that need not exist, such as the
// time zone, and continue.
func filter(pid uint32) []unix.SockFilter {
	f := assembler{}
	f.load(architectureAt)
	f.unless(architecture, kill)
	f.load(numberAt)
	f.foreign()
	for _, number := range usual() {
		f.when(number, f.result(allow))
	}
	// Threads, but no processes.
	f.when(unix.SYS_CLONE, slices.Concat(f.argument(0, threadFlags, kill), f.result(allow)))
	// The runtime preempts its own threads.
	f.when(unix.SYS_TGKILL, slices.Concat(f.argument(0, pid, kill), f.result(allow)))
	// Memory, but no code.
	f.when(unix.SYS_MPROTECT, slices.Concat(f.noBits(2, unix.PROT_EXEC, kill), f.result(allow)))
	// And only memory that the limit counts: neither shared nor of stacks.
	f.when(unix.SYS_MMAP, slices.Concat(f.noBits(2, unix.PROT_EXEC, kill), f.noBits(3, unix.MAP_SHARED|unix.MAP_GROWSDOWN, kill), f.result(allow)))
	// The runtime names its memory, unless the kernel cannot do that.
	f.when(unix.SYS_PRCTL, f.result(unix.SECCOMP_RET_ERRNO|uint32(unix.EINVAL)))
	for _, number := range hostile() {
		f.when(number, f.result(kill))
	}
	return append(f.program, f.result(refuse)...)
}

// assembler builds a filter.
type assembler struct{ program []unix.SockFilter }

func (f *assembler) load(at uint32) {
	f.program = append(f.program, load(at))
}

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func (*assembler) result(result uint32) []unix.SockFilter {
	return []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: result}}
}

// when adds code for the loaded value. The code must end with a result.
func (f *assembler) when(value uint32, code []unix.SockFilter) {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: uint8(len(code))})
	f.program = append(f.program, code...)
}

// unless adds a result for all other values than the loaded one.
func (f *assembler) unless(value, result uint32) {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: 1})
	f.program = append(f.program, f.result(result)...)
}

// argument returns code that continues only if an argument has the value.
func (f *assembler) argument(index, value, otherwise uint32) []unix.SockFilter {
	at := argumentsAt + 8*index
	return slices.Concat(
		[]unix.SockFilter{load(at + 4), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0, Jt: 1}}, f.result(otherwise),
		[]unix.SockFilter{load(at), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: 1}}, f.result(otherwise),
	)
}

// noBits returns code that continues only if an argument has none of the bits.
func (f *assembler) noBits(index, bits, otherwise uint32) []unix.SockFilter {
	return slices.Concat(
		[]unix.SockFilter{load(argumentsAt + 8*index), {Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jf: 1}}, f.result(otherwise),
	)
}
