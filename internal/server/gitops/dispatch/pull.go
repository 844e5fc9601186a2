package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/review"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// processPull processes an event about a pull request. The event only says that something changed:
// the forge says what is true.
func (s *Service) processPull(ctx context.Context, v *loadedEvent) error {
	pulls, ok := v.client.(vcs.Pulls)
	if !ok {
		return s.finish(ctx, v.row.ID, vcs.ReasonUnsupported, "pull requests of a plain git server")
	}
	number := v.event.Pull
	p, err := pulls.Pull(ctx, repoID(v.repo), number)
	if err != nil {
		return unanswered{fmt.Errorf("reading the pull request #%d: %w", number, err)}
	}
	doubt, err := s.confirm(ctx, v, &p)
	if err != nil {
		return err
	}
	policy := policyFor(v.integration, v.settings, p)
	p = bounded(p)
	rerun := v.event.Kind == vcs.KindRerun
	if rerun {
		may, err := pulls.MayWrite(ctx, repoID(v.repo), v.event.Sender)
		if err != nil {
			return unanswered{fmt.Errorf("reading the rights of %s: %w", v.event.Sender.Name, err)}
		}
		if !may {
			return s.finish(ctx, v.row.ID, vcs.ReasonUnauthorized, v.event.Sender.Name)
		}
		if v.event.After != "" && v.event.After != p.Head {
			return s.finish(ctx, v.row.ID, vcs.ReasonStale, "")
		}
	}
	known := vcs.PullContext{Approved: p.Head, Message: v.event.Message, Rerun: rerun}
	asked := slices.ContainsFunc(v.watches, func(w vcs.Watch) bool { return vcs.PullNeedsFiles(p, w, policy, known) })
	if asked {
		if known.Files, err = s.changed(ctx, v, vcs.Change{Pull: number, After: p.Head}); err != nil {
			return err
		}
		known.Files = known.Files.Compared(ctx, v.watches)
	}
	return s.conclude(ctx, v, v.held(), func(tx *store.Tx, row store.VCSEvent) error {
		pull, err := tx.PullByNumber(v.repo.ID, int64(number))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if pull.ReadAt.After(row.ReceivedAt) && pull.UpdatedAt.After(p.UpdatedAt) {
			return unanswered{errors.New("the forge answered with an earlier state of the pull request")}
		}
		known.Published = pull.Draft
		pull = rowOf(v.repo, pull, p)
		pull.ReadAt = tx.Now()
		if err := tx.SavePull(pull); err != nil {
			return err
		}
		if err := s.opts.Integrations.Note(tx, v.integration.ID, doubt); err != nil {
			return err
		}
		all, err := v.watchesHeld(tx)
		if err != nil {
			return err
		}
		known.Approved = pull.Approved
		if !asked && slices.ContainsFunc(all, func(w vcs.Watch) bool { return vcs.PullNeedsFiles(p, w, policy, known) }) {
			return errChanged
		}
		row.AfterID = p.Head
		if row.Detail = ""; doubt != nil {
			row.Detail = doubt.Error()
		}
		e := pullEvent{loadedEvent: *v, pull: pull, now: p, policy: policy, known: known}
		e.row, e.watches = row, all
		return s.decidePull(ctx, tx, &e)
	})
}

// The limits of what a forge says about a pull request. Its author chooses most of it.
const (
	maxTitle, maxURL, maxAccount = 300, 2000, 200
	maxLabels, maxLabel          = 100, 200
)

// bounded returns a pull request without what is too long to be stored and shown.
func bounded(p vcs.Pull) vcs.Pull {
	p.Title = termtext.OneLine(p.Title, maxTitle)
	if len(p.URL) > maxURL {
		p.URL = ""
	}
	p.Author.ID, p.Author.Name = cut(p.Author.ID, maxAccount), termtext.OneLine(p.Author.Name, maxAccount)
	p.Base, p.Source, p.Ref = cut(p.Base, maxRef), cut(p.Source, maxRef), cut(p.Ref, maxRef)
	p.Labels = slices.DeleteFunc(slices.Clone(p.Labels), func(l string) bool { return len(l) > maxLabel })
	p.Labels = p.Labels[:min(len(p.Labels), maxLabels)]
	return p
}

