package dispatch_test

import (
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

// TestServerStops stops the worker at each step of an event, on both databases. Whatever step is
// repeated, the event is deployed once.
func TestServerStops(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		st := s.stack("dev", commits)
		s.poll()
		s.forge.refs["refs/heads/main"] = two
		s.deliver("", push(one, two)) // received, but no worker has run
		s.restart()
		s.process()
		s.wantDeployed(st, "update 2")

		// Two workers at once, while the lock on exclusive work changes its holder.
		s.forge.refs["refs/heads/main"] = three
		s.deliver("", push(two, three))
		other := *s
		other.restart()
		done := make(chan struct{})
		go func() { defer close(done); other.process() }()
		s.process()
		<-done
		s.wantDeployed(st, "update 2", "update 3")

		// The database changes between the answer of the forge and the decision.
		s.forge.refs["refs/heads/main"] = four
		s.forge.set(func() {
			s.forge.onHead = func() {
				s.forge.onHead = nil
				s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					r, err := tx.RepoByRemoteID(s.id, "17")
					return errors.Join(err, tx.SaveRef(store.VCSRef{RepoID: r.ID, Ref: "refs/heads/main", CommitID: four}))
				}))
			}
		})
		s.deliver("", push(one, four))
		s.process()
		s.wantDeployed(st, "update 2", "update 3")
		s.wantReason(st, vcs.ReasonDuplicate)
	})
}
