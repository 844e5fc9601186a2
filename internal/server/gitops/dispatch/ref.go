package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// seenOf returns what the ledger knows about the ref of an event.
func seenOf(tx *store.Tx, repoID, ref string) (vcs.Seen, error) {
	r, err := tx.Ref(repoID, ref)
	if errors.Is(err, store.ErrNotFound) {
		return vcs.Seen{}, nil
	}
	return vcs.Seen{Known: true, Commit: r.CommitID, Recorded: r.Recorded}, err
}

// processRef processes a push or a tag: it finds out what happened to the ref, and decides for each
// stack in the transaction that advances the ledger.
func (s *Service) processRef(ctx context.Context, v *loadedEvent) error {
	e := v.event
	if !watched(e, v.watches) {
		return s.conclude(ctx, v, ownerOf(v.row), func(tx *store.Tx, row store.VCSEvent) error {
			all, err := watches(tx, v.repo)
			if err != nil || watched(e, all) {
				return errors.Join(err, errChanged)
			}
			return s.decideRef(ctx, tx, v, row, e, all, vcs.Files{})
		})
	}
	var seen vcs.Seen
	repeated := false
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if seen, err = seenOf(tx, v.repo.ID, e.Ref); err != nil {
			return err
		}
		repeated, err = tx.RepeatsVCSEvent(v.row)
		return err
	})
	if err != nil {
		return err
	}
	var head func() (string, error)
	if integrations.CanAsk(v.integration) {
		head = func() (string, error) { return s.head(ctx, v, e.Ref) }
	}
	e, reason, err := vcs.Reconcile(seen, e, repeated || v.row.Source == SourceWebhook && forgeable(v.integration), head)
	if err != nil {
		return unanswered{err}
	}
	files := filesOf(e.Files, e.Complete)
	asked := false
	if reason == "" && !files.Known && e.Before != "" && integrations.CanAsk(v.integration) && needsFiles(e, v.watches) {
		if files, err = s.changed(ctx, v, vcs.Change{Before: e.Before, After: e.After}); err != nil {
			return err
		}
		asked = true
	}
	files = files.Compared(ctx, v.watches)
	return s.conclude(ctx, v, v.held(), func(tx *store.Tx, row store.VCSEvent) error {
		if now, err := seenOf(tx, v.repo.ID, e.Ref); err != nil || now != seen {
			return errors.Join(err, errChanged)
		}
		all, err := v.watchesHeld(tx)
		if err != nil {
			return err
		}
		if !asked && reason == "" && !files.Known && e.Before != "" && integrations.CanAsk(v.integration) && needsFiles(e, all) {
			return errChanged
		}
		if err := s.opts.Integrations.Note(tx, v.integration.ID, nil); err != nil {
			return err
		}
		if reason != "" && reason != vcs.ReasonDeleted {
			return finishEvent(tx, row, reason, "")
		}
		row.BeforeID, row.AfterID = e.Before, e.After
		if err := tx.SaveRef(store.VCSRef{RepoID: v.repo.ID, Ref: e.Ref, CommitID: e.After, SeenAt: tx.Now()}); err != nil {
			return err
		}
		return s.decideRef(ctx, tx, v, row, e, all, files)
	})
}

// forgeable reports whether others than the forge can send deliveries to an integration. Some forges
// send the integration's secret itself instead of a signature, or show it: an account that may change
// the webhook of one repository can learn it, and send pushes of others.
func forgeable(i store.VCSIntegration) bool {
	return slices.Contains([]string{vcs.ProviderGitLab, vcs.ProviderAzure, vcs.FlavorGitea}, vcs.ForgeKey(i.Provider, i.Flavor))
}

// watched reports whether a stack deploys the branch, or tags. The ledger contains no other refs, and
// the forge is not asked about them.
func watched(e vcs.Event, all []vcs.Watch) bool {
	return slices.ContainsFunc(all, func(w vcs.Watch) bool {
		return e.Kind == vcs.KindTag && w.DeployTags || w.DeployCommits && w.Branch != "" && e.Ref == vcs.BranchPrefix+w.Branch
	})
}

// conclude writes the outcome of an event, unless another worker has processed the event.
func (s *Service) conclude(ctx context.Context, v *loadedEvent, owners scope.Set, write func(tx *store.Tx, row store.VCSEvent) error) error {
	return s.db.Write(ctx, owners, func(tx *store.Tx) error {
		row, err := pending(tx, v.row.ID)
		if errors.Is(err, errChanged) {
			return nil
		}
		if err != nil {
			return err
		}
		return write(tx, row)
	})
}

func needsFiles(e vcs.Event, all []vcs.Watch) bool {
	return slices.ContainsFunc(all, func(w vcs.Watch) bool { return vcs.RefNeedsFiles(e, w) })
}

// changed returns the changed files. They are unknown if the forge will never show them.
func (s *Service) changed(ctx context.Context, v *loadedEvent, c vcs.Change) (vcs.Files, error) {
	files, complete, err := v.client.Changed(ctx, repoID(v.repo), c)
	if errors.Is(err, vcs.ErrRejected) || errors.Is(err, vcs.ErrGone) {
		s.log.WithError(err).WithFields(logrus.Fields{"event_id": v.row.ID, "repository": v.repo.Name}).Warn("the forge does not show the changed files; path filters count them as matches")
		return vcs.Files{}, nil
	}
	if err != nil {
		return vcs.Files{}, unanswered{fmt.Errorf("requesting the changed files: %w", err)}
	}
	return filesOf(files, complete), nil
}

