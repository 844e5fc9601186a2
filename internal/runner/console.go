package runner

import (
	"io"
	"sync/atomic"
)

// console is the runner's output. It receives the copy of the job's log, which can end in the
// middle of a line.
type console struct {
	out     io.Writer
	midLine atomic.Bool
}

func (c *console) Write(p []byte) (int, error) {
	if len(p) > 0 {
		c.midLine.Store(p[len(p)-1] != '\n')
	}
	return c.out.Write(p)
}

// consoleLog begins each entry of the runner's own log on a new line, because readers merge it with
// the console. It never waits for the reader of the console: heartbeats also write to the log.
type consoleLog struct {
	console *console
	out     io.Writer
}

func (l consoleLog) Write(p []byte) (int, error) {
	if l.console.midLine.Swap(false) {
		if _, err := l.out.Write([]byte{'\n'}); err != nil {
			return 0, err
		}
	}
	return l.out.Write(p)
}
