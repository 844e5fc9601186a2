package dispatch_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// TestRow58Drafts opens a draft at a forge whose drafts run nothing, and publishes it.
func TestRow58Drafts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		st, send := s.azure(previews)
		s.poll()
		put := func(id string, p vcs.Pull) {
			s.forge.set(func() { s.forge.pulls[p.Number] = p })
			send(id, pullEvent(p.Number))
		}
		p := open(7, two)
		p.Draft = true
		put("opened", p)
		s.wantDeployed(st)
		s.wantReason(st, vcs.ReasonDraft)
		p.Head = three
		put("changed", p)
		s.wantDeployed(st)
		p.Draft = false
		put("published", p)
		s.wantDeployed(st, "preview 3")
		s.wantReason(st, vcs.ReasonPublished)
		put("changed again", p)
		s.wantDeployed(st, "preview 3")
		p.Head = four
		put("new commit", p)
		s.wantReason(st, vcs.ReasonPull)
	})
}

// TestRow59Drafts opens a draft at a forge whose drafts run previews, and publishes it. The event
// makes the comment due again, which the reports hold back until then.
func TestRow59Drafts(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st := s.stack("dev", previews)
	wanted := func() (n int64) {
		s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
			r, err := tx.RepoByRemoteID(s.id, "17")
			comment, err2 := tx.VCSReportOf(store.VCSReport{RepoID: r.ID, Pull: 7})
			pull, err3 := tx.PullByNumber(r.ID, 7)
			if n = comment.Wanted; pull.Draft {
				n = -n
			}
			return errors.Join(err, err2, err3)
		}))
		return n
	}
	p := open(7, two)
	p.Draft = true
	s.put(p)
	s.wantDeployed(st, "preview 2")
	held := wanted()
	if held >= 0 {
		t.Fatalf("the comment is wanted %d times, and the pull request must be a draft", held)
	}
	p.Draft = false
	s.put(p)
	s.wantDeployed(st, "preview 2")
	if got := wanted(); got <= -held {
		t.Errorf("the comment of the published pull request is wanted %d times, before %d", got, -held)
	}
}
