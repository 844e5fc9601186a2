package runner

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName returns the name of a signal, such as SIGKILL.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
