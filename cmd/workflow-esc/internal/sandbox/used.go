package sandbox

import (
	"time"

	"golang.org/x/sys/unix"
)

// Used returns how long the process used processors.
func Used() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
