package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// machineClock is the clock of this machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) Boot() (string, time.Duration) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", 0
	}
	// On macOS the monotonic clock includes sleep.
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return "", 0
	}
	return id, time.Duration(ts.Nano())
}
