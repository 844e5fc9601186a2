package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// found is the answer of a forge to a poll.
type found struct {
	tags     bool // the answer contains all tags
	branches []string
	refs     map[string]string // commits
	pulls    []vcs.Pull
	partial  bool // others of the pull requests can have changed, too
	cursor   vcs.Cursor
	repo     vcs.Repo // zero if nothing seems to have changed
}

// ask asks a forge for the refs and the pull requests that stacks watch. before is the ledger.
func (s *Service) ask(ctx context.Context, i store.VCSIntegration, r store.VCSRepo, all []vcs.Watch, before []store.VCSRef) (f found, err error) {
	client, err := s.opts.Integrations.Client(ctx, i)
	if err != nil {
		return f, err
	}
	wantPulls := false
	branches := map[string]bool{}
	for _, w := range all {
		f.tags = f.tags || w.DeployTags
		wantPulls = wantPulls || w.PreviewPulls || w.Template || w.DeployPull != 0
		if w.DeployCommits && w.Branch != "" && !branches[w.Branch] {
			branches[w.Branch] = true
			f.branches = append(f.branches, vcs.BranchPrefix+w.Branch)
		}
	}
	prefixes := f.branches
	if f.tags {
		prefixes = append(slices.Clip(prefixes), vcs.TagPrefix)
	}
	f.refs = map[string]string{}
	if len(prefixes) > 0 {
		refs, err := client.Refs(ctx, repoID(r), prefixes)
		if errors.Is(err, vcs.ErrNotFound) && vcs.ForgeKey(i.Provider, i.Flavor) == vcs.FlavorGit {
			// The name comes from the settings. The server can have it with .git only, or without.
			if f.repo, err = client.Find(ctx, r.Name); err == nil {
				refs, err = client.Refs(ctx, f.repo.RepoID, prefixes)
			}
		}
		if err != nil {
			return f, fmt.Errorf("listing the refs of %s: %w", r.Name, err)
		}
		for _, ref := range refs {
			if len(ref.Name) <= maxRef {
				f.refs[ref.Name] = vcs.Commit(ref.Commit)
			}
		}
	}
	f.cursor = vcs.Cursor(r.PullCursor)
	if pulls, ok := client.(vcs.Pulls); ok && wantPulls {
		f.pulls, f.cursor, err = pulls.Pulls(ctx, repoID(r), f.cursor)
		if f.partial = errors.Is(err, vcs.ErrPartial); err != nil && !f.partial {
			return f, fmt.Errorf("listing the pull requests of %s: %w", r.Name, err)
		}
		err = nil
		for n, p := range f.pulls {
			f.pulls[n] = bounded(p)
		}
	}
	if f.differs(before) && vcs.ForgeKey(i.Provider, i.Flavor) != vcs.FlavorGit {
		f.repo, err = identify(ctx, client, r)
	}
	return f, err
}

// differs reports whether an answer can lead to events.
func (f found) differs(before []store.VCSRef) bool {
	ledger := map[string]string{}
	for _, row := range before {
		ledger[row.Ref] = row.CommitID
	}
	for ref, commit := range f.refs {
		if ledger[ref] != commit {
			return true
		}
	}
	return len(f.pulls) > 0
}

// identify returns the repository that has the name of a known one, or an error if it is another one.
// Refs are listed by name, and anyone who may create repositories can take the name of one that was
// renamed or deleted.
func identify(ctx context.Context, client vcs.Repository, r store.VCSRepo) (vcs.Repo, error) {
	now, err := client.Find(ctx, r.Name)
	if err != nil {
		return now, fmt.Errorf("finding the repository %s: %w", r.Name, err)
	}
	if now.ID != r.RemoteID {
		return now, fmt.Errorf("the forge now has another repository with the name %s, which is not deployed: write the new name of the former one into the settings of its stacks, or remove the name there and add it again", r.Name)
	}
	return now, nil
}