// cut returns the first part of a text, which must stay as it is to be compared.
func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// policyFor returns the rules for a pull request.
func policyFor(i store.VCSIntegration, set integrations.Settings, p vcs.Pull) vcs.Policy {
	policy := set.Policy(i.Provider)
	if p.Ref == "" && p.Fork {
		policy.Forks = vcs.ApprovalNever // the base repository does not contain the commit
	}
	return policy
}

// rowOf returns the row of a pull request as the forge describes it.
func rowOf(r store.VCSRepo, row store.VCSPull, p vcs.Pull) store.VCSPull {
	if row.ID == "" {
		row.ID, row.RepoID, row.Number = identity.NewID(), r.ID, int64(p.Number)
	}
	row.State, row.Head, row.Base, row.Source, row.Ref, row.Title, row.URL = string(p.State), p.Head, p.Base, p.Source, p.Ref, p.Title, p.URL
	row.Draft, row.Fork, row.Doubt, row.Bot, row.AuthorID, row.Author, row.Labels = p.Draft, p.Fork, string(p.Doubt), p.Author.Bot, p.Author.ID, p.Author.Name, p.Labels
	row.UpdatedAt = p.UpdatedAt
	return row
}

// pullEvent is an event about a pull request, with what the transaction that decides about it has read.
type pullEvent struct {
	loadedEvent

	pull   store.VCSPull
	now    vcs.Pull // as the forge describes it
	policy vcs.Policy
	known  vcs.PullContext
}

// decidePull records the decisions about a pull request, and creates and skips deployments.
func (s *Service) decidePull(ctx context.Context, tx *store.Tx, e *pullEvent) error {
	var decisions []vcs.Decision
	for _, w := range e.watches {
		forStack := e.known
		if e.known.Approved != "" {
			if ok, err := mayApprove(tx, e.pull, w.StackID); err != nil {
				return err
			} else if !ok {
				forStack.Approved = ""
			}
		}
		decisions = append(decisions, vcs.MatchPull(e.now, w, e.policy, forStack)...)
	}
	decisions = vcs.ChooseTemplates(decisions)
	cause := ""
	if e.event.Kind == vcs.KindRerun {
		cause = cmp.Or(e.event.Content, e.row.ID)
	}
	concerned, approval := false, false
	for i := range decisions {
		d := &decisions[i]
		if e.event.Kind == vcs.KindRerun && !requested(e.event.Check, *d) {
			continue
		}
		concerned = concerned || e.now.State == vcs.PullOpen && (d.Watch.PreviewPulls || d.Watch.Template) && d.Watch.Branch == e.now.Base
		approval = approval || d.AwaitsApproval()
		if err := s.applyPull(ctx, tx, e, d, cause); err != nil {
			return err
		}
	}
	if concerned {
		subject := outbox.Subject{IntegrationID: e.integration.ID, RepoID: e.repo.ID, Pull: e.pull.Number, Commit: e.now.Head}
		if err := outbox.Decide(tx, outbox.Decision{Subject: subject, Approval: approval}); err != nil {
			return err
		}
	}
	if s.opts.Reviewed != nil {
		c := review.Change{Integration: e.integration, Repo: e.repo, Row: e.pull, Pull: e.now, Decisions: decisions}
		if err := s.opts.Reviewed(ctx, tx, c); err != nil {
			return err
		}
	}
	return finishEvent(tx, e.row, "", e.row.Detail)
}

