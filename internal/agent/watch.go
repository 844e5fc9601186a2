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
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

const (
	// graceAfterFinal is how long a runner may continue after the server reports a final status.
	// The final status can come from the runner itself. It can also indicate a cancellation that
	// the server can report in no other way.
	graceAfterFinal = 10 * time.Second
	// Grace periods after an interrupt, during which pulumi saves its state. The runner gives
	// pulumi the same period, so the agent waits longer before it kills the runner: it adds time
	// for the runner's log and result.
	changesGrace = 15 * time.Minute
	previewGrace = time.Minute
	graceReserve = 2 * time.Minute
	// defaultOutputWait is how long the copy of a job's output may continue after the job's exit. Some
	// engines and kubelets never end a stream. The log does not depend on it: the spool has all of it.
	defaultOutputWait = 30 * time.Second
	// outputCloseWait is how long the agent waits for a closed stream.
	outputCloseWait = 5 * time.Second
)

// follow watches a started job until it finishes. It then delivers the runner's remaining log and
// the result.
func (j *job) follow(ctx context.Context) (delivery.Verdict, error) {
	j.phase(status.Running)
	var cancelled atomic.Bool
	exit, err := j.watch(ctx, &cancelled)
	if err != nil {
		j.log.Info("the agent is stopping; the job keeps running")
		if err := j.saveEntry(); err != nil {
			j.log.WithError(err).Debug("recording the position in the job's output failed")
		}
		return delivery.Verdict{}, errStopping
	}
	if j.ranNothing(ctx, exit) {
		return j.concludeLate(ctx, nothingRan(exit))
	}
	return j.finishJob(ctx, exit, cancelled.Load())
}

// watch waits until the runner exits. Meanwhile, it copies the runner's output and polls the
// deployment's status.
func (j *job) watch(ctx context.Context, cancelled *atomic.Bool) (executor.Exit, error) {
	watching, stop := context.WithCancel(ctx)
	var statuses sync.WaitGroup
	defer statuses.Wait()
	defer stop()
	statuses.Go(func() {
		j.keepRunning(watching, "watching a deployment's status", func() { j.watchStatus(watching, cancelled) })
	})
	endOutput := j.startOutput(ctx)
	exit, err := j.wait(ctx)
	stop()
	endOutput()
	return exit, err
}

// startOutput copies the runner's output in the background. The returned function waits for the last
// lines, for a limited time. Neither the job's slot nor its result may depend on a stream.
func (j *job) startOutput(ctx context.Context) (end func()) {
	if !j.agent.opts.LogJobOutput {
		return func() {}
	}
	copying, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.recoverPanic("copying a job's output", func() { j.copyOutput(copying) })
	}()
	return func() {
		limit := time.NewTimer(j.agent.opts.OutputWait)
		defer limit.Stop()
		select {
		case <-done:
		case <-copying.Done():
		case <-limit.C:
			j.log.Warnf("the job has finished, but the stream of its output has not ended within %s; the copy of the output can be incomplete, its log is not", j.agent.opts.OutputWait)
		}
		stop()
		limit.Reset(min(outputCloseWait, j.agent.opts.OutputWait))
		select {
		case <-done:
		case <-limit.C:
			// The goroutine ends when the stream does.
			j.log.Warn("closing the stream of the job's output failed; continuing without it")
		}
	}
}

// wait returns how the runner exited. It retries until ctx is canceled, because an unavailable
// engine cannot report the state of its containers.
func (j *job) wait(ctx context.Context) (exit executor.Exit, err error) {
	err = j.agent.policy(retryLimit).Do(ctx, func(err error) bool {
		if ctx.Err() != nil || errors.Is(err, executor.ErrNotStarted) {
			return false
		}
		j.log.WithError(err).Warn("watching the job failed; the job keeps running; retrying")
		return true
	}, func() error {
		exit, err = j.agent.opts.Executor.Wait(ctx, *j.entry.Handle)
		return err
	})
	if errors.Is(err, executor.ErrNotStarted) {
		return executor.Exit{Code: -1, Lost: true, Detail: err.Error()}, nil
	}
	return exit, err
}

