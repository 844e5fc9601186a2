package deployments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Missing says that a result cannot be taken yet because log is missing that
// the sender still has.
type Missing struct{ Logs []protocol.MissingLog }

// Error says how much is missing.
func (m *Missing) Error() string {
	return fmt.Sprintf("Conflict: log of %d step(s) is missing; send it and repeat the result", len(m.Logs))
}

// Result ends a job with what its runner or agent says. It may be repeated. A
// [*Missing] error asks for log first.
func (s *Service) Result(ctx context.Context, p identity.Principal, jobID string, r protocol.ResultRequest) error {
	if r.Status != workflow.StatusSucceeded && r.Status != workflow.StatusFailed {
		return fault.Invalid("Bad Request: a result is %q or %q, not %q", workflow.StatusSucceeded, workflow.StatusFailed, oneLine(string(r.Status)))
	}
	r.Message, r.Signal, r.Reason = oneLine(r.Message), oneLine(r.Signal), workflow.Reason(oneLine(string(r.Reason)))
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
		return repeated(job, r) // reading its log again would only cost
	}
	complaints, err := s.checkLogs(ctx, job, r)
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

// repeated answers a result for a job that has ended. The first one stands.
func repeated(job store.Job, r protocol.ResultRequest) error {
	// A job that was cancelled before it started has no result of its agent;
	// whatever the agent says now changes nothing.
	if r.Status == job.Status || len(job.Results) == 0 {
		return nil
	}
	return fault.New(fault.KindGone, "Gone: the job has already ended as %s%s; this result was not recorded", job.Status, because(job.Reason))
}

// settle records a result and moves the job.
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
		// Only a job that ran can have succeeded.
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

// checkLogs puts the log of a job on disk and compares it with what the sender
// reports. Log that the sender still has is a [*Missing] error, every other difference
// becomes a complaint for the log. Streams are read only when none is missing.
func (s *Service) checkLogs(ctx context.Context, job store.Job, r protocol.ResultRequest) ([]string, error) {
	sizes := map[int]int64{}
	missing := &Missing{}
	for _, sr := range r.Steps {
		if len(sr.SHA256) > hex.EncodedLen(sha256.Size) {
			return nil, fault.Invalid("Bad Request: the sha256 of step %d is too long", sr.Step)
		}
		if _, seen := sizes[sr.Step]; seen || sr.Step < 0 || sr.Step > len(job.Steps) {
			return nil, fault.Invalid("Bad Request: the result names step %d, which the job does not have or which was named before", sr.Step)
		}
		size, err := s.logs.sync(ctx, logKey(job.ID, job.Epoch, sr.Step))
		if err != nil {
			return nil, err
		}
		sizes[sr.Step] = size
		if size < min(sr.Bytes, s.opts.LogLimit) && !sr.Gone {
			missing.Logs = append(missing.Logs, protocol.MissingLog{Step: sr.Step, Received: size})
		}
	}
	if len(missing.Logs) > 0 {
		return nil, missing
	}
	var complaints []string
	if r.Truncated {
		complaints = append(complaints, "The log is incomplete: the runner had to drop lines because its disk was full for too long.")
	}
	for _, sr := range r.Steps {
		name := "the agent"
		if sr.Step < len(job.Steps) {
			name = "step " + job.Steps[sr.Step].Name
		}
		complaint, err := s.checkLog(ctx, logKey(job.ID, job.Epoch, sr.Step), sizes[sr.Step], sr)
		if err != nil {
			return nil, err
		}
		if complaint != "" {
			complaints = append(complaints, "The log of "+name+" "+complaint)
		}
	}
	return complaints, nil
}

// checkLog compares one stream with what the sender reports; "" means no difference.
func (s *Service) checkLog(ctx context.Context, key string, size int64, sr protocol.StepResult) (string, error) {
	switch {
	case size < min(sr.Bytes, s.opts.LogLimit):
		return fmt.Sprintf("is incomplete: %d of %d bytes arrived.", size, sr.Bytes), nil
	case sr.Bytes > s.opts.LogLimit:
		return fmt.Sprintf("was cut at the limit of %d bytes; it had %d.", s.opts.LogLimit, sr.Bytes), nil
	case size > sr.Bytes:
		return fmt.Sprintf("does not match what was sent: %d bytes are here, %d were announced.", size, sr.Bytes), nil
	case sr.SHA256 == "":
		return "", nil
	}
	same, err := s.sameHash(ctx, key, sr.SHA256)
	if err != nil || same {
		return "", err
	}
	return "does not match what was sent: the checksums differ.", nil
}

func (s *Service) sameHash(ctx context.Context, key, want string) (bool, error) {
	h := sha256.New()
	for offset := int64(0); ; {
		chunk, err := s.logs.blobs.ReadAt(ctx, key, offset, 1<<20)
		if err != nil {
			return false, err
		}
		if len(chunk) == 0 {
			return strings.EqualFold(hex.EncodeToString(h.Sum(nil)), want), nil
		}
		h.Write(chunk)
		offset += int64(len(chunk))
	}
}

// keyLocks are locks by name.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when released
}

// lock waits until no other caller holds the lock of a name, or ctx ends.
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
