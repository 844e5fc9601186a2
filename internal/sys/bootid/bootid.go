// Package bootid identifies the current boot of the host. Processes and unsynced data do not
// survive a reboot.
package bootid

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Get returns the ID of the host's current boot.
var Get = sync.OnceValues(read)

// Uptime returns the time since boot, including sleep. Changes to the system clock do not
// affect it.
func Uptime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return 0, fmt.Errorf("reading the boot clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
