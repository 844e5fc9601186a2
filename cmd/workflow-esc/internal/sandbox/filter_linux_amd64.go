package sandbox

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

// threadFlags are the flags with which the Go runtime starts a thread.
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM |
	unix.CLONE_THREAD | unix.CLONE_SETTLS

// x32 is set in the numbers of a second set of system calls that this architecture has.
const x32 = 0x40000000

func (f *assembler) foreign() {
	f.program = append(f.program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jf: 1})
	f.program = append(f.program, f.result(kill)...)
}

func hostileHere() []uint32 { return []uint32{unix.SYS_FORK, unix.SYS_VFORK} }
