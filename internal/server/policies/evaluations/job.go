package evaluations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// onJob runs act on the evaluation to which a runner's token belongs, in one transaction.
func (s *Service) onJob(ctx context.Context, p identity.Principal, id string, act func(tx *store.Tx, e *store.Evaluation, now time.Time) error) error {
	return s.db.Write(ctx, scope.Stack(p.Org.ID, p.StackID), func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		e, err := current(tx, p, id)
		if err != nil {
			return err
		}
		return act(tx, &e, now)
	})
}

// Heartbeat does for an evaluation what it does for a deployment; see [deployments.Service.Heartbeat].
func (s *Service) Heartbeat(ctx context.Context, p identity.Principal, id string, r protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	var out protocol.HeartbeatResponse
	if err := deployments.CheckHolder(r.Holder); err != nil {
		return out, err
	}
	err := s.onJob(ctx, p, id, func(tx *store.Tx, e *store.Evaluation, now time.Time) error {
		if e.Status.Final() {
			return ended(*e)
		}
		granted := e.Status != workflow.StatusAccepted
		columns := []string{"last_seen_at"}
		switch {
		case !granted && r.Phase == protocol.PhaseReturned:
			note(e, now, fmt.Sprintf("The agent on %s was stopped before it started the evaluation; the evaluation was requeued.", deployments.HostName(e.AgentHostname)))
			return s.requeue(tx, e, now)
		case granted && e.Holder != r.Holder && (r.Holder != "" || r.Phase == protocol.PhaseStarting):
			return fault.New(fault.KindGone, "another runner has permission to run this claim")
		case !granted && (r.Phase == protocol.PhaseStarting || r.Phase == protocol.PhaseRunning):
			e.Holder = r.Holder
			if err := leave(e, now); err != nil {
				return err
			}
			columns = nil // all
		}
		if e.Holder == r.Holder || !granted {
			e.LastSeenAt = now // the agent must not extend the lease of a runner that may be dead
		}
		out = protocol.HeartbeatResponse{CancelRequested: e.CancelRequested, Started: e.Status != workflow.StatusAccepted}
		return errors.Join(tx.TouchAgent(e.PoolID, e.AgentID, now), save(tx, *e, columns...))
	})
	return out, err
}

// leave permits a claimed evaluation to start.
func leave(e *store.Evaluation, now time.Time) error {
	if err := apply(e, workflow.EventLeave, now); err != nil {
		return err
	}
	e.StartedAt, e.LastSeenAt = now, now
	return nil
}

// StepStatus records the progress of a step.
func (s *Service) StepStatus(ctx context.Context, p identity.Principal, id string, step int, r protocol.StepStatusRequest) error {
	if err := deployments.CheckStepStatus(r); err != nil {
		return err
	}
	return s.onJob(ctx, p, id, func(tx *store.Tx, e *store.Evaluation, now time.Time) error {
		if step < 0 || step >= len(e.Steps) {
			return fault.Invalid("the job has steps 0 to %d", len(e.Steps)-1)
		}
		if e.Status.Final() {
			return nil // a late report: the evaluation already has its result
		}
		deployments.UpdateStep(&e.Steps[step], r, now)
		if setup := &e.Steps[0]; step > 0 && setup.Status == workflow.StepRunning {
			// The agent, which reports the end of the set-up, can be stopped at this time.
			setup.Status, setup.UpdatedAt, setup.FinishedAt = workflow.StepSucceeded, now, e.Steps[step].StartedAt
		}
		e.LastSeenAt, e.ModifiedAt = now, now
		if e.Stock && e.Status == workflow.StatusRunning {
			if err := s.endStock(tx, e, now); err != nil {
				return err
			}
		}
		return save(tx, *e)
	})
}

// endStock ends the evaluation of a stock agent, which reports no results of jobs, when its steps determine the outcome.
func (s *Service) endStock(tx *store.Tx, e *store.Evaluation, now time.Time) error {
	succeeded := 0
	for i, step := range e.Steps[1:] {
		switch step.Status {
		case workflow.StepFailed:
			return s.end(tx, e, workflow.EventFail, workflow.ReasonExitCode, fmt.Sprintf("step %d (%s) failed", i+1, step.Name), now)
		case workflow.StepSucceeded:
			succeeded++
		}
	}
	if succeeded < len(e.Steps)-1 {
		return nil
	}
	return s.succeed(tx, e, now)
}

// succeed ends an evaluation whose runner reports success. Without results, it has failed.
func (s *Service) succeed(tx *store.Tx, e *store.Evaluation, now time.Time) error {
	if e.ReportedAt.IsZero() {
		return s.end(tx, e, workflow.EventFail, workflow.ReasonInternalError, "The runner reported success, but no results.", now)
	}
	return s.end(tx, e, workflow.EventSucceed, workflow.ReasonNone, "", now)
}

