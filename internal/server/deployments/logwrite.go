package deployments

import (
	"context"
	"errors"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// logTarget checks a callback that brings log and returns the stream it is
// for. Log of the current claim is taken while the job lives and for a while
// after it has ended.
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
	return logKey(job.ID, job.Epoch, step), nil
}

// PutLog stores raw log at an offset of a step's stream. gap means that bytes
// before the offset are missing; the answer says from where to send.
func (s *Service) PutLog(ctx context.Context, p identity.Principal, jobID string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error) {
	if offset < 0 {
		return ack, false, fault.Invalid("Bad Request: the offset must not be negative")
	}
	key, err := s.logTarget(ctx, p, jobID, step)
	if err != nil {
		return ack, false, err
	}
	ack, err = s.logs.put(ctx, key, offset, framed)
	if errors.Is(err, errGap) {
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
	return s.logs.putLines(ctx, key, r)
}
