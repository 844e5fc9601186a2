package deployments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
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
	var job store.Job
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
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
// says. What the sender can still mend is a [*Missing] error, everything else
// becomes a complaint for the log.
func (s *Service) checkLogs(ctx context.Context, job store.Job, r protocol.ResultRequest) ([]string, error) {
	var complaints []string
	if r.Truncated {
		complaints = append(complaints, "The log is incomplete: the runner had to drop lines because its disk was full for too long.")
	}
	missing := &Missing{}
	seen := map[int]bool{}
	for _, sr := range r.Steps {
		if len(sr.SHA256) > hex.EncodedLen(sha256.Size) {
			return nil, fault.Invalid("Bad Request: the sha256 of step %d is too long", sr.Step)
		}
		if sr.Step < 0 || sr.Step > len(job.Steps) || seen[sr.Step] {
			return nil, fault.Invalid("Bad Request: the result names step %d, which the job does not have or which was named before", sr.Step)
		}
		seen[sr.Step] = true
		size, err := s.logs.sync(ctx, logKey(job.ID, job.Epoch, sr.Step))
		if err != nil {
			return nil, err
		}
		name := "the agent"
		if sr.Step < len(job.Steps) {
			name = "step " + job.Steps[sr.Step].Name
		}
		want := min(sr.Bytes, s.opts.LogLimit)
		switch {
		case size < want && !sr.Gone:
			missing.Logs = append(missing.Logs, protocol.MissingLog{Step: sr.Step, Received: size})
		case size < want:
			complaints = append(complaints, fmt.Sprintf("The log of %s is incomplete: %d of %d bytes arrived.", name, size, sr.Bytes))
		case sr.Bytes > s.opts.LogLimit:
			complaints = append(complaints, fmt.Sprintf("The log of %s was cut at the limit of %d bytes; it had %d.", name, s.opts.LogLimit, sr.Bytes))
		case size > sr.Bytes:
			complaints = append(complaints, fmt.Sprintf("The log of %s does not match what was sent: %d bytes are here, %d were announced.", name, size, sr.Bytes))
		case sr.SHA256 != "":
			same, err := s.sameHash(ctx, logKey(job.ID, job.Epoch, sr.Step), sr.SHA256)
			if err != nil {
				return nil, err
			}
			if !same {
				complaints = append(complaints, fmt.Sprintf("The log of %s does not match what was sent: the checksums differ.", name))
			}
		}
	}
	if len(missing.Logs) > 0 {
		return nil, missing
	}
	return complaints, nil
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
