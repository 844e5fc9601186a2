// Package runner runs one job inside its container or on its host. It reads the job from standard
// input, runs the steps in order, masks and spools their output, keeps the job's lease alive, and
// delivers the log and the result.
//
// Stopping is not cancelling. The context of [Run] stops only deliveries. Only the [stopper] stops
// a job early: it sends exactly one SIGINT to the leader of the running step and then waits.
// Neither an accident nor an unreachable server may interrupt a step's changes to real
// infrastructure.
package runner

import (
	"cmp"
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
	"workflowagent/internal/runner/credentials"
	"workflowagent/internal/runner/environ"
	"workflowagent/internal/runner/policy"
	"workflowagent/internal/runner/process"
	"workflowagent/internal/workflow"
)

// Exit codes of `workflow-runner run` that are not a step's.
const (
	ExitFailed   = 1                     // the job failed, but no step's exit code is the cause
	ExitNoLaunch = protocol.ExitNoLaunch // no job was received, and nothing was started
	ExitNoLeave  = protocol.ExitNoLeave  // the job received no permission to start, and nothing was started
)

// Server is the server that assigned the job; [protocol.JobClient] implements it.
type Server interface {
	delivery.Server
	credentials.Server
	Definition(ctx context.Context) (*workflow.JobDefinition, error)
	Heartbeat(ctx context.Context, phase protocol.Phase) (protocol.HeartbeatResponse, error)
	// OpenedSecrets returns the secrets of the environments that the job has opened, unless their count is known.
	OpenedSecrets(ctx context.Context, known int64) (protocol.OpenedSecrets, error)
	// OpenEnvironments opens the environments of the deployment's settings.
	OpenEnvironments(ctx context.Context) (protocol.JobEnvironments, error)
	// Gone reports whether the server itself has responded to any of these calls that the claim is
	// superseded or the job's result is final.
	Gone() bool
}

// Options configure [Run].
type Options struct {
	JobDir  string           // the job's own directory; see [protocol.DirSpool]
	Self    string           // path of this program, which also runs steps
	Version string           // of this program
	Environ []string         // environment in which the job runs
	Echo    io.Writer        // receives the masked log if the launch requests it
	Signals <-chan os.Signal // SIGINT and SIGTERM of the process; nil: none
	Log     *logrus.Entry
	Timing  Timing
	// InPod means that the job runs in a pod: SIGTERM means that the pod is being removed, another
	// container reads the spool, and the result is the container's termination message.
	InPod bool
	// PulumiEnv replaces [protocol.FilePulumiEnv] in tests.
	PulumiEnv string
	// Cancelled means that the job was cancelled while it received permission to start.
	Cancelled bool
}

// Timing contains the runner's intervals and timeouts. Zero members get the product's values.
type Timing struct {
	Heartbeat       time.Duration // between heartbeats; 10 s
	PatienceChange  time.Duration // from SIGINT to SIGKILL if the operation can change infrastructure; 15 min
	PatienceOther   time.Duration // the same for other operations; 1 min
	PostRun         time.Duration // for all post-run commands; 10 min
	PostRunStopped  time.Duration // the same after a request to stop; 1 min
	Linger          time.Duration // for processes that hold a step's output open after the step has finished; 10 s
	Delivery        time.Duration // for log and result after the last step; 24 h, the time for which the server accepts evidence
	DeliveryStopped time.Duration // the same after a request to stop; 30 s
	Retry           time.Duration // first pause after a failed call; 0.5 s
}

func (t Timing) withDefaults() Timing {
	t.Heartbeat = cmp.Or(t.Heartbeat, 10*time.Second)
	t.PatienceChange = cmp.Or(t.PatienceChange, 15*time.Minute)
	t.PatienceOther = cmp.Or(t.PatienceOther, time.Minute)
	t.PostRun = cmp.Or(t.PostRun, 10*time.Minute)
	t.PostRunStopped = cmp.Or(t.PostRunStopped, time.Minute)
	t.Linger = cmp.Or(t.Linger, 10*time.Second)
	t.Delivery = cmp.Or(t.Delivery, 24*time.Hour)
	t.DeliveryStopped = cmp.Or(t.DeliveryStopped, 30*time.Second)
	return t
}

