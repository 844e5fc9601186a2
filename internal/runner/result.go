package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/durable"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// deliver sends the remaining log, the steps' statuses and the result, for as long as the server
// accepts them. After a request to stop, it has only half a minute.
func (j *job) deliver(ctx context.Context, v delivery.Verdict) protocol.Result {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timing.Delivery)
	defer cancel()
	unlink := context.AfterFunc(j.stop.hurried, func() { time.AfterFunc(j.opts.Timing.DeliveryStopped, cancel) })
	defer unlink()

	outcome := outcomeOf(v)
	if err := j.courier.Deliver(ctx, v); err != nil {
		j.log.WithError(err).Error("the result could not be delivered; the agent delivers it")
		return outcome
	}
	outcome.Reported = true
	return outcome
}

// outcomeOf returns the result that the runner reports to the agent for a verdict.
func outcomeOf(v delivery.Verdict) protocol.Result {
	r := protocol.Result{Status: v.Status, Reason: v.Reason, FinishedAt: v.FinishedAt}
	switch {
	case v.ExitCode != nil:
		r.ExitCode = *v.ExitCode
	case v.Status != workflow.StatusSucceeded:
		r.ExitCode = ExitFailed
	}
	return r
}

// writeOutcome writes the outcome to the job's directory. It is called when the outcome is known,
// and again after its delivery.
func writeOutcome(jobDir string, outcome protocol.Result) error {
	data, err := json.Marshal(outcome)
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(jobDir, protocol.FileResult), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the result to the job directory: %w", err)
	}
	return nil
}
