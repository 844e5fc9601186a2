package bootid

import "golang.org/x/sys/unix"

// bootClock is a monotonic clock. On macOS it includes sleep.
const bootClock = unix.CLOCK_MONOTONIC

func read() (string, error) { return unix.Sysctl("kern.bootsessionuuid") }
