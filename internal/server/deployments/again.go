package deployments

import (
	"context"
	"fmt"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// InitiatorConsole is the initiator of deployments that users start in the console.
const InitiatorConsole = "console"

// Repetition is what a repeated deployment does otherwise than the earlier one.
type Repetition struct {
	Initiator    string // such as [InitiatorConsole]
	WithoutCache bool   // its job neither finds nor keeps a workspace
}

// Again queues a deployment with the operation, settings and checkout of an earlier one of the same
// stack, which has ended. The stack's settings do not change it.
func (s *Service) Again(ctx context.Context, p identity.Principal, st store.Stack, id string, o Repetition, repeat Repeat) (store.Deployment, error) {
	return store.Write(ctx, s.db, st.Scope(), func(tx *store.Tx) (d store.Deployment, err error) {
		return once(tx, p, st, repeat, func() (store.Deployment, error) { return s.againIn(ctx, tx, p, st, id, o) })
	})
}

func (s *Service) againIn(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, id string, o Repetition) (d store.Deployment, err error) {
	earlier, err := find(tx, st, id)
	if err != nil {
		return d, err
	}
	if !earlier.Job.Status.Final() {
		return d, fault.Conflict("deployment #%d has not ended: wait until it has, or cancel it", earlier.Version)
	}
	if earlier.Job.LogExpired && earlier.Configuration == store.ExpiredConfiguration {
		return d, fault.New(fault.KindGone, "the settings of deployment #%d were removed because of their age (setting keep_logs_for of the server): "+
			"start a new deployment with the settings of the stack", earlier.Version)
	}
	set, err := workflow.ParseSettings([]byte(earlier.Configuration))
	if err != nil {
		return d, fmt.Errorf("parsing the configuration of deployment %s: %w", earlier.ID, err)
	}
	q, err := s.queueingAgain(tx, st, earlier)
	if err != nil {
		return d, err
	}
	again := &earlierRun{trust: trust(earlier.Trust), checkout: q.checkout}
	if g := set.Git(); g != nil {
		source := *g
		again.git = &source
		if commit := commitOf(earlier.Job); g.Commit == "" && commit != "" {
			c := store.VCSCheckout{}
			if q.checkout != nil {
				c = *q.checkout
			}
			c.CommitID, c.Ref = commit, requestedRef(&source)
			q.checkout, g.Commit, g.Branch, g.Tag = &c, commit, "", ""
		}
	}
	q.again = again
	own := *set
	own.ConcurrencyGroup = "" // that of the stack applies
	if o.WithoutCache {
		own.CacheOptions = &workflow.CacheOptions{}
	}
	return s.createIn(ctx, tx, p, st, workflow.Request{Operation: earlier.Operation, Settings: &own}, set, o.Initiator, q)
}

// queueingAgain returns what the queue and the definition of an earlier deployment need to run again.
// The job still counts as one of its pull request, whose code can be hostile. It gets a credential of
// an integration only if the stack still watches the repository.
func (s *Service) queueingAgain(tx *store.Tx, st store.Stack, earlier store.DeploymentJob) (queueing, error) {
	c, err := tx.Checkout(earlier.Deployment.ID)
	if err != nil {
		return queueing{}, store.IgnoreMissing(err)
	}
	c.Credential, c.ExpiresAt = nil, time.Time{}
	watched := false
	if s.opts.Repositories != nil {
		b, ok, err := s.opts.Repositories.Bound(tx, st.ID)
		if err != nil {
			return queueing{}, err
		}
		watched = ok && b.Watch.IntegrationID == c.IntegrationID && b.Watch.RepoID == c.RepoID
	}
	if !watched {
		c.IntegrationID, c.RepoID = "", ""
	}
	return queueing{checkout: &c, group: earlier.Job.QueueGroup}, nil
}

// earlierRun is what decides the class of a deployment that repeats another one.
type earlierRun struct {
	trust    trust
	git      *workflow.SourceContextGit // before the commit was known; nil if the image contains the program
	checkout *store.VCSCheckout         // also before
}

// commitOf returns the commit that a job has checked out, or "".
func commitOf(job store.Job) string {
	for _, step := range job.Steps {
		if step.Commit != "" {
			return step.Commit
		}
	}
	return ""
}
