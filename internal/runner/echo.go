package runner

import (
	"bytes"
	"fmt"
	"io"

	"workflowagent/internal/protocol"
	"workflowagent/internal/words"
)

// echo copies a job's log to the runner's output, up to a limit: a file of the host can contain this
// output, and the agent's own log its copy. The server receives the whole log.
type echo struct {
	dst  io.Writer
	left int64
}

func newEcho(dst io.Writer) *echo { return &echo{dst, protocol.MaxEcho} }

// Write implements [io.Writer]. After the limit, it discards what it is given.
func (e *echo) Write(p []byte) (int, error) {
	if e.left < 0 {
		return len(p), nil
	}
	if int64(len(p)) <= e.left {
		e.left -= int64(len(p))
		return e.dst.Write(p)
	}
	whole := p[:bytes.LastIndexByte(p[:e.left], '\n')+1]
	e.left = -1
	_, err := e.dst.Write(fmt.Appendf(bytes.Clone(whole), "%sThe copy of the job's output ends here, after %s. The deployment's log is complete.\n",
		lineBreak(whole), words.Bytes(protocol.MaxEcho)))
	return len(p), err
}

// lineBreak returns the line break that separates a message from text that precedes it. If whole is
// empty, the line that was cut off can have begun in an earlier write.
func lineBreak(whole []byte) string {
	if len(whole) == 0 {
		return "\n"
	}
	return ""
}
