package procguard

import (
	"math"

	"golang.org/x/sys/unix"
)

// Protect makes the memory and the environment of this process unreadable for
// other processes of the same user, and keeps it from leaving a core file. Root
// still can read them. It also keeps the descriptors that this process was
// started with, whoever left them open, from the programs it starts.
func Protect() error {
	// Kernels before 5.11 cannot do it; the standard library does it for its own.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
