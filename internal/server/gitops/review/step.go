package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// The tags of review stacks.
const (
	TagTemplate = "workflow:review-template"
	TagPull     = "workflow:pull-request"
)

// refused is the time after which a step that was refused is tried again.
const refused = 10 * time.Minute

// loadedStack is a review stack with what a step needs.
type loadedStack struct {
	Facts
	row      store.ReviewStack
	stack    store.Stack // if Exists
	template store.Stack // if Template
	settings *workflow.Settings
	newID    string // of the stack to create
}

// step judges a review stack and takes the step, in one transaction, so that a server that stops
// leaves nothing half done.
func (s *Service) step(ctx context.Context, id string) error {
	row, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.ReviewStack, error) { return tx.ReviewStack(id) })
	if err != nil {
		return store.IgnoreMissing(err)
	}
	newID := identity.NewID() // of the stack, if the step creates it
	owners := scope.Repository(row.OrgID, row.RepoID).And(scope.Stack(row.OrgID, row.TemplateID).Shared(), scope.Stack(row.OrgID, cmp.Or(row.StackID, newID)))
	if row.StackID != "" { // it can have been removed
		owners = owners.And(scope.Stack(row.OrgID, newID))
	}
	var remove *loadedStack
	err = s.db.Write(ctx, owners, func(tx *store.Tx) error {
		remove = nil
		v, err := s.read(tx, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && v.row.StackID != row.StackID {
			err = fmt.Errorf("%w: the review stack changes at the same time", store.ErrBusy)
		}
		if err != nil {
			return err
		}
		v.newID = newID
		verdict := Judge(v.row, v.Facts)
		problem := verdict.Problem
		v.row.Orphan, v.row.TryAt = verdict.Orphan, v.Now.Add(verdict.Wait)
		switch verdict.Step {
		case StepForget:
			return tx.DeleteReviewStack(v.row.ID)
		case StepRemove:
			remove = &v
			v.row.TryAt = v.Now.Add(busy)
		case StepNone:
		default:
			err := s.takeStep(ctx, tx, verdict.Step, &v)
			if fault.KindOf(err) == "" && err != nil {
				return err
			}
			if err != nil {
				problem, v.row.TryAt = termtext.OneLine(err.Error(), 500), v.Now.Add(refused)
			} else {
				tx.OnCommit(func() {
					s.log.WithFields(logrus.Fields{"step": verdict.Step, "stack": v.row.Project + "/" + v.row.Name, "pull": v.row.Pull}).Info("changed a review stack")
				})
			}
		}
		if problem != v.row.Problem {
			v.row.Problem = problem
			if err := s.reportProblem(tx, v.row); err != nil {
				return err
			}
		}
		return tx.SaveReviewStack(v.row)
	})
	if err != nil || remove == nil {
		return err
	}
	p, err := s.server(ctx, remove.row.OrgID)
	if err == nil {
		err = s.opts.Stacks.Delete(ctx, p, remove.stack, false)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("removing the stack %s: %w", remove.stack.Ref(), err)
	}
	return nil
}

// server returns the organization itself as the caller.
func (s *Service) server(ctx context.Context, orgID string) (identity.Principal, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (identity.Principal, error) { return serverIn(tx, orgID) })
}

func serverIn(tx *store.Tx, orgID string) (identity.Principal, error) {
	org, err := tx.Organization(orgID)
	return identity.Principal{Kind: identity.KindOrg, Org: org, Admin: true, TokenName: "review stacks"}, err
}

func (s *Service) read(tx *store.Tx, id string) (v loadedStack, err error) {
	v.Now = tx.Now()
	if v.row, err = tx.ReviewStack(id); err != nil {
		return v, err
	}
	// A lost event does not matter, because polls also change the pull request.
	pull, err := tx.PullByNumber(v.row.RepoID, v.row.Pull)
	if errors.Is(err, store.ErrNotFound) || err == nil && pull.State != string(vcs.PullOpen) {
		v.row.Wanted, err = false, nil // also if the integration was removed
	}
	if err != nil {
		return v, err
	}
	if err := s.readTemplate(tx, &v); err != nil {
		return v, err
	}
	if err := readStack(tx, &v); err != nil {
		return v, err
	}
	if v.row.DestroyID != "" {
		job, err := tx.JobOfDeployment(v.row.DestroyID)
		if err == nil {
			v.Destroy = &job
		} else if !errors.Is(err, store.ErrNotFound) {
			return v, err
		}
	}
	return v, nil
}

