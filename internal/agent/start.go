package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

// prepare fetches and checks the definition, and calls the executor to prepare the job. Meanwhile,
// heartbeats renew the job's lease.
func (j *job) prepare(ctx context.Context, cancel context.CancelCauseFunc) (*workflow.JobDefinition, error) {
	defer j.renewLease(ctx, cancel)()
	definition, err := j.admitted(ctx)
	if err != nil {
		return nil, err
	}
	limited, done := context.WithTimeout(ctx, prepareTime)
	defer done()
	progress := func(line string) { j.writeSetup("%s", line) }
	spec := j.spec(definition)
	if spec.Pulumi, err = j.pulumi(definition, progress); err != nil {
		return nil, err
	}
	handle, err := j.agent.opts.Executor.Prepare(limited, spec, progress)
	if err == nil {
		j.entry.Handle = &handle
		if j.agent.opts.Keeper != nil {
			j.agent.opts.Keeper.Touch(spec.Workspace, j.entry.Stack)
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return nil, &executor.Error{Reason: workflow.ReasonLaunch, Message: fmt.Sprintf("Preparing the job took longer than %s.", prepareTime), Err: err}
	case err != nil:
		return nil, fmt.Errorf("preparing the job: %w", err)
	}
	return definition, nil
}

// admitted returns the job's definition, or an error if this agent must not run the job.
func (j *job) admitted(ctx context.Context) (*workflow.JobDefinition, error) {
	definition, err := j.fetchDefinition(ctx)
	if err != nil {
		return nil, err
	}
	return definition, j.agent.admit(j.entry.Claim, definition)
}

// renewLease keeps the job's lease until the returned function is called. It calls cancel if the server
// ends the job.
func (j *job) renewLease(ctx context.Context, cancel context.CancelCauseFunc) (release func()) {
	var lease sync.WaitGroup
	leased, end := context.WithCancel(ctx)
	log := j.log // learn replaces j.log
	lease.Go(func() {
		j.keepRunning(leased, "renewing a job's lease", func() { j.keepLease(leased, cancel, log) })
	})
	return func() {
		end()
		lease.Wait()
	}
}

// keepLease sends heartbeats. It cancels the preparation if the server ends the job.
func (j *job) keepLease(ctx context.Context, cancel context.CancelCauseFunc, log *logrus.Entry) {
	for tries := 0; ; {
		pause := retry.Spread(heartbeatInterval)
		response, err := j.client.Heartbeat(ctx, protocol.PhasePreparing)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && response.Started && j.launcher() != nil:
			return // the runner keeps the lease now, and learns of a cancellation
		case err == nil && response.CancelRequested:
			cancel(errCancelled)
			return
		case err == nil:
			tries = 0
		case protocol.Refused(err):
			if !j.stock() { // a stock server does not support heartbeats
				cancel(errSuperseded)
			}
			return
		default:
			pause = j.agent.policy(retryLimit).Pause(tries, err)
			tries++
			log.WithError(err).Debug("sending a heartbeat failed; retrying")
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// fetchDefinition returns the job's definition. It retries until the server requeues the job.
func (j *job) fetchDefinition(ctx context.Context) (*workflow.JobDefinition, error) {
	limited, cancel := context.WithTimeout(ctx, definitionTime)
	defer cancel()
	var definition *workflow.JobDefinition
	err := j.agent.policy(retryLimit).Do(limited, func(err error) bool {
		_, bad := errors.AsType[*protocol.DefinitionError](err)
		return !bad && !protocol.Refused(err) && !protocol.Permanent(err)
	}, func() (err error) {
		definition, err = j.client.Definition(limited)
		return err
	})
	switch {
	case err == nil:
		return definition, j.learn(ctx, definition)
	case protocol.Refused(err):
		return nil, errSuperseded
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("fetching the job's definition: %w", err)
}

// shownEvaluation takes the place of a deployment's operation in the agent's status.
const shownEvaluation workflow.Operation = "policy evaluation"

// learn copies the fields that the agent needs from the definition, and applies the host's settings
// to the definition. It returns an error if the job has more secrets than can be masked.
func (j *job) learn(ctx context.Context, definition *workflow.JobDefinition) error {
	if err := j.maskDefinition(ctx, definition); err != nil {
		return err
	}
	if reference := j.agent.opts.OverrideImageReference; reference != "" {
		// The job's credentials apply only to the registry of the job's own image.
		definition.Image = &workflow.Image{Reference: reference}
	}
	definition.Env = j.agent.opts.Mirrors.Add(definition.Env)
	j.entry.Steps = len(definition.Steps)
	if d := definition.Deployment; d != nil {
		j.entry.Steps += len(d.PostRunCommands) // their logs follow those of the definition's steps
		j.entry.Stack = d.StackName()
		j.entry.Operation = d.Operation
		j.log = j.agent.jobLog(j.entry)
		j.phase(status.Preparing)
	} else if e := definition.PolicyEvaluation; e != nil {
		j.entry.Stack, j.entry.Operation = e.StackName(), shownEvaluation
		j.log = j.agent.jobLog(j.entry)
		j.phase(status.Preparing)
	}
	return nil
}

func (j *job) spec(definition *workflow.JobDefinition) executor.Spec {
	s := executor.Spec{
		JobID: j.entry.Claim.JobID,
		Epoch: j.entry.Claim.Epoch,
		Owner: j.agent.opts.Identity.ID,
		Labels: map[string]string{
			"deployment_id": j.entry.Claim.DeploymentID,
			"stack":         j.entry.Stack,
		},
		Image:      definition.Image,
		OS:         definition.OS,
		LoopbackOK: protocol.OnLoopback(j.agent.opts.ServiceURL),
		Timeout:    time.Duration(definition.Timeout),
		Patience:   j.patience(),
	}
	s.Loopback = s.LoopbackOK
	maps.DeleteFunc(s.Labels, func(_, value string) bool { return value == "" })
	if d := definition.Deployment; d != nil {
		s.RootPath = d.RootPath
		s.Loopback = s.Loopback || protocol.OnLoopback(d.BackendURL)
		if j.agent.opts.Workspaces && d.Workspace.Valid() {
			s.Workspace = executor.LocalScope(j.agent.opts.ServiceURL, d.Workspace.Scope)
		}
	}
	if e := definition.PolicyEvaluation; e != nil {
		s.Loopback = s.Loopback || protocol.OnLoopback(e.BackendURL)
	}
	return s
}

// pulumi returns the function that brings the pulumi of a job, or nil if the job runs the one of its image
// or host. The runner checks that its version is one that the job selects.
func (j *job) pulumi(definition *workflow.JobDefinition, progress func(line string)) (func(ctx context.Context, goos, goarch string) (executor.Pulumi, error), error) {
	d := definition.Deployment
	if d == nil || d.PulumiVersion == "" || j.agent.opts.Pulumi == nil {
		return nil, nil //nolint:nilnil // nil means that nothing is brought
	}
	wanted, err := workflow.ParseVersionRange(d.PulumiVersion)
	if err != nil {
		return nil, &executor.Error{Reason: workflow.ReasonInvalidJob, Message: "The job's version of pulumi: " + err.Error(), Err: err}
	}
	return func(ctx context.Context, goos, goarch string) (executor.Pulumi, error) {
		found, err := j.agent.opts.Pulumi.Bring(ctx, wanted, goos, goarch, progress)
		if err == nil && found.Dir == "" {
			progress(fmt.Sprintf("The agent's mirror has no pulumi for %s/%s that %s selects", goos, goarch, wanted))
		}
		return found, err
	}, nil
}

// launch writes the job to the journal, requests permission to start the job, and starts the
// runner.
func (j *job) launch(ctx context.Context, definition *workflow.JobDefinition) error {
	j.phase(status.StartingJob)
	j.entry.Phase = instance.Starting
	j.entry.BootID = j.agent.opts.BootID
	if err := j.saveEntry(); err != nil {
		j.entry.Phase = ""
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The agent could not write its journal: check whether the disk of its state_directory is full.", Err: err}
	}
	if j.launcher() == nil {
		if err := j.askLeave(ctx); err != nil {
			return err
		}
	}
	if j.client.Gone() { // another call has found that the server closed or reassigned the job
		return errSuperseded
	}
	document, err := j.launchDocument(definition)
	if err != nil {
		return err
	}
	if j.launcher() != nil {
		return j.startLate(ctx, document)
	}
	if err := j.start(ctx, document); err != nil {
		return err
	}
	j.launched()
	return nil
}

// startedLine is the last line of the set-up log of a job that was started.
const startedLine = "The job was started."

// launched records that the runner was started.
func (j *job) launched() {
	j.dropLargeMasks()
	j.agent.opts.Monitor.JobLaunched(j.took())
	j.entry.Phase, j.entry.SetupBytes = instance.Started, j.setupBytes()
	if err := j.saveEntry(); err != nil {
		// The earlier entry suffices, because a second start of the job does nothing except return
		// an error. The next process would repeat the line.
		j.log.WithError(err).Warn("updating the job's journal entry failed")
	} else {
		j.writeSetup(startedLine)
	}
	j.endSetup()
	j.log.Info("the job was started")
}

// relaunched adds the line of launched if an earlier process was killed before it could do so.
func (j *job) relaunched() {
	// The entries of earlier versions have no size. A crash of the host can have lost the spool's copy of
	// the line.
	if j.entry.SetupBytes > 0 && j.setupBytes() == j.entry.SetupBytes && !j.rebooted() {
		j.writeSetup(startedLine)
		j.endSetup()
	}
}

func (j *job) endSetup() {
	j.endStream(j.logs, setupStep)
	j.endedSetup(workflow.StepSucceeded)
}

func (j *job) setupBytes() int64 {
	stream, err := j.logs.Step(setupStep)
	if err != nil {
		return 0
	}
	return stream.Size()
}

// start starts the runner once. It waits while the executor cannot run jobs. After an error that
// leaves the outcome unclear, such as a broken connection to an engine, start asks the executor
// whether the job was started. Stopping the agent does not interrupt a start, because an incomplete
// start is worse.
func (j *job) start(ctx context.Context, document []byte) error {
	starting, cancel := context.WithTimeout(j.agent.aborting, engineCall)
	defer cancel()
	final, confirmed := false, false
	err := j.agent.policy(retryLimit).Do(starting, func(err error) bool {
		_, final = errors.AsType[*executor.Error](err)
		if final || confirmed {
			return false
		}
		j.log.WithError(err).Warn("starting the job failed; retrying")
		confirmed = j.agent.engine.check(starting) == nil
		return true
	}, func() error { return j.agent.opts.Executor.Start(starting, *j.entry.Handle, document) })
	switch {
	case err == nil || errors.Is(err, executor.ErrStarted):
		return nil
	case j.agent.aborting.Err() != nil:
		return errStopping
	case !final:
		j.log.WithError(err).Warn("starting the job failed without a clear result; checking whether the job runs")
		if started, _, askErr := j.wasStarted(ctx); started || askErr != nil {
			return askErr
		}
	}
	return fmt.Errorf("starting the job: %w", err)
}

// askLeave requests permission to start the job. The server sends the same response to a repeated
// request.
func (j *job) askLeave(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var response protocol.HeartbeatResponse
	err := j.agent.policy(retryLimit).Do(limited, func(err error) bool {
		return !protocol.Refused(err) && !(j.stock() && protocol.UnknownCall(err))
	}, func() (err error) {
		response, err = j.client.Heartbeat(limited, protocol.PhaseStarting)
		return err
	})
	switch {
	case err == nil && response.CancelRequested:
		return errCancelled
	case err == nil, j.stock() && protocol.UnknownCall(err): // from such a server, the definition is the permission
		return nil
	case protocol.Refused(err):
		return errSuperseded
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return &executor.Error{Reason: workflow.ReasonLaunch, Message: fmt.Sprintf("The agent did not receive permission to start the job within %s.", leaveTime), Err: err}
}

func (j *job) launchDocument(definition *workflow.JobDefinition) ([]byte, error) {
	claim := j.entry.Claim
	document, err := json.Marshal(protocol.Launch{
		ServiceURL:          j.agent.opts.ServiceURL,
		ServerAddress:       j.agent.opts.ServerAddress,
		JobID:               claim.JobID,
		JobToken:            claim.JobToken,
		OIDCToken:           claim.OIDCToken,
		Epoch:               claim.Epoch,
		Definition:          definition,
		ForwardedEnv:        j.agent.opts.ForwardedEnv,
		Proxy:               j.agent.opts.ProxyEnv,
		CACertPEM:           j.agent.opts.CACertPEM,
		AllowedRepositories: j.agent.opts.Rules.RepositoryPatterns(),
		UserAgent:           j.agent.opts.UserAgent,
		Signed:              j.client.Signed(),
		EchoLog:             j.agent.opts.LogJobOutput,
		AskLeave:            j.launcher() != nil,
		PulumiDir:           j.entry.Handle.PulumiDir,
	})
	if err != nil {
		return nil, errors.New("the job's launch document cannot be encoded") // the cause could contain a secret
	}
	return document, nil
}
