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

// maxNewTags is the number of new tags that are deployed at once.
const maxNewTags = 3

// found is the answer of a forge to a poll.
type found struct {
	tags     bool // the answer contains all tags
	branches []string
	refs     map[string]string // commits
	newer    map[string]bool   // refs of which the ledger says more
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
// seen for the first time is only recorded. before is the ledger before the forge was asked: what
// changed since is newer than the answer, and left to the next poll.
func (s *Service) compare(tx *store.Tx, i store.VCSIntegration, r *store.VCSRepo, f found, before []store.VCSRef) error {
	rows, err := tx.Refs(r.ID)
	if err != nil {
		return err
	}
	f.newer = changed(before, rows)
	ledger := map[string]store.VCSRef{}
	watched := map[string]bool{}
	for _, ref := range f.branches {
		watched[ref] = true
	}
	for _, row := range rows {
		isTag := strings.HasPrefix(row.Ref, vcs.TagPrefix)
		if !isTag && !watched[row.Ref] || isTag && !f.tags {
			// If a stack watches it again, its commit must be recorded again.
			if err := tx.DeleteRef(r.ID, row.Ref); err != nil {
				return err
			}
			continue
		}
		ledger[row.Ref] = row
	}
	for _, ref := range f.branches {
		if f.newer[ref] {
			continue
		}
		row, known := ledger[ref]
		if err := s.compareRef(tx, i, *r, row, known, vcs.Event{Kind: vcs.KindPush, Repo: repoID(*r), Ref: ref, Before: row.CommitID, After: f.refs[ref]}); err != nil {
			return err
		}
	}
	if err := s.compareTags(tx, i, r, f, ledger); err != nil {
		return err
	}
	return s.comparePulls(tx, i, r, f)
}

// changed returns the refs whose rows differ between two readings of the ledger.
func changed(before, now []store.VCSRef) map[string]bool {
	out := map[string]bool{}
	known := map[string]store.VCSRef{}
	for _, row := range before {
		known[row.Ref], out[row.Ref] = row, true
	}
	for _, row := range now {
		old, ok := known[row.Ref]
		out[row.Ref] = !ok || old.CommitID != row.CommitID || old.Recorded != row.Recorded || !old.SeenAt.Equal(row.SeenAt)
	}
	return out
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

// compareTags stores events for the tags that differ from the ledger. Many new tags are probably an
// import: they are only recorded.
func (s *Service) compareTags(tx *store.Tx, i store.VCSIntegration, r *store.VCSRepo, f found, ledger map[string]store.VCSRef) error {
	first := !r.TagsKnown
	if r.TagsKnown = f.tags; !f.tags {
		return nil
	}
	rows, err := tx.WatchesOfRepo(r.ID)
	if err != nil {
		return err
	}
	var filters []vcs.Filter
	for _, w := range rows {
		if w.DeployTags {
			filters = append(filters, w.TagFilters)
		}
	}
	var differing []string
	for ref, commit := range f.refs {
		if row, known := ledger[ref]; strings.HasPrefix(ref, vcs.TagPrefix) && (!known || row.CommitID != commit) && !f.newer[ref] {
			// An event about the tag that waits says more, and must not become a duplicate.
			if n, err := tx.PendingVCSEvents(r.ID, ref, ""); err != nil {
				return err
			} else if n > 0 {
				continue
			}
			differing = append(differing, ref)
		}
	}
	matching := differing // of the first poll, and if there are too many to compare
	if !first && vcs.CheapTags(filters, differing) {
		matching = slices.DeleteFunc(slices.Clone(differing), func(ref string) bool {
			tag := strings.TrimPrefix(ref, vcs.TagPrefix)
			return !slices.ContainsFunc(filters, func(f vcs.Filter) bool { return f.MatchTag(tag) })
		})
	}
	for ref := range ledger {
		if strings.HasPrefix(ref, vcs.TagPrefix) && f.refs[ref] == "" && !f.newer[ref] {
			if err := tx.DeleteRef(r.ID, ref); err != nil {
				return err
			}
		}
	}
	many := !first && len(matching) > maxNewTags
	for _, ref := range differing {
		if !first && !many && slices.Contains(matching, ref) {
			e := vcs.Event{Kind: vcs.KindTag, Repo: repoID(*r), Ref: ref, Before: ledger[ref].CommitID, After: f.refs[ref]}
			if err := insert(tx, i, *r, identity.NewID(), SourcePoll, e); err != nil {
				return err
			}
			// The worker compares the event with this row.
			if ledger[ref].Ref != "" {
				continue
			}
			if err := tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: ref, SeenAt: tx.Now()}); err != nil {
				return err
			}
			continue
		}
		if err := tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: ref, CommitID: f.refs[ref], Recorded: first, SeenAt: tx.Now()}); err != nil {
			return err
		}
	}
	if !many {
		return nil
	}
	ev := newEvent(tx, i, *r, identity.NewID(), SourcePoll, vcs.Event{Kind: vcs.KindTag, Ref: vcs.TagPrefix})
	ev.Detail = fmt.Sprintf("%d tags", len(matching))
	for _, w := range rows {
		if !w.DeployTags {
			continue
		}
		if ev.Done = true; ev.DoneAt.IsZero() {
			ev.DoneAt, ev.Reason = tx.Now(), string(vcs.ReasonManyTags)
			if err := tx.InsertVCSEvent(ev); err != nil {
				return err
			}
		}
		if err := record(tx, ev, vcs.Decision{Watch: watchOf(w, *r), Reason: vcs.ReasonManyTags, Detail: ev.Detail}, store.Deployment{}); err != nil {
			return err
		}
	}
	return nil
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