type job struct {
	opts       Options
	launch     *protocol.Launch
	definition *workflow.JobDefinition
	server     Server
	log        *logrus.Entry

	masks    *redact.Set
	courier  *delivery.Courier
	spool    *delivery.Log
	stop     *stopper
	env      *environ.Environment
	keeper   *credentials.Keeper
	keep     *keeping
	notices  notices
	openings openings
	policy   *policy.Files // of a policy evaluation

	heartbeats *heartbeats

	deadline time.Time // of the job; zero for none
	sessions []int     // of the steps that ran
	begun    bool      // a step after those for credentials, source and environments has started

	pulumiVersion string // of the steps' pulumi, if the job selects versions

	delivering atomic.Bool // the steps have finished
}

// Run runs the job of launch and delivers its log and result. It returns the exit code of the
// process: 0 if the job succeeded. The error, if any, is for the operator. The deployment's log
// contains its own errors.
func Run(ctx context.Context, launch *protocol.Launch, server Server, opts Options) (int, error) {
	opts.Timing = opts.Timing.withDefaults()
	if opts.Echo != nil {
		opts.Echo = newEcho(opts.Echo)
	}
	j := &job{
		opts:   opts,
		launch: launch,
		server: server,
		log:    opts.Log,
		stop:   newStopper(),
		masks:  redact.New(),
		keep:   &keeping{},
	}
	j.openings = openings{server: server, masks: j.masks, notify: j.notices.add, log: j.log, retry: opts.Timing.Retry}
	if opts.Cancelled {
		j.stop.interrupt(workflow.ReasonCancelled)
	}
	outcome, err := j.run(ctx)
	if fileErr := j.writeOutcome(outcome); fileErr != nil {
		err = errors.Join(err, fileErr)
	}
	if outcome.Status == workflow.StatusSucceeded {
		return 0, err
	}
	switch outcome.ExitCode { // as the runner's exit codes, these mean that nothing was started
	case ExitNoLaunch, ExitNoLeave:
		return ExitFailed, err
	}
	return outcome.ExitCode, err
}

// podSegmentBytes is the size of the spool's files in a pod. The sidecar prints whole files, of which
// the server can have a part already, and the cluster keeps only about 10 MiB of its output.
const podSegmentBytes = 1 << 20

func (j *job) run(ctx context.Context) (protocol.Result, error) {
	j.courier = delivery.NewCourier(delivery.CourierOptions{
		Server:   j.server,
		Log:      j.log,
		Stock:    j.launch.Epoch == 0,
		Compress: !protocol.OnLoopback(j.launch.ServiceURL), // loopback traffic needs no compression
		Retry:    j.opts.Timing.Retry,
	})
	defer func() {
		if err := j.courier.Close(); err != nil {
			j.log.WithError(err).Warn("closing the log spool")
		}
	}()
	background, endBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer endBackground()
	err := j.makeDir()
	if err == nil {
		opts := delivery.Options{Stopped: j.stop.interrupted}
		if j.opts.InPod {
			opts.Readable, opts.SegmentBytes = true, podSegmentBytes
		}
		j.spool, err = j.courier.OpenLog(filepath.Join(j.opts.JobDir, protocol.DirSpool), opts)
	}
	if err != nil {
		v := delivery.Failed(workflow.ReasonInternalError, "the runner could not keep the log: %v", err)
		v.FinishedAt = time.Now()
		return j.deliver(background, v), err
	}
	var owned sync.WaitGroup
	defer owned.Wait()
	defer endBackground()
	j.heartbeats = newHeartbeats(j.server, j.opts.Timing.Heartbeat, j.stop, j.log)
	owned.Go(func() { j.heartbeats.run(background) })
	owned.Go(func() { j.relaySignals(background) })

	v := j.work(background)
	j.delivering.Store(true)
	j.heartbeats.finish()
	// From here on, the job's result no longer depends on the runner.
	if err := j.writeOutcome(outcomeOf(v)); err != nil {
		j.log.WithError(err).Warn("writing the job's result before its delivery")
	}
	process.KillSessions(j.sessions...)
	alone := process.KillDescendants()
	if !alone {
		j.log.Warn("killing the job's leftover processes")
	}
	process.ReapOrphans()
	// The user waits for the delivery, and the next job of the stack waits for a moment.
	_, stopped := j.stop.reason()
	owned.Go(func() { j.giveBack(context.WithoutCancel(ctx), v, alone && !stopped) })
	return j.deliver(background, v), nil
}