func (s *Service) readTemplate(tx *store.Tx, v *loadedStack) (err error) {
	v.template, err = tx.Stack(v.row.TemplateID)
	if err != nil {
		return store.IgnoreMissing(err)
	}
	if v.settings, err = s.opts.Queue.ReadSettings(tx, v.template.ID); err != nil || v.settings == nil {
		return err
	}
	t, ok := v.settings.Triggers()
	v.Template = ok && t.PullRequestTemplate
	if v.row.TTL, err = t.ReviewTTL(); err != nil {
		return fmt.Errorf("reading the settings of the template %s: %w", v.template.Ref(), err)
	}
	return nil
}

func readStack(tx *store.Tx, v *loadedStack) (err error) {
	if v.row.StackID != "" {
		v.stack, err = tx.Stack(v.row.StackID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		v.Exists = err == nil
	}
	if !v.Exists {
		org, err := tx.Organization(v.row.OrgID)
		if err != nil {
			return err
		}
		_, err = tx.StackByName(org.Name, v.row.Project, v.row.Name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		v.NameTaken = err == nil
		return nil
	}
	v.Empty = v.stack.ResourceCount == 0
	if v.Queued, err = tx.QueuedJobsOfStack(v.stack.ID); err != nil {
		return err
	}
	v.Active, err = tx.ActiveJobsOfStack(v.stack.ID)
	return err
}

// takeStep takes a step in the caller's transaction. If it returns an error with a [fault.Kind], it has
// changed nothing.
func (s *Service) takeStep(ctx context.Context, tx *store.Tx, step Step, v *loadedStack) error {
	r := &v.row
	r.TryAt = v.Now // to be judged again
	switch step {
	case StepCreate:
		return s.create(ctx, tx, v)
	case StepSkipUpdates:
		text := fmt.Sprintf("Skipped: pull request #%d is closed or has a newer commit.", r.Pull)
		return s.skip(tx, r, workflow.OperationUpdate, text)
	case StepSkipDestroy:
		r.DestroyID, r.Tries = "", 0
		return s.skip(tx, r, workflow.OperationDestroy, fmt.Sprintf("Skipped: pull request #%d was opened again.", r.Pull))
	case StepUpdate:
		return s.update(ctx, tx, v)
	case StepDestroy:
		return s.destroy(ctx, tx, v)
	case StepNone, StepRemove, StepForget:
	}
	return fmt.Errorf("no transaction takes the step %q", step)
}

// skip skips the queued deployments of an operation. Those of users are waited for.
func (s *Service) skip(tx *store.Tx, r *store.ReviewStack, op workflow.Operation, text string) error {
	n, err := s.opts.Queue.SkipQueued(tx, r.StackID, group(*r), op, text)
	if n == 0 {
		r.TryAt = tx.Now().Add(busy)
	}
	return err
}

func group(r store.ReviewStack) string { return "review/" + r.ID }

// create creates the stack with the settings of the template.
func (s *Service) create(ctx context.Context, tx *store.Tx, v *loadedStack) error {
	p, err := serverIn(tx, v.row.OrgID)
	if err != nil {
		return err
	}
	st, err := s.opts.Stacks.CreateIn(ctx, tx, p, stacks.NewStack{
		ID: v.newID, Org: p.Org, Project: v.row.Project, Name: v.row.Name,
		Tags: map[string]string{TagTemplate: v.template.Name, TagPull: fmt.Sprint(v.row.Pull)},
	})
	if err != nil {
		return err
	}
	if err := tx.CopyGrantExclusions(v.template.ID, st.ID); err != nil {
		return err
	}
	v.row.StackID, v.row.Deployed, v.row.DeployedAt, v.row.DestroyID, v.row.Tries = st.ID, "", time.Time{}, "", 0
	return nil
}

// update deploys the wanted commit. The settings are copied each time, because credentials of the
// template change.
func (s *Service) update(ctx context.Context, tx *store.Tx, v *loadedStack) error {
	t, err := s.trigger(tx, v)
	if err != nil {
		return err
	}
	t.Operation = workflow.OperationUpdate
	repo, err := tx.Repo(v.row.RepoID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	copied := fmt.Sprintf(`[ "$PULUMI_CI_OPERATION" = destroy ] || pulumi config cp --stack %s --dest %s`, v.template.Ref(), v.stack.Ref())
	set, _ := v.settings.Triggers() // read as present
	err = s.opts.Queue.CopySettings(ctx, tx, v.template, v.stack, set.Provider+"-review-stack", func(set *workflow.Settings) {
		set.ForReview(copied)
		if repo.CloneURL != "" {
			set.SetRepository(repo.CloneURL)
		}
	})
	if err != nil {
		return err
	}
	d, err := s.opts.Queue.CreateTriggered(ctx, tx, v.stack, t)
	if err != nil {
		return err
	}
	v.row.Deployed, v.row.DeployedAt, v.row.DestroyID, v.row.Tries = v.row.CommitID, v.Now, "", 0
	return s.track(tx, v.row, t, d)
}

// destroy destroys the resources with the last copy of the template's settings. The first attempt
// uses the commit that was deployed, and the others the base branch, because the commit can be gone
// together with its branch.
func (s *Service) destroy(ctx context.Context, tx *store.Tx, v *loadedStack) error {
	t, err := s.trigger(tx, v)
	if err != nil {
		return err
	}
	t.Operation, t.DeleteAfterDestroy = workflow.OperationDestroy, true
	t.Checkout.CommitID = v.row.Deployed
	if t.Checkout.CommitID == "" || v.row.Tries > 0 {
		t.Checkout.CommitID, t.Checkout.Ref = "", vcs.BranchPrefix+v.row.Base
	}
	d, err := s.opts.Queue.CreateTriggered(ctx, tx, v.stack, t)
	if err != nil {
		return err
	}
	v.row.DestroyID = d.ID
	v.row.Tries++
	return s.track(tx, v.row, t, d)
}

// trigger returns the trigger of a deployment of the wanted commit.
func (s *Service) trigger(tx *store.Tx, v *loadedStack) (t deployments.Trigger, err error) {
	r := v.row
	t = deployments.Trigger{
		Initiator: vcs.InitiatorReview, Requester: r.Requester, Group: group(r),
		Checkout: store.VCSCheckout{CommitID: r.CommitID, Ref: r.Ref, Branch: r.Source, Pull: r.Pull, Fork: r.Fork},
	}
	i, err := tx.Integration(r.IntegrationID)
	if errors.Is(err, store.ErrNotFound) {
		return t, nil // the repository is public, or the deployment fails
	}
	if err != nil {
		return t, err
	}
	set, err := integrations.SettingsOf(i)
	if err != nil {
		return t, err
	}
	t.Pool, t.Checkout.IntegrationID, t.Checkout.RepoID = set.PreviewPool, r.IntegrationID, r.RepoID
	return t, nil
}

// track makes a deployment be reported, if the repository still exists.
func (s *Service) track(tx *store.Tx, r store.ReviewStack, t deployments.Trigger, d store.Deployment) error {
	if t.Checkout.CommitID == "" {
		return nil
	}
	_, err := tx.Repo(r.RepoID)
	if err != nil {
		return store.IgnoreMissing(err)
	}
	return outbox.Track(tx, subject(r, t.Checkout.CommitID), d)
}

// reportProblem makes the problem of a review stack be reported, if the repository still exists.
func (s *Service) reportProblem(tx *store.Tx, r store.ReviewStack) error {
	_, err := tx.Repo(r.RepoID)
	if err != nil {
		return store.IgnoreMissing(err)
	}
	return outbox.Again(tx, subject(r, r.CommitID))
}

func subject(r store.ReviewStack, commit string) outbox.Subject {
	return outbox.Subject{IntegrationID: r.IntegrationID, RepoID: r.RepoID, Pull: r.Pull, Commit: commit}
}
