package deployments

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Result ends a job with the result that its runner or agent reports. Callers may repeat it. A
// [*joblog.Missing] error requests log first.
func (s *Service) Result(ctx context.Context, p identity.Principal, jobID string, r protocol.ResultRequest) error {
	if r.Status != workflow.StatusSucceeded && r.Status != workflow.StatusFailed {
		return fault.Invalid("Bad Request: a result is %q or %q, not %q", workflow.StatusSucceeded, workflow.StatusFailed, termtext.OneLine(string(r.Status), maxMessage))
	}
	r.Message, r.Signal, r.Reason = termtext.OneLine(r.Message, maxMessage), termtext.OneLine(r.Signal, maxMessage), workflow.Reason(termtext.OneLine(string(r.Reason), maxMessage))
	// Results of one job are compared with its log one at a time: the first may end the job.
	unlock, err := s.results.lock(ctx, jobID)
	if err != nil {
		return err
	}
	defer unlock()
	var job store.Job
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		job, err = callback(tx, p, jobID)
		return err
	})
	if err != nil {
		return err
	}
	if job.Status.Final() && job.Reason != workflow.ReasonLost {
		return repeated(job, r) // reading its log again would be wasted
	}
	complaints, err := s.logs.Check(ctx, job, r)
	if err != nil {
		return err
	}
	changed := false
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		changed = false
		var err error
		if job, err = callback(tx, p, jobID); err != nil {
			return err
		}
		now := tx.Now()
		if job.Status.Final() && (job.Reason != workflow.ReasonLost || job.EndedAt.Add(s.opts.Evidence).Before(now)) {
			return repeated(job, r)
		}
		changed = true
		return s.settle(tx, &job, r, complaints, now)
	})
	if err == nil && changed {
		s.afterEnd(ctx, job)
	}
	return err
}

// repeated returns the response to a result for a job that has ended. The first result stands.
func repeated(job store.Job, r protocol.ResultRequest) error {
	// A job cancelled before it started has no result, and the agent's changes nothing.
	if r.Status == job.Status || len(job.Results) == 0 {
		return nil
	}
	return fault.New(fault.KindGone, "Gone: the job has already ended as %s%s; this result was not recorded", job.Status, because(job.Reason))
}

func (s *Service) settle(tx *store.Tx, job *store.Job, r protocol.ResultRequest, complaints []string, now time.Time) error {
	lost := job.Reason == workflow.ReasonLost
	v := verdict{event: workflow.EventFail, reason: r.Reason, message: r.Message}
	switch {
	case r.Status == workflow.StatusSucceeded && lost:
		v.event = workflow.EventCorrectOK
	case r.Status == workflow.StatusSucceeded:
		v.event = workflow.EventSucceed
	case lost:
		v.event = workflow.EventCorrectKO
	}
	if r.Status == workflow.StatusSucceeded {
		v.reason = workflow.ReasonNone
	} else if v.reason == workflow.ReasonNone {
		v.reason = workflow.ReasonExitCode
	}
	if job.Status == workflow.StatusAccepted && v.event == workflow.EventSucceed {
		// Only a started job can succeed.
		if err := leave(job, now); err != nil {
			return err
		}
	}
	if lost {
		v.note = fmt.Sprintf("The deployment had been given up as lost; its runner has now reported that it %s.", r.Status)
	}
	job.Results = append(job.Results, store.JobResult{At: now, Epoch: job.Epoch, Result: r})
	if err := s.finish(tx, job, v, now); err != nil {
		return err
	}
	for _, c := range complaints {
		addNote(job, now, c)
	}
	if lost {
		if err := unblock(tx, job.StackID, job.DeploymentID); err != nil {
			return err
		}
	}
	return tx.SaveJob(*job)
}

type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when released
}

func (l *keyLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		other, taken := l.held[name]
		if !taken {
			break
		}
		l.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another result of the job: %w", ctx.Err())
		}
	}
	defer l.mu.Unlock()
	mine := make(chan struct{})
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	l.held[name] = mine
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.held, name)
		close(mine)
	}, nil
}