// compare turns the differences between the answer of a forge and the ledger into events. What is
// seen for the first time is only recorded. What changed in the ledger since the forge was asked is
// newer than the answer, and left to the next poll. [Service.record] has made p before.
func (s *Service) compare(tx *store.Tx, i store.VCSIntegration, r *store.VCSRepo, f found, p plan) error {
	for _, ref := range f.branches {
		fresh, err := p.unchanged(tx, r.ID, ref)
		if err != nil {
			return err
		}
		if !fresh {
			continue
		}
		row, known := p.ledger[ref]
		if err := s.compareRef(tx, i, *r, row, known, vcs.Event{Kind: vcs.KindPush, Repo: repoID(*r), Ref: ref, Before: row.CommitID, After: f.refs[ref]}); err != nil {
			return err
		}
	}
	if err := s.deployTags(tx, i, r, f, p); err != nil {
		return err
	}
	return s.comparePulls(tx, i, r, f)
}

// compareRef stores an event if a ref differs from the ledger. It does nothing while an event about
// the ref waits, because that event says more.
func (s *Service) compareRef(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, row store.VCSRef, known bool, e vcs.Event) error {
	if known && row.CommitID == e.After {
		return nil
	}
	if n, err := tx.PendingVCSEvents(r.ID, e.Ref, ""); err != nil || n > 0 {
		return err
	}
	if !known {
		ev := newEvent(tx, i, r, identity.NewID(), SourcePoll, e)
		ev.Done, ev.DoneAt, ev.Reason = true, tx.Now(), string(vcs.ReasonRecorded)
		if err := tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: e.Ref, CommitID: e.After, Recorded: true, SeenAt: tx.Now()}); err != nil {
			return err
		}
		return tx.InsertVCSEvent(ev)
	}
	e.Deleted = e.After == ""
	return insert(tx, i, r, identity.NewID(), SourcePoll, e)
}

// comparePulls stores events for the pull requests that differ from what is known. At the first poll,
// the open ones are only recorded. If the forge has not listed all that changed, the open ones that it
// did not list are read one by one.
func (s *Service) comparePulls(tx *store.Tx, i store.VCSIntegration, r *store.VCSRepo, f found) error {
	first := r.PullCursor == ""
	for _, p := range f.pulls {
		row, err := tx.PullByNumber(r.ID, int64(p.Number))
		missing := errors.Is(err, store.ErrNotFound)
		if err != nil && !missing {
			return err
		}
		if !missing && sameState(row, p) {
			continue
		}
		if first && missing {
			row = rowOf(*r, row, p)
			row.ReadAt = tx.Now()
			if err := tx.SavePull(row); err != nil {
				return err
			}
			continue
		}
		if err := s.lookAt(tx, i, *r, p.Number, p.Head); err != nil {
			return err
		}
	}
	r.PullCursor = string(f.cursor)
	if err := s.askAgain(tx, i, *r); err != nil {
		return err
	}
	if !f.partial || first {
		return nil
	}
	listed := map[int64]bool{}
	for _, p := range f.pulls {
		listed[int64(p.Number)] = true
	}
	known, err := tx.OpenPulls(r.ID)
	if err != nil {
		return err
	}
	for _, row := range known {
		if listed[row.Number] {
			continue
		}
		if err := s.lookAt(tx, i, *r, int(row.Number), ""); err != nil {
			return err
		}
	}
	return nil
}

// lookAt stores an event about a pull request, unless one waits.
func (s *Service) lookAt(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, number int, head string) error {
	if n, err := tx.PendingVCSEvents(r.ID, pullSubject(number), ""); err != nil || n > 0 {
		return err
	}
	return insert(tx, i, r, identity.NewID(), SourcePoll, vcs.Event{Kind: vcs.KindPull, Repo: repoID(r), Pull: number, After: head})
}

// sameState reports whether nothing has changed in a pull request that can matter to a stack.
func sameState(row store.VCSPull, p vcs.Pull) bool {
	now := rowOf(store.VCSRepo{}, row, p)
	if p.Fork && !row.Fork {
		return false
	}
	return row.State == now.State && row.Head == now.Head && row.Base == now.Base && row.Draft == now.Draft && strings.Join(row.Labels, "\n") == strings.Join(now.Labels, "\n")
}