// interruptions are the reasons of results that say nothing about the packs, so that the evaluation is assigned again.
var interruptions = []workflow.Reason{workflow.ReasonSignal, workflow.ReasonEvicted, workflow.ReasonLost, workflow.ReasonAgentStopped}

// orderly are the interruptions that operators cause. They do not count as silences.
var orderly = []workflow.Reason{workflow.ReasonEvicted, workflow.ReasonAgentStopped}

// Result ends an evaluation with the result that its runner or agent reports. Callers may repeat the result. On a
// [*joblog.Missing] error, the caller must first send the missing log.
func (s *Service) Result(ctx context.Context, p identity.Principal, id string, r protocol.ResultRequest) error {
	if r.Status != workflow.StatusSucceeded && r.Status != workflow.StatusFailed {
		return fault.Invalid("a result is %q or %q, not %q", workflow.StatusSucceeded, workflow.StatusFailed, termtext.OneLine(string(r.Status), maxMessage))
	}
	e, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Evaluation, error) { return current(tx, p, id) })
	if err != nil {
		return err
	}
	if e.Status.Final() {
		return repeated(e, r)
	}
	complaints, err := s.logs.Check(ctx, e.Job(), r)
	if err != nil {
		return err
	}
	return s.onJob(ctx, p, id, func(tx *store.Tx, e *store.Evaluation, now time.Time) error {
		switch {
		case e.Status.Final():
			return repeated(*e, r)
		case r.NotStarted && e.Status != workflow.StatusAccepted:
			return fault.Conflict("a runner has received permission to start the job")
		case r.Status == workflow.StatusSucceeded:
			if e.Status == workflow.StatusAccepted { // only a started job can succeed
				if err := leave(e, now); err != nil {
					return err
				}
			}
			if err := s.succeed(tx, e, now); err != nil {
				return err
			}
		case slices.Contains(interruptions, r.Reason) && e.Status == workflow.StatusRunning:
			return s.interrupted(tx, e, fmt.Sprintf("was stopped (%s)", r.Reason), !slices.Contains(orderly, r.Reason), now)
		default:
			reason, message := workflow.Reason(termtext.OneLine(string(r.Reason), maxMessage)), r.Message
			if reason == workflow.ReasonNone {
				reason = workflow.ReasonExitCode
			}
			if err := s.end(tx, e, workflow.EventFail, reason, message, now); err != nil {
				return err
			}
		}
		for _, c := range complaints {
			note(e, now, c)
		}
		return save(tx, *e)
	})
}

// repeated returns the response to a result for an evaluation that has already ended. The first result is final.
func repeated(e store.Evaluation, r protocol.ResultRequest) error {
	if r.Status == e.Status || e.Reason == workflow.ReasonCancelled {
		return nil
	}
	return ended(e)
}

// logTarget returns the log stream to which a callback may deliver log.
func (s *Service) logTarget(ctx context.Context, p identity.Principal, id string, step int) (string, error) {
	e, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Evaluation, error) { return current(tx, p, id) })
	if err != nil {
		return "", err
	}
	if step < 0 || step > len(e.Steps) {
		return "", fault.Invalid("the job has log streams 0 to %d", len(e.Steps))
	}
	if e.Status.Final() {
		err = s.acceptLate(ctx, e)
	}
	return joblog.Key(e.ID, e.Epoch, step), err
}

// measuredAfter is shorter than the time after the end of an evaluation at which its log is measured.
const measuredAfter = 30 * time.Second

// acceptLate returns an error if an ended evaluation may deliver no more log.
func (s *Service) acceptLate(ctx context.Context, e store.Evaluation) error {
	now, err := s.db.Now(ctx)
	since := now.Sub(e.EndedAt)
	switch {
	case err != nil:
		return err
	case since > s.opts.Evidence:
		return ended(e)
	case since > measuredAfter:
		return s.db.Write(ctx, scope.Stack(e.OrgID, e.StackID), func(tx *store.Tx) error { return tx.MeasureEvaluationAgain(e.ID) })
	}
	return nil
}

// PutLog stores raw log; see [deployments.Service.PutLog].
func (s *Service) PutLog(ctx context.Context, p identity.Principal, id string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error) {
	if offset < 0 {
		return ack, false, fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, id, step)
	if err != nil {
		return ack, false, err
	}
	ack, err = s.logs.Put(ctx, key, offset, framed)
	if errors.Is(err, joblog.ErrGap) {
		return ack, true, nil
	}
	return ack, false, err
}

// PostLines stores log in the JSON form of stock runners.
func (s *Service) PostLines(ctx context.Context, p identity.Principal, id string, step int, r protocol.LogLines) error {
	if r.Offset < 0 {
		return fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, id, step)
	if err != nil {
		return err
	}
	return s.logs.PutLines(ctx, key, r)
}
