// Package review gives pull requests stacks of their own. A template is a stack whose settings say
// so; for each pull request against its branch there is to be a stack with its settings and
// configuration, which deploys the newest commit and is destroyed when the pull request is closed.
// The package keeps what is wanted, and a reconciler changes what is.
package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

// Topic is the channel of notifications about review stacks. The payload is the organization's id.
const Topic = "vcs-review"

// batch is the number of review stacks that are read at once.
const batch = 100

// Change is what the server knows about a pull request after an event about it.
type Change struct {
	Integration store.VCSIntegration
	Repo        store.VCSRepo
	Row         store.VCSPull
	Pull        vcs.Pull
	Decisions   []vcs.Decision
}

// Options are the options of [New].
type Options struct {
	Log    *logrus.Entry
	Queue  *deployments.Service
	Stacks *stacks.Service
}

// Service keeps review stacks. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service { return &Service{db: db, opts: o, log: o.Log} }

// Reviewed records which review stacks are wanted for a pull request. It is called in the
// transaction that records the decisions about the pull request.
func (s *Service) Reviewed(_ context.Context, tx *store.Tx, c Change) error {
	rows, err := tx.ReviewStacksOfPull(c.Repo.ID, c.Row.Number)
	if err != nil {
		return fmt.Errorf("reading review stacks: %w", err)
	}
	for _, r := range rows {
		want(&r, c)
		r.TryAt = tx.Now()
		if err := tx.SaveReviewStack(r); err != nil {
			return fmt.Errorf("recording a review stack: %w", err)
		}
	}
	for _, d := range c.Decisions {
		// Paths and labels decide only whether a stack is created, so that another template of the
		// project, which matches later, does not create a second one.
		known := slices.ContainsFunc(rows, func(r store.ReviewStack) bool { return r.Project == d.Watch.Project })
		if d.Action != vcs.ActionReview || known || c.Pull.State != vcs.PullOpen {
			continue
		}
		r := store.ReviewStack{
			ID: identity.NewID(), OrgID: d.Watch.OrgID, IntegrationID: c.Integration.ID, RepoID: c.Repo.ID, Pull: c.Row.Number,
			TemplateID: d.Watch.StackID, Project: d.Watch.Project, Name: Name(c.Repo.Name, c.Pull.Number), Requester: c.Row.Author,
			CreatedAt: tx.Now(), TryAt: tx.Now(),
		}
		deploy(&r, c)
		if err := tx.InsertReviewStack(r); err != nil {
			return fmt.Errorf("recording a review stack: %w", err)
		}
	}
	tx.Notify(Topic, c.Integration.OrgID)
	return nil
}

// want changes what is wanted of an existing review stack.
func want(r *store.ReviewStack, c Change) {
	if c.Pull.State != vcs.PullOpen {
		r.Wanted = false
		return
	}
	at := slices.IndexFunc(c.Decisions, func(d vcs.Decision) bool { return d.Watch.StackID == r.TemplateID && d.Watch.Template })
	if at < 0 {
		return // the template was deleted, or is no template any more
	}
	switch reason := c.Decisions[at].Reason; {
	case reason == vcs.ReasonOtherBranch:
		r.Wanted = false
	case reason.Holds():
		// The stack remains at the commit that was allowed.
	default:
		deploy(r, c)
	}
}

// deploy makes a review stack wanted at the newest commit.
func deploy(r *store.ReviewStack, c Change) {
	r.Wanted, r.CommitID, r.Base, r.Source, r.Fork = true, c.Pull.Head, c.Pull.Base, c.Pull.Source, c.Pull.Fork
	if r.Ref = c.Pull.Ref; r.Ref == "" && !c.Pull.Fork {
		r.Ref = vcs.BranchPrefix + c.Pull.Source
	}
}

// Run brings review stacks closer to what is wanted until ctx is canceled. Only one server may run it
// on a database.
func (s *Service) Run(ctx context.Context) error {
	return (&due.Loop{
		Log: s.log, Name: "review stacks", Notices: s.db, Topic: Topic, Every: time.Second, Most: 1,
		Check: func(ctx context.Context, _ []string) ([]due.Work, error) { return nil, s.Sweep(ctx) },
	}).Run(ctx)
}

// Sweep takes one step for each review stack that is due.
func (s *Service) Sweep(ctx context.Context) error {
	due, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.DueReviewStacks(tx.Now(), batch) })
	if err != nil {
		return fmt.Errorf("reading the due review stacks: %w", err)
	}
	for _, id := range due {
		if err := s.step(ctx, id); err != nil && ctx.Err() == nil {
			s.log.WithError(err).WithField("review_stack", id).Error("changing a review stack failed; retrying")
			if err := s.postpone(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// postpone makes an unexpected error of one review stack not delay the others.
func (s *Service) postpone(ctx context.Context, id string) error {
	row, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.ReviewStack, error) { return tx.ReviewStack(id) })
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a review stack: %w", err)
	}
	err = s.db.Write(ctx, scope.Repository(row.OrgID, row.RepoID), func(tx *store.Tx) error {
		return tx.PostponeReviewStack(id, tx.Now().Add(retry.Spread(time.Minute)))
	})
	return fault.While(err, "postponing a review stack")
}
