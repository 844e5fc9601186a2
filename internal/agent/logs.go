package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
)

// setupStep is the agent's log while it prepares. The stream after the last step is its own,
// too.
const setupStep = 0

const (
	// ownLogLimit bounds the agent's own log of a job, in bytes: mostly a pull's progress.
	ownLogLimit = 4 << 20
	maxLine     = 4 << 10
	// lineTime bounds how long a full disk may delay a line.
	lineTime = 5 * time.Second
)

func (j *job) newCourier() *delivery.Courier {
	return delivery.NewCourier(delivery.CourierOptions{
		Server:    j.client,
		Log:       j.log,
		Stock:     j.stock(),
		Compress:  !protocol.OnLoopback(j.entry.ServiceURL),
		Retry:     j.agent.opts.JobRetry,
		Guard:     j.keepRunning,
		Reporting: func() { j.phase(status.Reporting) },
		Refused: func(err error) {
			// The server accepts evidence for a day, in which the operator may repair the
			// cause.
			j.agent.freeSlot(j.name)
			j.log.WithError(err).Warn("the server refuses the result of the job; retrying for 24 h after the end of the job")
		},
	})
}

// openLog opens the agent's own streams of the job. It retries for a job that may be running,
// because a full disk must not end it.
func (j *job) openLog(hard context.Context) error {
	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	dir := filepath.Join(j.agent.journal.SpoolDir(j.name), "agent")
	for tries := 0; ; tries++ {
		var err error
		if j.logs, err = j.courier.OpenLog(dir, delivery.Options{Limit: ownLogLimit}); err == nil {
			return nil
		}
		err = fmt.Errorf("opening the log of the job: %w", err)
		if j.entry.Handle == nil {
			return err
		}
		j.log.WithError(err).Warn("the log of the job cannot be opened; retrying")
		if j.agent.policy(executorRetryLimit).Wait(ctx, tries, nil) != nil {
			return errStopping
		}
	}
}

// writeLine writes one masked line to a stream. A line that cannot be stored goes to the
// agent's own log.
func (j *job) writeLine(log *delivery.Log, step int, format string, args ...any) {
	text := strings.Join(strings.Fields(j.masks.String(fmt.Sprintf(format, args...))), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + " …"
	}
	ctx, cancel := context.WithTimeout(context.Background(), lineTime)
	defer cancel()
	stream, err := log.Step(step)
	if err == nil {
		_, err = stream.WriteContext(ctx, []byte(text+"\n"))
	}
	if err != nil && !errors.Is(err, delivery.ErrClosed) {
		j.log.WithError(err).Warn("a line for the deployment's log is lost: " + text)
	}
}

func (j *job) endStream(log *delivery.Log, step int) {
	stream, err := log.Step(step)
	if err == nil {
		err = stream.Close()
	}
	if err != nil {
		j.log.WithError(err).Warn("the end of a log cannot be stored")
	}
}

// lastStream returns the last step whose stream is not empty, or -1.
func lastStream(log *delivery.Log) int {
	last := -1
	for _, s := range log.Summaries() {
		if s.Bytes > 0 {
			last = max(last, s.Step)
		}
	}
	return last
}
