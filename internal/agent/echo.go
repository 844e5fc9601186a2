package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"workflowagent/internal/termtext"
)

const (
	echoBuffer = 64 << 10
	// echoBatch is how much is collected before it is written, as long as there
	// is more to read, in bytes.
	echoBatch = 32 << 10
)

// JobOutput is where the output of jobs goes in the agent's own. It is shared by
// all jobs: each write holds whole lines.
type JobOutput struct {
	mu sync.Mutex
	w  io.Writer
}

// NewJobOutput returns an output that writes to w.
func NewJobOutput(w io.Writer) *JobOutput { return &JobOutput{w: w} }

func (o *JobOutput) write(lines []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Whoever reads the agent's output may have gone; that must not hurt a job,
	// whose log is with the server.
	_, _ = o.w.Write(lines)
}

// copyOutput copies the runner's output, which is the job's masked log, to the
// agent's own, until it ends or ctx does. What an earlier process copied for
// certain is left out.
func (j *job) copyOutput(ctx context.Context) {
	out, err := j.agent.opts.Executor.Output(ctx, *j.entry.Handle)
	if err != nil {
		j.log.WithError(err).Warn("The job's output cannot be shown here; its log goes to the server all the same")
		return
	}
	defer out.Close()
	unblock := context.AfterFunc(ctx, func() { out.Close() })
	defer unblock()
	if _, err := io.CopyN(io.Discard, out, j.entry.Echoed); err != nil {
		return
	}
	tag := "[" + j.entry.Claim.DeploymentID + "] "
	r := bufio.NewReaderSize(out, echoBuffer)
	var batch []byte
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			batch = j.appendEcho(batch, tag, line)
		}
		full := errors.Is(err, bufio.ErrBufferFull) // a long line is shown in pieces
		if len(batch) > 0 && (r.Buffered() == 0 || len(batch) >= echoBatch || err != nil && !full) {
			j.agent.opts.JobOutput.write(batch)
			batch = batch[:0]
		}
		j.entry.Echoed += int64(len(line))
		if err != nil && !full {
			return
		}
	}
}

// appendEcho appends one line, tagged and harmless to a terminal.
func (j *job) appendEcho(batch []byte, tag string, line []byte) []byte {
	if j.agent.opts.JobOutput == nil {
		j.log.Info(string(termtext.Plain(nil, bytes.TrimRight(line, "\r\n"))))
		return batch
	}
	batch = append(batch, tag...)
	batch = termtext.Plain(batch, bytes.TrimRight(line, "\r\n"))
	return append(batch, '\n')
}
