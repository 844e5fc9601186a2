package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// Entry is an event with its decisions.
type Entry struct {
	store.VCSEvent
	Decisions []store.VCSDecision
}

const (
	// shown is the number of events that are shown.
	shown = 100
	// maxApprovals is the number of members whose approvals of a commit are remembered.
	maxApprovals = 50
)

// OfIntegration returns the newest events of an integration, with the decisions about all stacks.
func (s *Service) OfIntegration(ctx context.Context, org store.Organization, id string) ([]Entry, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Entry, error) {
		if _, err := integrations.Find(tx, org, id); err != nil {
			return nil, err
		}
		rows, err := tx.VCSEventsOfIntegration(id, shown)
		if err != nil {
			return nil, err
		}
		return entries(tx, rows, "")
	})
}

// OfStack returns the newest events that matter to a stack, with the decisions about it.
func (s *Service) OfStack(ctx context.Context, st store.Stack) ([]Entry, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Entry, error) {
		rows, err := tx.VCSEventsOfStack(st.ID, shown)
		if err != nil {
			return nil, err
		}
		return entries(tx, rows, st.ID)
	})
}

func entries(tx *store.Tx, rows []store.VCSEvent, stackID string) ([]Entry, error) {
	out := make([]Entry, 0, len(rows))
	for _, row := range rows {
		e := Entry{VCSEvent: row}
		all, err := tx.VCSDecisions(row.ID)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			if stackID == "" || d.StackID == stackID {
				e.Decisions = append(e.Decisions, d)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// Pull is an open pull request, as a stack that watches its repository sees it.
type Pull struct {
	store.VCSPull
	// Held is the reason that nothing runs for the newest commit, or "".
	Held vcs.Reason
	// Approvable reports whether a member can approve the newest commit.
	Approvable bool
}

// Pulls returns the open pull requests of the repository that a stack watches.
func (s *Service) Pulls(ctx context.Context, st store.Stack) ([]Pull, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Pull, error) {
		w, err := tx.Watch(st.ID)
		if err != nil || w.RepoID == "" {
			return nil, store.IgnoreMissing(err)
		}
		i, err := tx.Integration(w.IntegrationID)
		if err != nil {
			return nil, err
		}
		rows, err := tx.OpenPulls(w.RepoID)
		if err != nil {
			return nil, err
		}
		out := make([]Pull, 0, len(rows))
		for _, row := range rows {
			p, err := pullFor(tx, st.ID, i, row)
			if err != nil {
				return nil, err
			}
			out = append(out, p)
		}
		return out, nil
	})
}

// ReviewStacks returns the review stacks that a template has for pull requests, by their numbers. They are those that the
// caller may see.
func (s *Service) ReviewStacks(ctx context.Context, p identity.Principal, template store.Stack, pulls []Pull) (map[int64]store.Stack, error) {
	out := map[int64]store.Stack{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		for _, pull := range pulls {
			rows, err := tx.ReviewStacksOfPull(pull.RepoID, pull.Number)
			if err != nil {
				return err
			}
			for _, row := range rows {
				if row.TemplateID != template.ID || row.StackID == "" {
					continue
				}
				st, err := tx.Stack(row.StackID)
				if errors.Is(err, store.ErrNotFound) {
					continue
				}
				who := p
				if err == nil {
					who, err = p.On(tx, st)
				}
				if err != nil {
					return err
				}
				if who.Can(st, identity.StateRead) {
					out[pull.Number] = st
				}
			}
		}
		return nil
	})
	return out, fault.While(err, "reading the review stacks of pull requests")
}

// pullFor returns a pull request as a stack sees it: an approval counts only if its member may deploy
// the stack.
func pullFor(tx *store.Tx, stackID string, i store.VCSIntegration, row store.VCSPull) (p Pull, err error) {
	p.VCSPull = row
	set, err := integrations.SettingsOf(i)
	if err != nil {
		return p, err
	}
	if row.Approved != "" {
		if ok, err := mayApprove(tx, row, stackID); err != nil {
			return p, err
		} else if !ok {
			p.Approved = ""
		}
	}
	said := vcs.Pull{
		Number: int(row.Number), State: vcs.PullState(row.State), Head: row.Head, Base: row.Base, Ref: row.Ref, Fork: row.Fork, Doubt: vcs.Reason(row.Doubt), Draft: row.Draft,
		Author: vcs.Account{ID: row.AuthorID, Name: row.Author, Bot: row.Bot},
	}
	p.Held, p.Approvable = vcs.Held(said, policyFor(i, set, said), p.Approved)
	return p, nil
}

// Approve lets a commit of a pull request of a fork or a bot run for the stacks that watch the
// repository and that p may deploy. It approves nothing but this commit.
func (s *Service) Approve(ctx context.Context, p identity.Principal, st store.Stack, number int64, commit string) (Pull, error) {
	var pull store.VCSPull
	var out Pull
	if err := p.Check(st, identity.Operate); err != nil {
		return out, err
	}
	before, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSWatch, error) { return tx.Watch(st.ID) })
	if store.IgnoreMissing(err) != nil {
		return out, err
	}
	err = s.db.Write(ctx, scope.Repository(st.OrgID, before.RepoID).And(st.Scope().Shared()), func(tx *store.Tx) error {
		w, err := tx.Watch(st.ID)
		if err == nil && w.RepoID != before.RepoID {
			return fault.Conflict("the settings of the stack now name another repository; load its pull requests again")
		}
		if err == nil {
			pull, err = tx.PullByNumber(w.RepoID, number)
		}
		if err != nil {
			return store.IfMissing(err, fault.NotFound("the stack's repository has no pull request #%d that this server knows", number))
		}
		i, err := tx.Integration(w.IntegrationID)
		if err != nil {
			return err
		}
		set, err := integrations.SettingsOf(i)
		if err != nil {
			return err
		}
		switch {
		case pull.State != string(vcs.PullOpen):
			return fault.Conflict("pull request #%d is %s", number, pull.State)
		case pull.Fork && set.ForkPulls != vcs.ApprovalRequired:
			return fault.Forbidden("the integration does not allow pull requests from forks, or others whose head is not known to be a branch of the repository; an administrator can set its forkPullRequests to \"approve\"")
		case pull.Fork && pull.Ref == "":
			return fault.Invalid("the forge does not offer the commits of forks in the base repository, so that they cannot be deployed")
		case !strings.EqualFold(commit, pull.Head):
			return fault.Conflict("the newest commit of pull request #%d is %s: review it, and approve it by this id", number, pull.Head)
		}
		if pull.Approved != pull.Head {
			pull.ApprovedBy = nil
		}
		others := slices.DeleteFunc(pull.ApprovedBy, func(who string) bool { return who == string(p.Actor()) })
		pull.ApprovedBy = slices.Concat([]string{string(p.Actor())}, others[:min(len(others), maxApprovals-1)])
		pull.Approved, pull.ApprovedAt = pull.Head, tx.Now()
		if err := tx.SavePull(pull); err != nil {
			return err
		}
		r, err := tx.Repo(w.RepoID)
		if err != nil {
			return err
		}
		e := vcs.Event{Kind: vcs.KindPull, Repo: repoID(r), Pull: int(number), After: pull.Head}
		if err := insert(tx, i, r, identity.NewID(), SourceAPI, e); err != nil {
			return err
		}
		if out, err = pullFor(tx, st.ID, i, pull); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: st.OrgID, Action: audit.PullRequestApproved, Subject: audit.Stack(st),
			Detail: map[string]any{"pullRequest": number, "commit": pull.Head, "repository": r.Name, "fork": pull.Fork},
		})
	})
	return out, err
}
