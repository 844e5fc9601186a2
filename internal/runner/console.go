package runner

import (
	"io"
	"sync"
)

// console is the runner's output. It receives the copy of the job's log, which can end in the
// middle of a line.
type console struct {
	mu      sync.Mutex
	out     io.Writer
	midLine bool
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) > 0 {
		c.midLine = p[len(p)-1] != '\n'
	}
	return c.out.Write(p)
}

// consoleLog begins each entry of the runner's own log on a new line, because readers merge it with
// the console.
type consoleLog struct {
	console *console
	out     io.Writer
}

func (l consoleLog) Write(p []byte) (int, error) {
	l.console.mu.Lock()
	defer l.console.mu.Unlock()
	if l.console.midLine {
		l.console.midLine = false
		_, _ = l.console.out.Write([]byte{'\n'}) // losing the copy of the job's log must not lose the entry
	}
	return l.out.Write(p)
}
