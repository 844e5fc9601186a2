package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/instance"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

type prepared struct {
	handle     *executor.Handle
	definition *workflow.JobDefinition
}

// prepare fetches and checks the definition and has the executor prepare the job, while
// heartbeats keep the lease. When it fails it leaves no objects behind.
func (j *job) prepare(ctx context.Context, cancel context.CancelCauseFunc) (p prepared, err error) {
	var beat sync.WaitGroup
	beating, stopBeating := context.WithCancel(ctx)
	log := j.log // j.log changes when the definition is known
	beat.Go(func() {
		j.keepRunning(beating, "keeping the lease of a job", func() { j.keepLease(beating, cancel, log) })
	})
	defer beat.Wait()
	defer stopBeating()

	if p.definition, err = j.fetchDefinition(ctx); err != nil {
		return p, err
	}
	if v := j.agent.admit(j.entry.Claim, p.definition); v != nil {
		return p, &refusedError{*v}
	}
	limited, done := context.WithTimeout(ctx, prepareTime)
	defer done()
	handle, err := j.agent.opts.Executor.Prepare(limited, j.spec(p.definition), func(line string) { j.writeSetup("%s", line) })
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return p, cause
		}
		if limited.Err() != nil {
			return p, &executor.Error{Reason: workflow.ReasonLaunch, Message: fmt.Sprintf("Preparing the job took longer than %s.", prepareTime), Err: err}
		}
		return p, fmt.Errorf("preparing the job: %w", err)
	}
	p.handle = &handle
	if cause := context.Cause(ctx); cause != nil {
		return p, cause
	}
	return p, nil
}

