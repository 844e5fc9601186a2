package store

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machineClock is the clock of this machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) Boot() (string, time.Duration) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0
	}
	return strings.TrimSpace(string(id)), time.Duration(ts.Nano())
}
