package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/durable"
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

// writeOutcome writes the sealed outcome to the job's directory and, in a pod, to the container's
// termination message. It is called when the outcome is known, and again after its delivery.
func (j *job) writeOutcome(outcome protocol.Result) error {
	data, err := json.Marshal(outcome.Sealed(j.launch.JobToken))
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	data = append(data, '\n')
	mode := fs.FileMode(0o600)
	if j.opts.InPod {
		mode = 0o644
	}
	err = nil
	if fileErr := durable.WriteFile(filepath.Join(j.opts.JobDir, protocol.FileResult), data, mode); fileErr != nil {
		err = fmt.Errorf("writing the result to the job directory: %w", fileErr)
	}
	if j.opts.InPod {
		err = errors.Join(err, writeMessage(protocol.FileTermination, data))
	}
	return err
}

// writeMessage replaces the content of an existing file. Without the file, nobody reads the
// message, and writeMessage does nothing. The file cannot be replaced, because it is a mount.
func writeMessage(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the container's termination message: %w", err)
	}
	return nil
}

// makeDir creates the job's directory. In a pod, a container with another user reads the spool and
// the result in it, but cannot list it.
func (j *job) makeDir() error {
	mode := fs.FileMode(0o700)
	if j.opts.InPod {
		mode = 0o711
	}
	err := os.MkdirAll(j.opts.JobDir, mode)
	if err == nil && j.opts.InPod {
		err = os.Chmod(j.opts.JobDir, mode) // whatever the umask
	}
	if err != nil {
		return fmt.Errorf("creating the job directory: %w", err)
	}
	return nil
}