// keepLease sends heartbeats, and cancels the preparation when the server ends the job.
func (j *job) keepLease(ctx context.Context, cancel context.CancelCauseFunc, log *logrus.Entry) {
	for tries := 0; ; {
		pause := retry.Spread(heartbeatInterval)
		response, err := j.client.Heartbeat(ctx, protocol.PhasePreparing)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && response.CancelRequested:
			cancel(errCancelled)
			return
		case err == nil:
			tries = 0
		case protocol.Refused(err):
			if j.entry.Claim.Epoch != 0 {
				cancel(errSuperseded)
			}
			return // or a server without heartbeats
		default:
			pause = j.agent.policy(retryLimit).Pause(tries, err)
			tries++
			log.WithError(err).Debug("a heartbeat got no answer")
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// fetchDefinition retries until the server would have requeued the job anyway.
func (j *job) fetchDefinition(ctx context.Context) (*workflow.JobDefinition, error) {
	limited, cancel := context.WithTimeout(ctx, definitionTime)
	defer cancel()
	for tries := 0; ; tries++ {
		definition, err := j.client.Definition(limited)
		if err == nil {
			j.learn(definition)
			return definition, nil
		}
		if _, bad := errors.AsType[*protocol.DefinitionError](err); bad {
			return nil, err
		}
		if protocol.Refused(err) {
			return nil, errSuperseded
		}
		if !protocol.Permanent(err) {
			if j.agent.policy(retryLimit).Wait(limited, tries, err) == nil {
				continue
			}
			if cause := context.Cause(ctx); cause != nil {
				return nil, cause
			}
		}
		return nil, fmt.Errorf("fetching the job's definition: %w", err)
	}
}

// learn copies what the agent needs from the definition, and applies the host's settings to it.
func (j *job) learn(definition *workflow.JobDefinition) {
	for _, secret := range definition.Secrets() {
		j.masks.Add(redact.Secret{Name: secret.Name, Value: secret.Value()})
	}
	if reference := j.agent.opts.ImageOverride; reference != "" {
		// The job's credentials are for the registry of the job's image.
		definition.Image = &workflow.Image{Reference: reference}
	}
	j.entry.Steps = len(definition.Steps)
	if d := definition.Deployment; d != nil {
		j.entry.Stack = d.StackName()
		j.entry.Operation = d.Operation
		j.log = j.agent.jobLog(j.entry)
		j.phase(status.Preparing)
	}
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
	}
	s.Loopback = s.LoopbackOK
	maps.DeleteFunc(s.Labels, func(_, value string) bool { return value == "" })
	if d := definition.Deployment; d != nil {
		s.RootPath = d.RootPath
		s.Loopback = s.Loopback || protocol.OnLoopback(d.BackendURL)
	}
	return s
}

// launch asks permission to start the job and starts the runner. The job is in the journal
// before the request.
func (j *job) launch(ctx, hard context.Context, p prepared) error {
	j.phase(status.StartingJob)
	j.entry.Handle = p.handle
	j.entry.Phase = instance.Starting
	j.entry.BootID = j.agent.opts.BootID
	if err := j.saveEntry(); err != nil {
		j.entry.Phase = ""
		return &executor.Error{Reason: workflow.ReasonLaunch, Message: "The agent could not write its journal: is the disk of its state_directory full?", Err: err}
	}
	if err := j.askLeave(ctx); err != nil {
		return err
	}
	if j.client.Gone() { // another call received that answer
		return errSuperseded
	}
	document, err := j.launchDocument(p.definition)
	if err != nil {
		return err
	}
	// A stop of the agent waits from here on, because a half-finished start is worse.
	starting, cancel := context.WithTimeout(hard, engineCall)
	defer cancel()
	if err := j.start(starting, document); err != nil {
		if hard.Err() != nil {
			return errStopping
		}
		started, askErr := j.startedAnyway(ctx, err)
		if askErr != nil {
			return errStopping
		}
		if !started {
			return fmt.Errorf("starting the job: %w", err)
		}
	}
	j.agent.opts.Monitor.JobLaunched(j.took())
	j.writeSetup("The job was started.")
	j.endStream(j.logs, setupStep)
	j.stepStatus(setupStep, workflow.StepSucceeded)
	j.entry.Phase = instance.Started
	if err := j.saveEntry(); err != nil {
		// The older entry suffices: a second start returns an error and starts nothing.
		j.log.WithError(err).Warn("updating the journal of the job failed")
	}
	j.log.Info("the job was started")
	return nil
}

// start starts the runner once. After an error that leaves open whether the runner runs, such
// as a broken connection to an engine, it asks the executor. It waits for an executor that
// cannot run jobs until ctx ends.
func (j *job) start(ctx context.Context, document []byte) error {
	askedAgain := false
	for tries := 0; ; tries++ {
		err := j.agent.opts.Executor.Start(ctx, *j.entry.Handle, document)
		if err == nil || errors.Is(err, executor.ErrStarted) {
			return nil
		}
		if _, final := errors.AsType[*executor.Error](err); final || askedAgain {
			return err
		}
		if j.agent.engine.check(ctx) == nil {
			askedAgain = true
			continue
		}
		if j.agent.policy(retryLimit).Wait(ctx, tries, nil) != nil {
			return err
		}
		j.log.WithError(err).Warn("starting the job failed; retrying")
	}
}

// startedAnyway asks until it knows whether a job runs although Start returned err.
func (j *job) startedAnyway(ctx context.Context, err error) (bool, error) {
	if _, final := errors.AsType[*executor.Error](err); final {
		return false, nil
	}
	j.log.WithError(err).Warn("the start of the job is not confirmed; checking whether it runs")
	return j.wasStarted(ctx)
}

// askLeave asks whether the job may start. A repeated request gets the same answer.
func (j *job) askLeave(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	for tries := 0; ; tries++ {
		response, err := j.client.Heartbeat(limited, protocol.PhaseStarting)
		switch {
		case err == nil && response.CancelRequested:
			return errCancelled
		case err == nil:
			return nil
		case j.entry.Claim.Epoch == 0 && withoutHeartbeats(err):
			return nil // fetching the definition counts as permission there
		case protocol.Refused(err):
			return errSuperseded
		}
		if j.agent.policy(retryLimit).Wait(limited, tries, err) != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return &executor.Error{Reason: workflow.ReasonLaunch, Message: fmt.Sprintf("The agent got no leave to start the job within %s.", leaveTime), Err: err}
		}
	}
}

func withoutHeartbeats(err error) bool {
	switch protocol.StatusCode(err) {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

func (j *job) launchDocument(definition *workflow.JobDefinition) ([]byte, error) {
	claim := j.entry.Claim
	document, err := json.Marshal(protocol.Launch{
		ServiceURL:   j.agent.opts.ServiceURL,
		JobID:        claim.JobID,
		JobToken:     claim.JobToken,
		OIDCToken:    claim.OIDCToken,
		Epoch:        claim.Epoch,
		Definition:   definition,
		ForwardedEnv: j.agent.opts.ForwardedEnv,
		Proxy:        j.agent.opts.ProxyEnv,
		CACertPEM:    j.agent.opts.CACertPEM,
		UserAgent:    j.agent.opts.UserAgent,
		Signed:       j.client.Signed(),
		EchoLog:      j.agent.opts.LogJobOutput,
	})
	if err != nil {
		return nil, errors.New("the job's launch document cannot be encoded") // the cause could quote a secret
	}
	return document, nil
}
