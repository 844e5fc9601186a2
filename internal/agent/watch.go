package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	// graceAfterFinal is how long a runner may continue after its deployment has a final status
	// on a server that cannot report a cancellation otherwise: the runner itself may have
	// reported that status.
	graceAfterFinal = 10 * time.Second
	// Grace periods after an interrupt, in which pulumi saves its state. The runner gives
	// pulumi the same period, so the agent adds a reserve for the runner's log and result
	// before it kills the runner.
	patienceChanges = 15 * time.Minute
	patiencePreview = time.Minute
	patienceReserve = 2 * time.Minute
)

// follow watches a started job to its end and delivers the runner's remaining log and result.
func (j *job) follow(hard context.Context) (delivery.Verdict, error) {
	j.phase(status.Running)
	ctx, cancel := j.untilStopped(hard)
	defer cancel(nil)
	var cancelled atomic.Bool
	exit, err := j.watch(ctx, &cancelled)
	if err != nil {
		j.log.Info("the agent stops; the job keeps running")
		if err := j.saveEntry(); err != nil {
			j.log.WithError(err).Debug("noting how much of the output was shown failed")
		}
		return delivery.Verdict{}, errStopping
	}
	return j.finishJob(ctx, exit, cancelled.Load())
}

// watch waits for the runner's end. Meanwhile it copies the output and polls the deployment's
// status.
func (j *job) watch(ctx context.Context, cancelled *atomic.Bool) (executor.Exit, error) {
	watching, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	beside.Go(func() {
		j.keepRunning(watching, "watching the status of a deployment", func() { j.watchStatus(watching, cancelled) })
	})
	var output sync.WaitGroup
	if j.agent.opts.LogJobOutput {
		output.Go(func() { j.recoverPanic("copying the output of a job", func() { j.copyOutput(ctx) }) })
	}
	exit, err := j.wait(ctx)
	stop()
	output.Wait() // its last lines, bounded by the end of the stream and by ctx
	return exit, err
}

// wait returns how the runner ended. It retries until ctx ends: an engine that is down cannot
// report on its containers.
func (j *job) wait(ctx context.Context) (executor.Exit, error) {
	for tries, told := 0, false; ; tries++ {
		exit, err := j.agent.opts.Executor.Wait(ctx, *j.entry.Handle)
		if err == nil {
			if told {
				j.log.Info("the job can be watched again")
			}
			return exit, nil
		}
		if ctx.Err() != nil {
			return executor.Exit{}, context.Cause(ctx)
		}
		if errors.Is(err, executor.ErrNotStarted) {
			return executor.Exit{Code: -1, Lost: true, Detail: err.Error()}, nil
		}
		if !told {
			j.log.WithError(err).Warn("the job cannot be watched; it keeps running")
			told = true
		}
		if err := j.agent.policy(executorRetryLimit).Wait(ctx, tries, nil); err != nil {
			return executor.Exit{}, err
		}
	}
}

// watchStatus polls the deployment's status until ctx ends. The runner learns of a cancellation
// by its heartbeats; on a stock server the status is the only sign.
func (j *job) watchStatus(ctx context.Context, cancelled *atomic.Bool) {
	a := j.agent
	refused := false
	for retry.Sleep(ctx, retry.Spread(a.opts.StatusInterval)) == nil {
		token, err := a.opts.Tokens.Token(ctx)
		if err != nil {
			return // ctx has ended
		}
		status, err := a.opts.Client.Status(ctx, token, j.entry.Claim.DeploymentID)
		switch {
		case ctx.Err() != nil:
			return
		case protocol.StatusCode(err) == http.StatusUnauthorized && !protocol.Foreign(err) && a.opts.Tokens.Refused(token):
			j.log.WithError(err).Debug("retrying the status of the deployment with another token")
			continue
		case err != nil:
			if protocol.Permanent(err) && !refused {
				j.log.WithError(err).Warn("the server refuses the status of this deployment")
			} else {
				j.log.WithError(err).Debug("the status of the deployment is unknown")
			}
			refused = protocol.Permanent(err)
			continue
		}
		refused = false
		a.opts.Monitor.Activity()
		if status.Final() && j.entry.Claim.Epoch == 0 {
			j.endCancelled(ctx, status, cancelled)
			return
		}
	}
}

// endCancelled interrupts the runner of an ended deployment, and kills it after the grace
// period.
func (j *job) endCancelled(ctx context.Context, status workflow.Status, cancelled *atomic.Bool) {
	if retry.Sleep(ctx, graceAfterFinal) != nil {
		return // it ended by itself, as it usually does
	}
	j.log.WithField("status", status).Info("the deployment has ended on the server; interrupting its job")
	cancelled.Store(true)
	j.signal(ctx, executor.StopInterrupt)
	patience := patienceChanges
	if j.entry.Operation != "" && !j.entry.Operation.Changes() {
		patience = patiencePreview
	}
	if retry.Sleep(ctx, patience+patienceReserve) != nil {
		return
	}
	j.log.Warn("the job did not end in time; killing it")
	j.signal(ctx, executor.StopKill)
}

// signal delivers a stop, and retries while the executor fails.
func (j *job) signal(ctx context.Context, how executor.Stop) {
	for tries := 0; ; tries++ {
		err := j.agent.opts.Executor.Stop(ctx, *j.entry.Handle, how)
		if err == nil || errors.Is(err, executor.ErrNotStarted) {
			return
		}
		j.log.WithError(err).Warn("stopping the job failed; retrying")
		if j.agent.policy(executorRetryLimit).Wait(ctx, tries, nil) != nil {
			return
		}
	}
}

const (
	echoBuffer = 64 << 10
	echoBatch  = 32 << 10
)

// JobOutput writes the output of jobs to the agent's own. All jobs share it: each write holds
// whole lines.
type JobOutput struct {
	mu sync.Mutex
	w  io.Writer
}

// NewJobOutput returns an output that writes to w.
func NewJobOutput(w io.Writer) *JobOutput { return &JobOutput{w: w} }

func (o *JobOutput) write(lines []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// The reader of the agent's output may be gone, which must not affect a job: its log goes
	// to the server.
	_, _ = o.w.Write(lines)
}

// copyOutput copies the runner's output, which is the job's masked log, to the agent's own,
// until it ends or ctx does. It skips what an earlier process is known to have copied.
func (j *job) copyOutput(ctx context.Context) {
	out, err := j.agent.opts.Executor.Output(ctx, *j.entry.Handle)
	if err != nil {
		j.log.WithError(err).Warn("the job's output cannot be shown here; the server still gets its log")
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

func (j *job) appendEcho(batch []byte, tag string, line []byte) []byte {
	if j.agent.opts.JobOutput == nil {
		j.log.Info(string(termtext.Plain(nil, bytes.TrimRight(line, "\r\n"))))
		return batch
	}
	batch = append(batch, tag...)
	batch = termtext.Plain(batch, bytes.TrimRight(line, "\r\n"))
	return append(batch, '\n')
}
