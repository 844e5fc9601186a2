package process

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalName returns the name of a signal, such as SIGKILL.
func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return s.String()
}
