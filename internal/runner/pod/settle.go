package pod

import (
	"io"
	"os"
	"time"
)

const (
	settleTick = 5 * time.Millisecond
	// settleTime bounds the wait for the reader of the output.
	settleTime = 10 * time.Second
	// settlePause is the time for the reader to store what it has read: a container's output passes
	// through the pipes and buffers of several programs.
	settlePause = time.Second
)

// Settle waits until the reader of a pipe has read everything that was written, for patience at
// most, and reports whether it has. For anything but a pipe, Settle returns true at once.
//
// A container engine gives up reading a container's output soon after the container has exited. On a
// busy node, what the pipe still contains is lost then.
func Settle(out io.Writer, patience time.Duration) bool {
	file, ok := out.(*os.File)
	if !ok {
		return true
	}
	for began := time.Now(); unread(file) > 0; {
		if time.Since(began) >= patience {
			return false
		}
		<-time.After(settleTick)
	}
	return true
}
