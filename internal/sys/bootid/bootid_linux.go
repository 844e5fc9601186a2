package bootid

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const bootClock = unix.CLOCK_BOOTTIME

func read() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
