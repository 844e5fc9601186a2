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
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// measuredAfter is less than the time after a job's end at which the quota measures its log.
const measuredAfter = 30 * time.Second

// logTarget returns the log stream to which a callback may deliver log. The current claim may
// deliver log while the job runs and for a limited time after its end. For a running job, the answer
// can be up to writerAge old.
func (s *Service) logTarget(ctx context.Context, p identity.Principal, jobID string, step int) (string, error) {
	if steps, ok := s.writers.steps(p, jobID); ok && step >= 0 && step <= steps {
		return joblog.Key(jobID, p.Epoch, step), nil
	}
	read := time.Now()
	job, err := store.ReadOne(ctx, s.db, func(tx *store.Tx) (store.Job, error) { return callback(tx, p, jobID) })
	if err != nil {
		return "", err
	}
	if step < 0 || step > len(job.Steps) {
		return "", fault.Invalid("the job has log streams 0 to %d", len(job.Steps))
	}
	if job.Status.Final() {
		err = s.acceptLate(ctx, job)
	} else {
		s.writers.add(job, read)
	}
	return joblog.Key(job.ID, job.Epoch, step), err
}

// acceptLate returns an error if a finished job may deliver no more log.
func (s *Service) acceptLate(ctx context.Context, job store.Job) error {
	now, err := s.db.Now(ctx)
	since := now.Sub(job.EndedAt)
	switch {
	case err != nil:
		return err
	case since > s.opts.Evidence:
		return ended(job)
	case since > measuredAfter:
		return s.db.Write(ctx, scope.Stack(job.OrgID, job.StackID), func(tx *store.Tx) error { return tx.MeasureLogAgain(job.ID) })
	}
	return nil
}

// PutLog stores raw log at an offset of a step's stream. gap reports that bytes before the offset
// are missing. ack contains the offset from which to continue.
func (s *Service) PutLog(ctx context.Context, p identity.Principal, jobID string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error) {
	if offset < 0 {
		return ack, false, fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return ack, false, err
	}
	ack, err = s.logs.Put(ctx, key, offset, framed)
	s.readers.note(jobID)
	if errors.Is(err, joblog.ErrGap) {
		return ack, true, nil
	}
	return ack, false, err
}

// PostLines stores log in the JSON form of stock runners.
func (s *Service) PostLines(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.LogLines) error {
	if r.Offset < 0 {
		return fault.Invalid("the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return err
	}
	defer s.readers.note(jobID)
	return s.logs.PutLines(ctx, key, r)
}

// logInterval is the interval at which the log is read again for a waiting reader. It bounds the
// delay of the deployment's end, and of lines that another server received.
const logInterval = 250 * time.Millisecond

// Log returns a page of a deployment's log after a continuation token; "" starts at the beginning.
// If there are no new lines, Log waits for new lines or for the end of the deployment, but at most
// for wait.
func (s *Service) Log(ctx context.Context, st store.Stack, deploymentID, token string, wait time.Duration) (joblog.Page, error) {
	deadline := time.Now().Add(wait)
	var wake <-chan struct{}
	for {
		v, err := s.view(ctx, st, deploymentID)
		if err != nil {
			return joblog.Page{}, err
		}
		if wake == nil {
			var leave func()
			wake, leave = s.readers.join(v.Job.ID)
			defer leave()
		}
		page, err := s.logs.Read(ctx, v, token)
		if err != nil || len(page.Lines) > 0 || page.Next == "" || !time.Now().Before(deadline) {
			return page, err
		}
		token = page.Next
		select {
		case <-wake:
		case <-time.After(logInterval):
		case <-ctx.Done():
			return joblog.Page{}, ctx.Err()
		case <-s.stopping:
			return page, nil
		}
	}
}

// StepLog returns log lines of one step of the current claim. offset is a line number.
func (s *Service) StepLog(ctx context.Context, st store.Stack, deploymentID string, job, step int, offset int64, count int) (joblog.StepPage, error) {
	v, err := s.view(ctx, st, deploymentID)
	if err != nil {
		return joblog.StepPage{}, err
	}
	if job != 0 {
		return joblog.StepPage{}, fault.NotFound("the deployment has no job %d", job)
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
			if v.Wait, err = s.whyQueued(tx, dj); err != nil {
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

// LogJob returns the job whose log [Service.Logs] contains.
func (s *Service) LogJob(ctx context.Context, st store.Stack, deploymentID string) (store.Job, error) {
	dj, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.DeploymentJob, error) { return find(tx, st, deploymentID) })
	return dj.Job, err
}

// Logs returns the logs of jobs. Callers must obtain the job from [Service.LogJob], which finds it
// only within the stack.
func (s *Service) Logs() *joblog.Store { return s.logs }