// relaySignals turns the process's signals into requests to stop. Repeated signals have no effect.
func (j *job) relaySignals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-j.opts.Signals:
			reason := workflow.ReasonCancelled
			switch {
			case sig == syscall.SIGTERM && !j.opts.InPod:
				reason = workflow.ReasonAgentStopped
			case j.opts.InPod, j.launch.Epoch != 0 && !j.launch.Offline:
				// This server reports cancellations itself, so the signal has another cause, such
				// as the shutdown of the engine.
				reason = workflow.ReasonEvicted
			}
			if j.stop.interrupt(reason) {
				j.log.WithField("signal", sig.String()).Info("received a request to stop the job")
			}
			if sig == syscall.SIGTERM || j.delivering.Load() {
				j.stop.hurry()
			}
		}
	}
}

func (j *job) work(ctx context.Context) delivery.Verdict {
	v := j.steps(ctx)
	if v.FinishedAt.IsZero() {
		v.FinishedAt = time.Now()
	}
	v.Message = j.masks.String(v.Message)
	fields := logrus.Fields{"status": v.Status}
	if v.Reason != workflow.ReasonNone {
		fields["reason"] = v.Reason
	}
	j.log.WithFields(fields).Info("the job's steps have finished")
	return v
}

func (j *job) steps(ctx context.Context) delivery.Verdict {
	if err := j.define(ctx); err != nil {
		if reason, stopped := j.stop.reason(); stopped {
			return delivery.Failed(reason, "%s before the first step", describeStop(reason))
		}
		return j.refuse(workflow.ReasonInvalidJob, err)
	}
	if err := j.prepare(ctx); err != nil {
		return j.refuse(workflow.ReasonInternalError, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var owned sync.WaitGroup
	owned.Go(func() { j.keeper.Run(ctx) })
	defer func() {
		cancel()
		owned.Wait()
		j.keeper.Close()
	}()
	if timeout := time.Duration(j.definition.Timeout); timeout > 0 {
		j.deadline = time.Now().Add(timeout)
		timer := time.AfterFunc(timeout, func() { j.stop.interrupt(workflow.ReasonTimeout) })
		defer timer.Stop()
	}
	if err := j.checkPulumi(ctx); err != nil {
		if reason, stopped := j.stop.reason(); stopped {
			return delivery.Failed(reason, "%s before the first step", describeStop(reason))
		}
		return j.refuse(workflow.ReasonInvalidJob, err)
	}
	defer func() { _ = j.policy.Close() }() // they have no names, so nothing else can fail
	defer func() {                          // before the log is delivered, which can take hours
		if err := os.RemoveAll(filepath.Join(j.opts.JobDir, dirEnvironments)); err != nil {
			j.log.WithError(err).Warn("removing the files of environments")
		}
	}()
	v := j.planned(ctx)
	return j.postRun(ctx, v)
}

// planned runs the steps of the definition.
func (j *job) planned(ctx context.Context) delivery.Verdict {
	preRun := 0
	result := delivery.Verdict{Status: workflow.StatusSucceeded}
	for index, step := range j.definition.Steps {
		if index == 0 || step.Run == workflow.RunSetup {
			continue // the agent reports this step
		}
		if reason, stopped := j.stop.reason(); stopped {
			return delivery.Failed(reason, "%s before the step %q", describeStop(reason), step.Name)
		}
		if j.server.Gone() {
			return delivery.Failed(workflow.ReasonLost, "the server has finished this job or assigned it to another agent; the step %q was not started", step.Name)
		}
		switch step.Run {
		case workflow.RunCredentials, workflow.RunSourceGit, workflow.RunEnvironments:
		default:
			j.begun = true
		}
		v := j.step(ctx, index, step, preRun)
		if v.Status != workflow.StatusSucceeded {
			if _, stopped := j.stop.reason(); stopped || v.ExitCode == nil || v.Signal != "" || !policy.Continues(step.Run, *v.ExitCode) {
				return v
			}
			result = v
		}
		if step.Run == workflow.RunPreRun {
			preRun++
		}
	}
	return result
}

// mask adds secrets to those that are masked. It ends early if the job must stop.
func (j *job) mask(ctx context.Context, secrets []redact.Secret) (err error) {
	j.untilStopped(ctx, func(ctx context.Context) { err = j.masks.Add(ctx, secrets...) })
	return err
}

func (j *job) define(ctx context.Context) error {
	if err := j.mask(ctx, environ.Secrets(j.launch)); err != nil {
		return err
	}
	j.definition = j.launch.Definition
	if j.definition == nil {
		definition, err := j.server.Definition(ctx)
		if err != nil {
			return fmt.Errorf("requesting the job definition: %w", err)
		}
		j.definition = definition
		if err := j.mask(ctx, environ.DefinitionSecrets(definition)); err != nil {
			return err
		}
	}
	j.heartbeats.restarts.Store(j.definition.PolicyEvaluation != nil)
	return j.definition.Validate()
}

func (j *job) prepare(ctx context.Context) error {
	for _, name := range j.masks.Skipped() {
		j.notices.add(fmt.Sprintf("warning: cannot mask the value of %s, which is shorter than %d characters", name, redact.MinLength))
	}
	if err := os.MkdirAll(filepath.Join(j.opts.JobDir, protocol.DirWork), 0o755); err != nil {
		return fmt.Errorf("creating the job's work directory: %w", err)
	}
	launch := j.launch
	if e := j.definition.PolicyEvaluation; e != nil {
		var err error
		if j.policy, err = policy.NewFiles(j.opts.JobDir, len(e.Packs)); err != nil {
			return err
		}
		without := *launch
		without.ForwardedEnv = nil // policy packs are foreign code
		launch = &without
	}
	env, err := environ.New(j.opts.JobDir, cmp.Or(j.opts.PulumiEnv, protocol.FilePulumiEnv), j.opts.Environ, launch, j.definition)
	if err != nil {
		return err
	}
	j.env = env
	for _, notice := range env.Notices {
		j.notices.add(notice)
	}
	j.untilStopped(ctx, j.openWorkspace)
	j.keeper, err = j.newKeeper()
	return err
}

func (j *job) refuse(reason workflow.Reason, err error) delivery.Verdict {
	message := err.Error()
	if stream, streamErr := j.spool.Step(1); streamErr == nil {
		out := newStepLog(j.masks, stream, j.echo(), j.log)
		out.line("error: " + message)
		out.close()
	}
	now := time.Now()
	j.courier.ReportStep(1, protocol.StepStatusRequest{Status: workflow.StepFailed, StartedAt: &now, FinishedAt: &now})
	return delivery.Failed(reason, "%s", message)
}

func (j *job) echo() io.Writer {
	if j.launch.EchoLog {
		return j.opts.Echo
	}
	return nil
}