// watchStatus polls the deployment's status until ctx is canceled. The runner learns about a
// cancellation from its heartbeats, but a stock server reports a cancellation only in the status.
func (j *job) watchStatus(ctx context.Context, cancelled *atomic.Bool) {
	a := j.agent
	refused := false
	for retry.Sleep(ctx, retry.Spread(a.opts.JobStatusLoopInterval)) == nil {
		token, err := a.opts.Tokens.Token(ctx)
		if err != nil {
			return // ctx was canceled
		}
		status, err := a.opts.Client.Status(ctx, token, j.entry.Claim.DeploymentID)
		switch {
		case ctx.Err() != nil:
			return
		case protocol.StatusCode(err) == http.StatusUnauthorized && !protocol.Foreign(err) && a.opts.Tokens.Refused(token):
			j.log.WithError(err).Debug("requesting the deployment's status again with another token")
			continue
		case err != nil:
			if protocol.Permanent(err) && !refused {
				j.log.WithError(err).Warn("the server rejected the request for the deployment's status")
			} else {
				j.log.WithError(err).Debug("requesting the deployment's status failed")
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

// endCancelled interrupts the runner of a deployment that has finished on the server, and kills the
// runner after the grace period.
func (j *job) endCancelled(ctx context.Context, status workflow.Status, cancelled *atomic.Bool) {
	if retry.Sleep(ctx, graceAfterFinal) != nil {
		return // the runner usually exits by itself
	}
	j.log.WithField("status", status).Info("the deployment has finished on the server; interrupting the job")
	cancelled.Store(true)
	j.signal(ctx, executor.StopInterrupt)
	if retry.Sleep(ctx, j.patience()+graceReserve) != nil {
		return
	}
	j.log.Warn("the job did not finish in time; killing it")
	j.signal(ctx, executor.StopKill)
}

// patience returns how long the runner waits for pulumi after an interrupt.
func (j *job) patience() time.Duration {
	if j.entry.Claim.WorkflowType == workflow.TypePolicyEvaluation || j.entry.Operation != "" && !j.entry.Operation.Changes() {
		return previewGrace
	}
	return changesGrace
}

// signal stops the runner with the given [executor.Stop]. It retries while the executor fails.
func (j *job) signal(ctx context.Context, how executor.Stop) {
	_ = j.agent.policy(executorRetryLimit).Do(ctx, func(err error) bool {
		if errors.Is(err, executor.ErrNotStarted) {
			return false
		}
		j.log.WithError(err).Warn("stopping the job failed; retrying")
		return true
	}, func() error { return j.agent.opts.Executor.Stop(ctx, *j.entry.Handle, how) })
}

const (
	echoBuffer = 64 << 10
	echoBatch  = 32 << 10
	// maxEchoed bounds the copy of a job's output. The runner writes less than that, with its own log.
	maxEchoed = protocol.MaxEcho + 4<<20
)

// JobOutput writes the output of all jobs to one writer. Each write contains whole lines.
type JobOutput struct {
	mu sync.Mutex
	w  io.Writer
}

// NewJobOutput returns a JobOutput that writes to w.
func NewJobOutput(w io.Writer) *JobOutput { return &JobOutput{w: w} }

func (o *JobOutput) write(lines []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// An error must not affect the job: the reader of this output may have exited, and the server
	// still receives the log.
	_, _ = o.w.Write(lines)
}

// copyOutput copies the runner's output, which is the job's masked log, to the agent's own output.
// It stops when the stream ends or ctx is canceled. It skips the part that an earlier process has
// already copied.
func (j *job) copyOutput(ctx context.Context) {
	out, err := j.agent.opts.Executor.Output(ctx, *j.entry.Handle)
	if err != nil {
		j.log.WithError(err).Warn("copying the job's output failed; its log still goes to the server")
		return
	}
	defer out.Close()
	unblock := context.AfterFunc(ctx, func() { out.Close() })
	defer unblock()
	if _, err := io.CopyN(io.Discard, out, j.echoed.Load()); err != nil {
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
		full := errors.Is(err, bufio.ErrBufferFull) // a long line is copied in parts
		if len(batch) > 0 && (r.Buffered() == 0 || len(batch) >= echoBatch || err != nil && !full) {
			j.agent.opts.JobOutput.write(batch)
			batch = batch[:0]
		}
		if j.echoed.Add(int64(len(line))) > maxEchoed {
			// Other processes of the job's user can write to the file as well.
			j.log.Warnf("the job's output has more than %s; the agent copies no more of it", words.Bytes(maxEchoed))
			return
		}
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
