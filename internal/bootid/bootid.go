// Package bootid identifies one boot of the host. A reboot loses processes and unsynced data.
package bootid

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Get returns the id of the host's current boot, which this process cannot outlive.
var Get = sync.OnceValues(read)

// Uptime returns the time since boot, including sleep. Setting the clock does not change it.
func Uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return 0, fmt.Errorf("reading the time since boot: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
