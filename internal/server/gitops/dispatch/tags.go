package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

const (
	// maxNewTags is the number of new tags that are deployed at once.
	maxNewTags = 3
	// recordAtOnce is the number of refs that one transaction records or forgets. A repository can have
	// very many tags, and other writers wait for the end of a transaction.
	recordAtOnce = 1000
)

// plan is what a poll does about tags, and about branches that no stack watches any longer. It is made
// once, over all of them.
type plan struct {
	ledger map[string]store.VCSRef // before the forge was asked
	first  bool                    // no earlier poll has recorded all tags
	many   int                     // the number of new tags that stacks would deploy, if there are too many
	deploy []string                // tags that get events
	record []vcs.Ref               // refs to record without an event; those without a commit are forgotten
}

// record records the tags that lead to no events, and forgets the refs that no longer matter, in several
// transactions. Another poll repeats what is left after a crash. before is the ledger before the forge
// was asked.
func (s *Service) record(ctx context.Context, i store.VCSIntegration, r store.VCSRepo, f found, before []store.VCSRef) (plan, error) {
	p, err := store.Read(ctx, s.db, func(tx *store.Tx) (plan, error) { return planOf(tx, r.ID, f, before) })
	if err != nil {
		return p, err
	}
	for piece := range slices.Chunk(p.record, recordAtOnce) {
		if err := s.db.Write(ctx, scope.Repository(r.OrgID, r.ID), func(tx *store.Tx) error { return recordPiece(tx, i, r.ID, f, p, piece) }); err != nil {
			return p, err
		}
	}
	return p, nil
}

// planOf decides about the refs that differ from the ledger. Many new tags are probably an import: they
// are only recorded.
func planOf(tx *store.Tx, id string, f found, before []store.VCSRef) (p plan, err error) {
	r, err := tx.Repo(id)
	if err != nil {
		return p, err
	}
	rows, err := tx.Refs(id)
	if err != nil {
		return p, err
	}
	all, err := tx.WatchesOfRepo(id)
	if err != nil {
		return p, err
	}
	waiting, err := pendingRefs(tx, id)
	if err != nil {
		return p, err
	}
	p = plan{ledger: map[string]store.VCSRef{}, first: !r.TagsKnown}
	for _, row := range before {
		p.ledger[row.Ref] = row
		isTag := strings.HasPrefix(row.Ref, vcs.TagPrefix)
		// If a stack watches the ref again, its commit must be recorded again.
		if !isTag && !slices.Contains(f.branches, row.Ref) || isTag && (!f.tags || f.refs[row.Ref] == "") {
			p.record = append(p.record, vcs.Ref{Name: row.Ref})
		}
	}
	if !f.tags {
		return p, nil
	}
	newer := map[string]bool{} // than the answer
	for _, row := range rows {
		old, known := p.ledger[row.Ref]
		newer[row.Ref] = !known || !sameRow(old, row)
	}
	var differing []string
	for ref, commit := range f.refs {
		// An event about the tag that waits says more, and must not become a duplicate.
		if strings.HasPrefix(ref, vcs.TagPrefix) && commit != "" && p.ledger[ref].CommitID != commit && !newer[ref] && !waiting[ref] {
			differing = append(differing, ref)
		}
	}
	slices.Sort(differing)
	recorded := differing
	if !p.first {
		matching, others := matchingTags(all, differing)
		if len(matching) > maxNewTags {
			p.many = len(matching)
		} else {
			p.deploy, recorded = matching, others
		}
	}
	for _, ref := range recorded {
		p.record = append(p.record, vcs.Ref{Name: ref, Commit: f.refs[ref]})
	}
	return p, nil
}

// matchingTags returns the tags that a stack deploys, and the others. If there are too many to compare,
// all match.
func matchingTags(all []store.VCSWatch, tags []string) (matching, others []string) {
	var filters []vcs.Filter
	for _, w := range all {
		if w.DeployTags {
			filters = append(filters, w.TagFilters)
		}
	}
	if !vcs.CheapTags(filters, tags) {
		return tags, nil
	}
	for _, ref := range tags {
		tag := strings.TrimPrefix(ref, vcs.TagPrefix)
		if slices.ContainsFunc(filters, func(f vcs.Filter) bool { return f.MatchTag(tag) }) {
			matching = append(matching, ref)
		} else {
			others = append(others, ref)
		}
	}
	return matching, others
}