// mayApprove reports whether one of the members who approved a pull request may deploy a stack now.
// Stacks of one repository can have other members.
func mayApprove(tx *store.Tx, pull store.VCSPull, stackID string) (bool, error) {
	st, err := tx.Stack(stackID)
	if err != nil {
		return false, err
	}
	for _, who := range pull.ApprovedBy {
		p, err := identity.ActAs(tx, st, identity.Actor(who))
		if err == nil {
			err = p.Check(st, identity.Operate)
		}
		if err == nil || fault.KindOf(err) == "" {
			return err == nil, err
		}
	}
	return false, nil
}

// requested reports whether a check that is to run again shows a decision.
func requested(check string, d vcs.Decision) bool {
	return check == "" || check == outbox.Aggregate || d.Action == vcs.ActionPreview && check == outbox.Context(d.Watch.Project, d.Watch.Stack, workflow.OperationPreview)
}

// groupOf returns the queue group of the deployments for a pull request.
func groupOf(pull store.VCSPull) string { return "pull/" + pull.ID }

// applyPull records a decision about a pull request. Each commit runs once for a stack.
func (s *Service) applyPull(ctx context.Context, tx *store.Tx, e *pullEvent, d *vcs.Decision, cause string) error {
	pull := e.pull
	t := deployments.Trigger{
		Operation: workflow.OperationPreview, Initiator: vcs.InitiatorPull, Requester: requester(&e.loadedEvent, e.event), Group: groupOf(pull), Pool: e.settings.PreviewPool,
		Checkout: checkoutOf(&e.loadedEvent, pull),
	}
	if e.event.Sender.Name == "" && pull.Author != "" {
		t.Requester = pull.Author + " (" + e.integration.Name + ")"
	}
	switch d.Action {
	case vcs.ActionSkip:
		d.Action = vcs.ActionNone
		text := fmt.Sprintf("Skipped: pull request #%d is closed, or no longer against the stack's branch.", pull.Number)
		n, err := s.opts.Queue.SkipQueued(tx, d.Watch.StackID, t.Group, t.Operation, text)
		if err != nil {
			return err
		}
		if n == 0 && d.Reason == vcs.ReasonOtherBranch {
			return nil
		}
		return record(tx, e.row, *d, store.Deployment{})
	case vcs.ActionUpdate:
		t.Operation = workflow.OperationUpdate
	case vcs.ActionPreview:
	case vcs.ActionNone, vcs.ActionReview: // review stacks follow from the state of the pull request
		if d.Reason == vcs.ReasonOtherBranch || d.Reason == vcs.ReasonTriggerOff {
			return nil
		}
		return record(tx, e.row, *d, store.Deployment{})
	}
	run := store.VCSRun{ID: identity.NewID(), StackID: d.Watch.StackID, PullID: pull.ID, CommitID: pull.Head, Action: string(d.Action), Cause: cause}
	if has, err := tx.HasRun(run); err != nil {
		return err
	} else if has {
		d.Action, d.Reason = vcs.ActionNone, vcs.ReasonUnchanged
		return record(tx, e.row, *d, store.Deployment{})
	}
	text := fmt.Sprintf("Skipped: pull request #%d has a newer commit.", pull.Number)
	if _, err := s.opts.Queue.SkipQueued(tx, d.Watch.StackID, t.Group, t.Operation, text); err != nil {
		return err
	}
	if err := s.deploy(ctx, tx, &e.loadedEvent, e.row, d, t); err != nil || d.Reason == vcs.ReasonRefused {
		return err // a refused deployment can run later, for example with other settings
	}
	return tx.InsertRun(run)
}

// checkoutOf returns the checkout of a pull request's head, from the base repository.
func checkoutOf(v *loadedEvent, pull store.VCSPull) store.VCSCheckout {
	ref := pull.Ref
	if ref == "" && !pull.Fork {
		ref = vcs.BranchPrefix + strings.TrimPrefix(pull.Source, vcs.BranchPrefix)
	}
	return store.VCSCheckout{
		IntegrationID: v.integration.ID, RepoID: v.repo.ID, CommitID: pull.Head, Ref: ref, Branch: pull.Source, Pull: pull.Number, Fork: pull.Fork,
	}
}
