// Package runner runs one job where the job lives: it takes the job from its
// standard input, drives the steps one after the other, masks and spools what
// they print, keeps the lease of the job alive, and delivers log and result.
//
// Stopping is not cancelling. The context of [Run] ends nothing by itself except
// deliveries; a job ends early only through its [stopper], which passes exactly
// one SIGINT to the leader of the running step and then waits: what a step of a
// deployment does to real infrastructure must not be interrupted by accident, and
// a server that cannot be reached is no reason either.
package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/workflow"
)

// Exit codes of `workflow-runner run` that are not a step's.
const (
	ExitFailed   = 1                     // the job failed and no step's exit code says how
	ExitNoLaunch = protocol.ExitNoLaunch // no job came in: nothing was started
)

// Server is what the runner says to the server about its job;
// [protocol.JobClient] implements it.
type Server interface {
	Definition(ctx context.Context) (*workflow.JobDefinition, error)
	Heartbeat(ctx context.Context, phase protocol.Phase) (protocol.HeartbeatResponse, error)
	StepStatus(ctx context.Context, step int, req protocol.StepStatusRequest) error
	PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (protocol.LogAck, error)
	PostLogLines(ctx context.Context, step int, lines protocol.LogLines) error
	Result(ctx context.Context, req protocol.ResultRequest) error
	// Gone reports whether the server itself has said, to any of these calls, that the
	// claim was superseded or the job has ended for good.
	Gone() bool
}

// Options are what the runner needs besides the job.
type Options struct {
	JobDir  string           // the job's own directory, see [protocol.DirSpool] and the like
	Self    string           // path of this program, which also runs steps
	Environ []string         // of the place the job runs in
	Echo    io.Writer        // where the masked log is copied to if the launch asks for it
	Signals <-chan os.Signal // SIGINT and SIGTERM of the process; nil: none
	Log     *logrus.Entry
	Timing  Timing
}

// Timing holds the runner's waits. Zero members have the values of the product.
type Timing struct {
	Heartbeat       time.Duration // between heartbeats; 10 s
	PatienceChange  time.Duration // from SIGINT to SIGKILL if the operation changes infrastructure; 15 min
	PatienceOther   time.Duration // the same for other operations; 1 min
	Linger          time.Duration // for processes that hold a step's output after its end; 10 s
	Delivery        time.Duration // for log and result after the last step; 24 h, as long as the server takes evidence
	DeliveryStopped time.Duration // the same once the runner was told to end; 30 s
	Statuses        time.Duration // how long states of steps may hold up the result; 1 min
	Retry           time.Duration // first pause after a call that failed; 0.5 s
}

func (t Timing) withDefaults() Timing {
	fill := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	fill(&t.Heartbeat, 10*time.Second)
	fill(&t.PatienceChange, 15*time.Minute)
	fill(&t.PatienceOther, time.Minute)
	fill(&t.Linger, 10*time.Second)
	fill(&t.Delivery, 24*time.Hour)
	fill(&t.DeliveryStopped, 30*time.Second)
	fill(&t.Statuses, time.Minute)
	fill(&t.Retry, 500*time.Millisecond)
	return t
}

// job is one run of one job.
type job struct {
	opts       Options
	launch     *protocol.Launch
	definition *workflow.JobDefinition
	server     Server
	log        *logrus.Entry

	masks    *redact.Set
	spool    *delivery.Spool
	stop     *stopper
	reporter *reporter
	env      *environment
	notices  []string // for the log of the first step
	sessions []int    // of the steps that ran

	delivering atomic.Bool // the work is done
}

// Run runs the job of launch to its end and delivers its log and result. It
// returns the exit code of the process: 0 for a job that succeeded. The error, if
// any, is for the operator; the deployment's log has its own.
func Run(ctx context.Context, launch *protocol.Launch, server Server, opts Options) (int, error) {
	opts.Timing = opts.Timing.withDefaults()
	j := &job{
		opts:   opts,
		launch: launch,
		server: server,
		log:    opts.Log,
		stop:   newStopper(),
		masks:  redact.New(launchSecrets(launch), redact.Options{}),
	}
	outcome, err := j.run(ctx)
	if fileErr := writeResult(opts.JobDir, outcome.Sealed(launch.JobToken)); fileErr != nil {
		err = errors.Join(err, fileErr)
	}
	if outcome.Status == workflow.StatusSucceeded {
		return 0, err
	}
	if outcome.ExitCode == ExitNoLaunch { // as an exit code of ours it says that nothing was started
		return ExitFailed, err
	}
	return outcome.ExitCode, err
}

// run does everything but leaving the result file.
func (j *job) run(ctx context.Context) (protocol.Result, error) {
	spool, err := delivery.Open(filepath.Join(j.opts.JobDir, protocol.DirSpool), delivery.Options{Log: j.log})
	if err != nil {
		verdict := verdict{status: workflow.StatusFailed, reason: workflow.ReasonInternalError, message: "the runner could not keep the log: " + err.Error()}
		return j.deliver(ctx, nil, verdict), err
	}
	defer func() {
		if err := spool.Close(); err != nil {
			j.log.WithError(err).Warn("Closing the log spool failed")
		}
	}()
	j.spool = spool

	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackground()
	var owned sync.WaitGroup
	defer owned.Wait()
	defer endBackground()

	j.reporter = newReporter(j.server, j.opts.Timing.Retry, j.log)
	pulse := newPulse(j.server, j.opts.Timing.Heartbeat, j.stop, j.log)
	shipper := delivery.NewShipper(spool, j.sender(), delivery.ShipperOptions{
		Compress: !protocol.OnLoopback(j.launch.ServiceURL), // there is no network to spare
		Log:      j.log,
	})
	owned.Go(func() { j.reporter.run(background) })
	owned.Go(func() { pulse.run(background) })
	owned.Go(func() { j.relaySignals(background) })
	shipped := make(chan struct{})
	go func() {
		defer close(shipped)
		if err := shipper.Run(background); err != nil && background.Err() == nil {
			j.log.WithError(err).Warn("Sending the log has stopped")
		}
	}()
	defer func() {
		endBackground()
		<-shipped // before the spool is closed
	}()

	v := j.work(background)
	j.delivering.Store(true)
	pulse.finish()
	// Whoever ends the runner from here on does not change how the job ended.
	if err := writeResult(j.opts.JobDir, v.left().Sealed(j.launch.JobToken)); err != nil {
		j.log.WithError(err).Warn("The end of the job could not be noted before its delivery")
	}
	killSessions(j.sessions...)
	if !killDescendants() {
		j.log.Warn("Processes that the job has left could not be ended")
	}
	reapOrphans()
	return j.deliver(background, shipper, v), nil
}