// recordPiece records or forgets some of the refs of a plan.
func recordPiece(tx *store.Tx, i store.VCSIntegration, id string, f found, p plan, piece []vcs.Ref) error {
	r, err := tx.Repo(id)
	if err != nil {
		return err
	}
	if r.TagsKnown && (p.many > 0 || !f.tags) {
		// If the server stops before the last piece, the next poll finds fewer tags, and must not deploy
		// them either.
		if r.TagsKnown = false; p.many > 0 {
			err = reportMany(tx, i, r, p.many)
		}
		if err = errors.Join(err, tx.SaveRepo(r)); err != nil {
			return err
		}
	}
	waiting, err := pendingRefs(tx, id)
	if err != nil {
		return err
	}
	for _, ref := range piece {
		same, err := p.unchanged(tx, id, ref.Name)
		if err != nil {
			return err
		}
		switch {
		case !same:
		case ref.Commit == "":
			err = tx.DeleteRef(id, ref.Name)
		case !waiting[ref.Name]:
			err = tx.SaveRef(store.VCSRef{RepoID: id, Ref: ref.Name, CommitID: ref.Commit, Recorded: p.first, SeenAt: tx.Now()})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reportMany stores that many new tags are not deployed, for each stack that deploys tags.
func reportMany(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, many int) error {
	all, err := tx.WatchesOfRepo(r.ID)
	if err != nil {
		return err
	}
	ev := newEvent(tx, i, r, identity.NewID(), SourcePoll, vcs.Event{Kind: vcs.KindTag, Ref: vcs.TagPrefix})
	ev.Done, ev.DoneAt, ev.Reason, ev.Detail = true, tx.Now(), string(vcs.ReasonManyTags), fmt.Sprintf("%d tags", many)
	all = slices.DeleteFunc(all, func(w store.VCSWatch) bool { return !w.DeployTags })
	if len(all) == 0 {
		return nil
	}
	if err := tx.InsertVCSEvent(ev); err != nil {
		return err
	}
	for _, w := range all {
		if err := record(tx, ev, vcs.Decision{Watch: watchOf(w, r), Reason: vcs.ReasonManyTags, Detail: ev.Detail}, store.Deployment{}); err != nil {
			return err
		}
	}
	return nil
}

// deployTags stores events for the few new tags of a plan.
func (s *Service) deployTags(tx *store.Tx, i store.VCSIntegration, r *store.VCSRepo, f found, p plan) error {
	first := !r.TagsKnown
	r.TagsKnown = f.tags
	for _, ref := range p.deploy {
		same, err := p.unchanged(tx, r.ID, ref)
		if err != nil {
			return err
		}
		n, err := tx.PendingVCSEvents(r.ID, ref, "")
		if err != nil {
			return err
		}
		if !same || n > 0 {
			continue
		}
		row, known := p.ledger[ref]
		if first { // the settings have changed since
			if err := tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: ref, CommitID: f.refs[ref], Recorded: true, SeenAt: tx.Now()}); err != nil {
				return err
			}
			continue
		}
		e := vcs.Event{Kind: vcs.KindTag, Repo: repoID(*r), Ref: ref, Before: row.CommitID, After: f.refs[ref]}
		if err := insert(tx, i, *r, identity.NewID(), SourcePoll, e); err != nil {
			return err
		}
		if known {
			continue
		}
		// The worker compares the event with this row.
		if err := tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: ref, SeenAt: tx.Now()}); err != nil {
			return err
		}
	}
	return nil
}

// pendingRefs returns the refs about which events wait.
func pendingRefs(tx *store.Tx, id string) (map[string]bool, error) {
	all, err := tx.PendingVCSSubjects(id)
	out := map[string]bool{}
	for _, ref := range all {
		out[ref] = true
	}
	return out, err
}

// unchanged reports whether the ledger says the same about a ref as before the forge was asked.
func (p plan) unchanged(tx *store.Tx, id, ref string) (bool, error) {
	old, known := p.ledger[ref]
	row, err := tx.Ref(id, ref)
	if errors.Is(err, store.ErrNotFound) {
		return !known, nil
	}
	return known && sameRow(old, row), err
}

func sameRow(a, b store.VCSRef) bool {
	return a.CommitID == b.CommitID && a.Recorded == b.Recorded && a.SeenAt.Equal(b.SeenAt)
}
