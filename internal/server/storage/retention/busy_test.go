package retention_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busyTime returns the processor time that the test binary has used.
func busyTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
