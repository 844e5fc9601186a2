package deployments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

func (s *Service) jobOfDeployment(ctx context.Context, deploymentID string) (store.Job, error) {
	var job store.Job
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		job, err = tx.JobOfDeployment(deploymentID)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Job{}, fault.NotFound("Not Found: Deployment '%s' not found", termtext.OneLine(deploymentID, maxMessage))
	}
	return job, err
}

// callback returns a runner token's job, which must match the job in the path and the current
// epoch.
func callback(tx *store.Tx, p identity.Principal, jobID string) (store.Job, error) {
	if p.Kind != identity.KindRunner || p.JobID != jobID {
		return store.Job{}, fault.New(fault.KindUnauthenticated, "Unauthorized: this token is not for this job")
	}
	job, err := tx.Job(jobID)
	if errors.Is(err, store.ErrNotFound) {
		return store.Job{}, fault.New(fault.KindGone, "Gone: the job does not exist any more")
	}
	if err != nil {
		return store.Job{}, err
	}
	if p.Epoch != job.Epoch {
		return store.Job{}, fault.New(fault.KindGone, "Gone: the job was given back to the queue; this claim (epoch %d) is superseded by epoch %d", p.Epoch, job.Epoch)
	}
	return job, nil
}

func ended(job store.Job) error {
	return fault.New(fault.KindGone, "Gone: the job has ended: %s%s", job.Status, because(job.Reason))
}

func because(r workflow.Reason) string {
	if r == workflow.ReasonNone {
		return ""
	}
	return " (" + string(r) + ")"
}

// Heartbeat extends the lease of a job and, from the phase starting on, permits its start.
func (s *Service) Heartbeat(ctx context.Context, p identity.Principal, jobID string, phase protocol.Phase) (protocol.HeartbeatResponse, error) {
	var out protocol.HeartbeatResponse
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		job, err := callback(tx, p, jobID)
		if err != nil {
			return err
		}
		lost := job.Reason == workflow.ReasonLost
		if job.Status.Final() && (!lost || now.Sub(job.EndedAt) > s.opts.Evidence) {
			return ended(job)
		}
		newer, err := overtaken(tx, job)
		if err != nil {
			return err
		}
		if lost && (phase == protocol.PhaseStarting || newer > 0) {
			// The job is lost and overtaken: it may start nothing. A request to start means that it
			// has done nothing yet; for a running job, this applies to its next step.
			return ended(job)
		}
		if job.Status == workflow.StatusAccepted && (phase == protocol.PhaseStarting || phase == protocol.PhaseRunning) {
			if err := leave(&job, now); err != nil {
				return err
			}
		}
		job.LastSeenAt = now
		out = protocol.HeartbeatResponse{CancelRequested: job.CancelRequested, ForceRequested: job.ForceRequested}
		if err := tx.TouchAgent(job.PoolID, job.AgentID, now); err != nil {
			return err
		}
		return tx.SaveJob(job)
	})
	return out, err
}

// leave permits a claimed job to start; it is never requeued afterwards.
func leave(job *store.Job, now time.Time) error {
	if err := apply(job, workflow.EventLeave, now); err != nil {
		return err
	}
	job.StartedAt = now
	return nil
}

// StepStatus records the progress of a step.
func (s *Service) StepStatus(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.StepStatusRequest) error {
	switch r.Status {
	case workflow.StepNotStarted, workflow.StepRunning, workflow.StepSucceeded, workflow.StepFailed:
	default:
		return fault.Invalid("Bad Request: %q is not a status of a step: use not-started, running, succeeded or failed", termtext.OneLine(string(r.Status), maxMessage))
	}
	var finished *store.Job
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		finished = nil
		now, err := tx.LeaseTime()
		if err != nil {
			return err
		}
		job, err := callback(tx, p, jobID)
		if err != nil {
			return err
		}
		if step < 0 || step >= len(job.Steps) {
			return fault.Invalid("Bad Request: the job has steps 0 to %d", len(job.Steps)-1)
		}
		if job.Status.Final() && job.Reason != workflow.ReasonLost {
			return nil // late report of a job that has its result
		}
		updateStep(&job.Steps[step], r, now)
		job.LastSeenAt, job.ModifiedAt = now, now
		if job.Stock && job.Status == workflow.StatusRunning {
			if err := s.endStock(tx, &job, now); err != nil {
				return err
			}
			if job.Status.Final() {
				finished = &job
			}
		}
		return tx.SaveJob(job)
	})
	if err == nil && finished != nil {
		s.afterEnd(ctx, *finished)
	}
	return err
}

func updateStep(st *store.StepState, r protocol.StepStatusRequest, now time.Time) {
	st.Status, st.UpdatedAt = r.Status, now
	if r.ExitCode != nil {
		st.ExitCode = r.ExitCode
	}
	if r.StartedAt != nil {
		st.StartedAt = r.StartedAt.UTC()
	}
	if st.StartedAt.IsZero() && r.Status != workflow.StepNotStarted {
		st.StartedAt = now
	}
	switch {
	case r.FinishedAt != nil:
		st.FinishedAt = r.FinishedAt.UTC()
	case r.Status == workflow.StepSucceeded || r.Status == workflow.StepFailed:
		st.FinishedAt = now
	}
}

// endStock ends the job of an agent that reports no results: its steps decide the outcome. Such
// agents never report step 0.
func (s *Service) endStock(tx *store.Tx, job *store.Job, now time.Time) error {
	succeeded := 0
	for i, step := range job.Steps[1:] {
		switch step.Status {
		case workflow.StepFailed:
			return s.finish(tx, job, verdict{
				event: workflow.EventFail, reason: workflow.ReasonExitCode,
				message: fmt.Sprintf("step %d (%s) failed", i+1, step.Name),
			}, now)
		case workflow.StepSucceeded:
			succeeded++
		}
	}
	if succeeded < len(job.Steps)-1 {
		return nil
	}
	return s.finish(tx, job, verdict{event: workflow.EventSucceed}, now)
}