// maxFiles bounds the files of a change. A forge can show any number.
const maxFiles = 10_000

// filesOf returns the changed files. If they are very many, they count as unknown.
func filesOf(names []string, complete bool) vcs.Files {
	if len(names) > maxFiles {
		return vcs.Files{}
	}
	return vcs.Files{Names: names, Known: complete}
}

// head returns the commit of a ref, or "" if the ref does not exist in a repository that does.
func (s *Service) head(ctx context.Context, v *loadedEvent, ref string) (string, error) {
	head, err := v.client.Head(ctx, repoID(v.repo), ref)
	if !errors.Is(err, vcs.ErrNotFound) {
		return head, err
	}
	if _, err := v.client.Find(ctx, v.repo.Name); err != nil {
		return "", fmt.Errorf("finding the repository %s: %w", v.repo.Name, err)
	}
	return "", nil
}

// decideRef records the decisions about a push or a tag, and creates the deployments.
func (s *Service) decideRef(ctx context.Context, tx *store.Tx, v *loadedEvent, row store.VCSEvent, e vcs.Event, all []vcs.Watch, files vcs.Files) error {
	for _, w := range all {
		d := vcs.MatchRef(e, w, files, v.settings.HonorSkipCI)
		if d.Reason == vcs.ReasonOtherBranch || d.Reason == vcs.ReasonTriggerOff && !strings.HasPrefix(e.Ref, vcs.BranchPrefix) {
			continue // every push to other branches would fill the stack's list
		}
		if d.Action == vcs.ActionUpdate {
			t := deployments.Trigger{
				Operation: workflow.OperationUpdate, Initiator: vcs.InitiatorPush, Requester: requester(v, e),
				Checkout: store.VCSCheckout{IntegrationID: v.integration.ID, RepoID: v.repo.ID, CommitID: e.After, Ref: e.Ref, Branch: strings.TrimPrefix(e.Ref, vcs.BranchPrefix)},
			}
			if e.Kind == vcs.KindTag {
				t.Initiator = vcs.InitiatorTag
			}
			if err := s.deploy(ctx, tx, v, row, &d, t); err != nil {
				return err
			}
			continue
		}
		if err := record(tx, row, d, store.Deployment{}); err != nil {
			return err
		}
	}
	return finishEvent(tx, row, "", "")
}

// requester returns the forge's account that caused an event, for display.
func requester(v *loadedEvent, e vcs.Event) string {
	if e.Sender.Name == "" {
		return v.integration.Name
	}
	return e.Sender.Name + " (" + v.integration.Name + ")"
}

// deploy creates the deployment of a decision, and records the decision. If the deployment is
// refused, the decision says why.
func (s *Service) deploy(ctx context.Context, tx *store.Tx, v *loadedEvent, row store.VCSEvent, d *vcs.Decision, t deployments.Trigger) error {
	st, err := tx.Stack(d.Watch.StackID)
	if err != nil {
		return err
	}
	ctx = audit.By(ctx, audit.WayForge, audit.Actor{Kind: audit.ActorForge, Name: t.Requester})
	created, err := s.opts.Queue.CreateTriggered(ctx, tx, st, t)
	if fault.Refuses(err) {
		d.Action, d.Reason, d.Detail = vcs.ActionNone, vcs.ReasonRefused, err.Error()
		return record(tx, row, *d, store.Deployment{})
	}
	if err != nil {
		return err
	}
	subject := outbox.Subject{IntegrationID: v.integration.ID, RepoID: v.repo.ID, Pull: t.Checkout.Pull, Commit: t.Checkout.CommitID}
	if err := outbox.Track(tx, subject, created); err != nil {
		return err
	}
	tx.OnCommit(func() {
		s.log.WithFields(logrus.Fields{"event_id": row.ID, "deployment_id": created.ID, "stack": st.Ref(), "commit": t.Checkout.CommitID}).Info("an event of a forge created a deployment")
	})
	return record(tx, row, *d, created)
}

// record records a decision.
func record(tx *store.Tx, row store.VCSEvent, d vcs.Decision, created store.Deployment) error {
	return tx.InsertVCSDecision(store.VCSDecision{
		ID: identity.NewID(), EventID: row.ID, StackID: d.Watch.StackID, Action: string(d.Action), Reason: string(d.Reason),
		Detail: termtext.OneLine(d.Detail, maxDetail), CommitID: d.Commit, DeploymentID: created.ID, Version: created.Version, DecidedAt: tx.Now(),
	})
}

// concludeMergeGroup makes the report on a commit of a merge queue conclude. Such commits are not
// deployed: the push that follows is.
func (s *Service) concludeMergeGroup(ctx context.Context, v *loadedEvent) error {
	return s.conclude(ctx, v, ownerOf(v.row), func(tx *store.Tx, row store.VCSEvent) error {
		d := outbox.Decision{Subject: outbox.Subject{IntegrationID: v.integration.ID, RepoID: v.repo.ID, Commit: v.event.After}}
		if err := outbox.Decide(tx, d); err != nil {
			return err
		}
		return finishEvent(tx, row, vcs.ReasonMergeGroup, "")
	})
}

// checkAccess polls the repositories of an integration whose access has changed.
func (s *Service) checkAccess(ctx context.Context, v *loadedEvent) error {
	return s.conclude(ctx, v, ownerOf(v.row), func(tx *store.Tx, row store.VCSEvent) error {
		if err := tx.PollReposNow(v.integration.ID, tx.Now()); err != nil {
			return err
		}
		tx.Notify(integrations.Topic, v.integration.ID)
		return finishEvent(tx, row, "", "")
	})
}
