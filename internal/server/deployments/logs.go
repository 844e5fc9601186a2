package deployments

import (
	"context"
	"errors"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// logTarget checks a callback that delivers log and returns its stream. The current claim may
// deliver log while the job runs and for a while after its end.
func (s *Service) logTarget(ctx context.Context, p identity.Principal, jobID string, step int) (string, error) {
	var job store.Job
	var now time.Time
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		now = tx.Now()
		job, err = callback(tx, p, jobID)
		return err
	})
	if err != nil {
		return "", err
	}
	if step < 0 || step > len(job.Steps) {
		return "", fault.Invalid("Bad Request: the job has log streams 0 to %d", len(job.Steps))
	}
	if job.Status.Final() && now.Sub(job.EndedAt) > s.opts.Evidence {
		return "", ended(job)
	}
	return joblog.Key(job.ID, job.Epoch, step), nil
}

// PutLog stores raw log at an offset of a step's stream. gap reports missing bytes before the
// offset; ack holds where to continue.
func (s *Service) PutLog(ctx context.Context, p identity.Principal, jobID string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error) {
	if offset < 0 {
		return ack, false, fault.Invalid("Bad Request: the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
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
func (s *Service) PostLines(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.LogLines) error {
	if r.Offset < 0 {
		return fault.Invalid("Bad Request: the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return err
	}
	return s.logs.PutLines(ctx, key, r)
}

// Log returns a deployment's log after a continuation token; "" starts at the beginning.
func (s *Service) Log(ctx context.Context, st store.Stack, deploymentID, token string) (joblog.Page, error) {
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return joblog.Page{}, err
	}
	return s.logs.Read(ctx, v, token)
}

// StepLog returns log lines of one step of the current claim; offset counts lines.
func (s *Service) StepLog(ctx context.Context, st store.Stack, deploymentID string, job, step int, offset int64, count int) (joblog.StepPage, error) {
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return joblog.StepPage{}, err
	}
	if job != 0 {
		return joblog.StepPage{}, fault.NotFound("Not Found: the deployment has no job %d", job)
	}
	return s.logs.ReadStep(ctx, v, step, offset, count)
}

func (s *Service) view(ctx context.Context, st store.Stack, deploymentID string) (joblog.View, error) {
	var v joblog.View
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		dj, err := find(tx, st, deploymentID)
		if err != nil {
			return err
		}
		v = joblog.View{Now: tx.Now(), Job: dj.Job}
		if dj.Job.Status == workflow.StatusNotStarted {
			if v.Wait, err = s.whyQueued(tx, dj.Deployment, dj.Job); err != nil {
				return err
			}
		}
		kinds, err := tx.UpdateKindsOfDeployment(dj.ID)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			v.Linked = v.Linked || updateMatches(dj.Operation, k)
		}
		return nil
	})
	return v, err
}

// updateMatches reports whether a started update is the one that an operation makes.
func updateMatches(op workflow.Operation, u store.UpdateKind) bool {
	switch op {
	case workflow.OperationUpdate, workflow.OperationRemediateDrift:
		return u.Kind == "update" && !u.Preview
	case workflow.OperationPreview:
		return u.Preview && (u.Kind == "preview" || u.Kind == "update")
	case workflow.OperationRefresh:
		return u.Kind == "refresh" && !u.Preview
	case workflow.OperationDestroy:
		return u.Kind == "destroy" && !u.Preview
	case workflow.OperationDetectDrift:
		return u.Kind == "refresh" || u.Kind == "preview"
	default:
		return false
	}
}
