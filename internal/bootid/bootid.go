// Package bootid identifies one start of the host. What was not synced to disk is lost
// with the start, and so is every process.
package bootid

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Get returns the id of the host's current start, which this process cannot outlive.
var Get = sync.OnceValues(read)

// Uptime returns the time since the host was started, sleep included; nothing sets it.
func Uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return 0, fmt.Errorf("reading the time since boot: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