// relaySignals turns the signals of the process into requests to end. Repeating
// one changes nothing.
func (j *job) relaySignals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-j.opts.Signals:
			reason := workflow.ReasonCancelled
			switch {
			case sig == syscall.SIGTERM:
				reason = workflow.ReasonAgentStopped
			case j.launch.Epoch != 0 && !j.launch.Offline:
				// That server tells of a cancellation itself. This is somebody else, such
				// as an engine that shuts down.
				reason = workflow.ReasonEvicted
			}
			if j.stop.interrupt(reason) {
				j.log.WithField("signal", sig.String()).Info("The job was asked to end")
			}
			if sig == syscall.SIGTERM || j.delivering.Load() {
				j.stop.hurry()
			}
		}
	}
}

// verdict is how the work of a job ended.
type verdict struct {
	status   workflow.Status
	reason   workflow.Reason
	message  string
	exitCode *int
	signal   string
	finished time.Time
}

// work runs the steps and says how they ended.
func (j *job) work(ctx context.Context) verdict {
	v := j.steps(ctx)
	if v.finished.IsZero() {
		v.finished = time.Now()
	}
	v.message = j.masks.String(v.message)
	fields := logrus.Fields{"status": v.status}
	if v.reason != workflow.ReasonNone {
		fields["reason"] = v.reason
	}
	j.log.WithFields(fields).Info("The work of the job has ended")
	return v
}

func (j *job) steps(ctx context.Context) verdict {
	if err := j.define(ctx); err != nil {
		return j.refuse(workflow.ReasonInvalidJob, err)
	}
	if err := j.prepare(); err != nil {
		return j.refuse(workflow.ReasonInternalError, err)
	}
	if timeout := time.Duration(j.definition.Timeout); timeout > 0 {
		timer := time.AfterFunc(timeout, func() { j.stop.interrupt(workflow.ReasonTimeout) })
		defer timer.Stop()
	}
	preRun := 0
	for index, step := range j.definition.Steps {
		if index == 0 || step.Run == workflow.RunSetup {
			continue // the agent's
		}
		if reason, stopped := j.stop.reason(); stopped {
			return verdict{
				status: workflow.StatusFailed, reason: reason,
				message: fmt.Sprintf("%s before the step %q", describeStop(reason), step.Name),
			}
		}
		if j.server.Gone() {
			return verdict{
				status: workflow.StatusFailed, reason: workflow.ReasonLost,
				message: fmt.Sprintf("the server has ended this job or given it to another agent; the step %q was not started", step.Name),
			}
		}
		v := j.step(index, step, preRun)
		if v.status != workflow.StatusSucceeded {
			return v
		}
		if step.Run == workflow.RunPreRun {
			preRun++
		}
	}
	return verdict{status: workflow.StatusSucceeded}
}

// define gets and checks the definition.
func (j *job) define(ctx context.Context) error {
	j.definition = j.launch.Definition
	if j.definition == nil {
		definition, err := j.server.Definition(ctx)
		if err != nil {
			return fmt.Errorf("getting the job definition: %w", err)
		}
		j.definition = definition
		j.masks.Add(definitionSecrets(definition)...)
	}
	return j.definition.Validate()
}

// prepare makes the directories and the environment of the steps.
func (j *job) prepare() error {
	for _, name := range j.masks.Skipped() {
		j.notices = append(j.notices, fmt.Sprintf("warning: the value of %s is shorter than %d characters, so it cannot be masked", name, redact.MinLength))
	}
	if err := os.MkdirAll(filepath.Join(j.opts.JobDir, protocol.DirWork), 0o755); err != nil {
		return fmt.Errorf("making the job's work directory: %w", err)
	}
	env, err := newEnvironment(j.opts, j.launch, j.definition)
	if err != nil {
		return err
	}
	j.env = env
	j.notices = append(j.notices, env.notices...)
	return nil
}

// refuse reports a job that cannot be run in the log of its first step.
func (j *job) refuse(reason workflow.Reason, err error) verdict {
	message := err.Error()
	if stream, streamErr := j.spool.Step(1); streamErr == nil {
		out := newStepLog(j.masks, stream, j.echo(), j.log)
		out.line("error: " + message)
		out.close()
	}
	now := time.Now()
	j.reporter.report(1, protocol.StepStatusRequest{Status: workflow.StepFailed, StartedAt: &now, FinishedAt: &now})
	return verdict{status: workflow.StatusFailed, reason: reason, message: message}
}

// echo returns where the masked log is copied to, or nil.
func (j *job) echo() io.Writer {
	if j.launch.EchoLog {
		return j.opts.Echo
	}
	return nil
}
