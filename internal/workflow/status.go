package workflow

import (
	"errors"
	"fmt"
)

// Status is the public state of a job, and of the deployment or policy evaluation that it runs. A [Reason] states why a job ended.
type Status string

// The public statuses.
const (
	StatusNotStarted Status = "not-started" // queued
	StatusAccepted   Status = "accepted"    // claimed by an agent; its process has not started yet
	StatusRunning    Status = "running"     // the server has permitted the start
	StatusSucceeded  Status = "succeeded"
	StatusFailed     Status = "failed"
	StatusSkipped    Status = "skipped" // left the queue without running
)

// Final reports whether s is a final status. Of these, only the status of a lost job can still be
// corrected (see [Next]).
func (s Status) Final() bool {
	return s == StatusSucceeded || s == StatusFailed || s == StatusSkipped
}

// StepStatus is the state of one step of a job.
type StepStatus string

// The public step statuses.
const (
	StepNotStarted StepStatus = "not-started"
	StepRunning    StepStatus = "running"
	StepSucceeded  StepStatus = "succeeded"
	StepFailed     StepStatus = "failed"
	// StepSkipped is the state of a post-run command that does not run. It is not in the public API.
	StepSkipped StepStatus = "skipped"
)

// Reason is the cause of a final status, shown by the API and the log.
type Reason string

// The reasons why a job can end. ReasonNone stands for success.
const (
	ReasonNone          Reason = ""
	ReasonExitCode      Reason = "exit-code"      // a step ended with a non-zero exit code
	ReasonSignal        Reason = "signal"         // a signal that the agent did not send killed the runner or a step
	ReasonOOM           Reason = "out-of-memory"  // the kernel or the engine killed it because of its memory use
	ReasonCancelled     Reason = "cancelled"      // a user cancelled it
	ReasonTimeout       Reason = "timed-out"      // the job's or a step's timeout passed
	ReasonImage         Reason = "image"          // the image is missing, or could not be pulled or used
	ReasonLaunch        Reason = "launch"         // the executor could not create or start the job
	ReasonRefused       Reason = "refused"        // the agent's own rules do not allow this job
	ReasonEvicted       Reason = "evicted"        // its host or container was removed or shut down
	ReasonLost          Reason = "lost"           // the server received nothing from it for too long
	ReasonAbandoned     Reason = "abandoned"      // each agent that claimed it stopped reporting, and it is not tried again
	ReasonSuperseded    Reason = "superseded"     // a newer deployment of the same operation replaced it
	ReasonQueueTimeout  Reason = "queue-timeout"  // it waited in the queue for too long
	ReasonAgentStopped  Reason = "agent-stopped"  // the agent was stopped together with its jobs
	ReasonInvalidJob    Reason = "invalid-job"    // the job definition is invalid
	ReasonInternalError Reason = "internal-error" // a defect in this product; the log has details
)

// UnknownEnd says what to do about a deployment whose end is unknown.
const UnknownEnd = "Before you deploy again, end its update with pulumi cancel if it has not ended, and compare the state with the resources: pulumi refresh."

// Event is an occurrence that can change a job's status.
type Event string

// The events that can change a job's status.
const (
	EventClaim     Event = "claim"             // an agent took it from the queue
	EventRequeue   Event = "requeue"           // heartbeats stopped, and it may start again: requeued with the next epoch
	EventAbandon   Event = "abandon"           // as requeue, but too many of its claims ended in this way
	EventLeave     Event = "leave"             // the agent or the runner requested and got permission to start
	EventSucceed   Event = "succeed"           // its result reports success
	EventFail      Event = "fail"              // its result reports failure, or it cannot be started
	EventSkip      Event = "skip"              // cancelled, superseded or too old while queued
	EventLose      Event = "lose"              // silent for too long after leave
	EventCorrectOK Event = "correct-succeeded" // evidence after lose: it succeeded
	EventCorrectKO Event = "correct-failed"    // evidence after lose: it failed
)

// ErrTransition is returned by [Next] for an event that the status does not allow.
var ErrTransition = errors.New("invalid change of status")

// transitions is the table of valid transitions by type of work. docs/ARCHITECTURE.md contains its diagrams.
//
// A deployment changes infrastructure, so once it may have started, it is never requeued. A policy evaluation only
// reads a state, so it is requeued whenever its agent or runner is silent.
var transitions = map[Type]map[Status]map[Event]Status{
	TypeDeployment: {
		StatusNotStarted: {
			EventClaim: StatusAccepted,
			EventSkip:  StatusSkipped,
		},
		StatusAccepted: {
			EventRequeue: StatusNotStarted,
			EventLeave:   StatusRunning,
			EventFail:    StatusFailed,
			EventAbandon: StatusFailed,
		},
		StatusRunning: {
			EventSucceed: StatusSucceeded,
			EventFail:    StatusFailed,
			EventLose:    StatusFailed,
		},
	},
	TypePolicyEvaluation: {
		StatusNotStarted: {
			EventClaim: StatusAccepted,
			EventSkip:  StatusSkipped,
		},
		StatusAccepted: {
			EventRequeue: StatusNotStarted,
			EventLeave:   StatusRunning,
			EventFail:    StatusFailed,
			EventAbandon: StatusFailed,
		},
		StatusRunning: {
			EventRequeue: StatusNotStarted,
			EventSucceed: StatusSucceeded,
			EventFail:    StatusFailed,
			EventAbandon: StatusFailed,
		},
	},
}

// Next returns the status that follows the status from after the event e, for a job of type t. reason is the
// recorded reason of a job that has ended: later evidence can correct only [ReasonLost].
func Next(t Type, from Status, reason Reason, e Event) (Status, error) {
	if from == StatusFailed && reason == ReasonLost {
		switch e {
		case EventCorrectOK:
			return StatusSucceeded, nil
		case EventCorrectKO:
			return StatusFailed, nil
		}
	}
	if to, ok := transitions[t][from][e]; ok {
		return to, nil
	}
	return from, fmt.Errorf("%w: a %s that is %s cannot %s", ErrTransition, t, from, e)
}
