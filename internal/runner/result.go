package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/durable"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// resultTime is how much of the time for a delivery is kept for the result alone, if the log
// does not get through: how the job ended must arrive even then.
const resultTime = 5 * time.Minute

// maxConflicts bounds how often the server may ask for more log before the bytes it
// asks for are declared gone.
const maxConflicts = 8

// deliver brings the rest of the log, the states of the steps and the verdict to
// the server. It tries for as long as the server takes evidence, or for half a
// minute once the place where the runner lives is about to go. shipper is nil if
// there is no log.
func (j *job) deliver(ctx context.Context, shipper *delivery.Shipper, v verdict) protocol.Result {
	if v.finished.IsZero() {
		v.finished = time.Now()
	}
	left := v.left()
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timing.Delivery)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-ctx.Done():
			return
		case <-j.stop.hurried:
		}
		select {
		case <-ctx.Done():
		case <-time.After(j.opts.Timing.DeliveryStopped):
			cancel()
		}
	}()
	defer func() {
		cancel()
		<-watched
	}()

	logCtx, endLog := context.WithTimeout(ctx, j.opts.Timing.Delivery-min(resultTime, j.opts.Timing.Delivery/4))
	defer endLog()
	logComplete := true
	if shipper != nil {
		if err := shipper.Flush(logCtx); err != nil {
			logComplete = false
			j.log.WithError(err).Warn("The log could not be delivered completely; the rest is in the spool")
		}
	}
	if j.reporter != nil {
		j.awaitStatuses(ctx)
	}
	if j.launch.Epoch == 0 {
		// A server with only the stock calls learns the end from the states of the steps.
		left.Reported = logComplete && ctx.Err() == nil
		return left
	}
	if err := j.result(ctx, logCtx, shipper, v); err != nil {
		j.log.WithError(err).Error("The result could not be delivered; the agent goes on with it")
		return left
	}
	left.Reported = true
	return left
}

// awaitStatuses waits until the server has the states of the steps. Where a result says
// how the job ended, the states are for people who watch and hold it up only shortly.
func (j *job) awaitStatuses(ctx context.Context) {
	if j.launch.Epoch != 0 {
		limited, cancel := context.WithTimeout(ctx, j.opts.Timing.Statuses)
		defer cancel()
		ctx = limited
	}
	j.reporter.wait(ctx)
}

// result posts the verdict until the server has taken it. Until logCtx ends it sends the log
// that the server asks for; after that it says that the log is gone.
func (j *job) result(ctx, logCtx context.Context, shipper *delivery.Shipper, v verdict) error {
	request := protocol.ResultRequest{
		Status:     v.status,
		Reason:     v.reason,
		Message:    v.message,
		ExitCode:   v.exitCode,
		Signal:     v.signal,
		FinishedAt: v.finished,
		Steps:      []protocol.StepResult{},
	}
	var gone []int
	for tries, conflicts := 0, 0; ; {
		j.describeLog(&request, gone)
		err := j.server.Result(ctx, request)
		var conflict *protocol.ResultConflictError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &conflict) && shipper != nil:
			if conflicts++; conflicts > maxConflicts {
				return fmt.Errorf("the server asked for log %d times and did not take the result: %w", conflicts, err)
			}
			gone = append(gone, j.unavailable(conflict.Missing, conflicts == maxConflicts)...)
			if err := shipper.Flush(logCtx); err != nil {
				if ctx.Err() != nil {
					return fmt.Errorf("sending the log that the server asks for: %w", err) // the agent may have the time
				}
				// Nothing more will come, so the result must not wait for it.
				for _, missing := range conflict.Missing {
					gone = append(gone, missing.Step)
				}
			}
		case protocol.Permanent(err):
			return err
		default:
			tries++
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(protocol.Backoff(j.opts.Timing.Retry, maxResultPause, tries, err)):
		}
	}
}

// describeLog fills in what the spool holds of each step.
func (j *job) describeLog(request *protocol.ResultRequest, gone []int) {
	if j.spool == nil {
		return
	}
	request.Steps = request.Steps[:0]
	for _, s := range j.spool.Summaries() {
		request.Steps = append(request.Steps, protocol.StepResult{
			Step: s.Step, Bytes: s.Bytes, SHA256: s.SHA256, Gone: slices.Contains(gone, s.Step),
		})
		request.Truncated = request.Truncated || s.Truncated
	}
}

// unavailable returns those of the missing streams that cannot be sent again: the
// server had said that it can no longer lose these bytes, so the spool has let go
// of them. With all set, the patience with the server is over.
func (j *job) unavailable(missing []protocol.MissingLog, all bool) []int {
	var steps []int
	for _, m := range missing {
		stream, err := j.spool.Step(m.Step)
		if err != nil || all {
			steps = append(steps, m.Step)
			continue
		}
		if _, durable := stream.Acked(); durable > m.Received {
			steps = append(steps, m.Step)
		}
	}
	return steps
}

// left is what the runner leaves of a verdict that the server does not have yet.
func (v verdict) left() protocol.Result {
	r := protocol.Result{Status: v.status, Reason: v.reason, FinishedAt: v.finished}
	switch {
	case v.exitCode != nil:
		r.ExitCode = *v.exitCode
	case v.status != workflow.StatusSucceeded:
		r.ExitCode = ExitFailed
	}
	return r
}

// writeResult leaves the outcome in the job directory: when it is known, and again,
// as the last thing that the runner does, when it was delivered or could not be.
func writeResult(jobDir string, result protocol.Result) error {
	data, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(jobDir, protocol.FileResult), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("leaving the result in the job directory: %w", err)
	}
	return nil
}
