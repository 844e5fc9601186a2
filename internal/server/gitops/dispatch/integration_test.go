package dispatch_test

import (
	"context"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// TestConnectOutsideTransaction checks that other writers do not wait for the connection of an
// integration, which can take long, and that changes at the same time do not undo each other.
func TestConnectOutsideTransaction(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db, connected())
		s.forge.onConnect = func() {
			s.forge.onConnect = nil
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := db.Write(ctx, scope.Server(), func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("writing while an integration connects: %v", err)
			}
			_, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Owner: new("o")})
			s.must(err)
		}
		i, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Name: new("renamed")})
		s.must(err)
		if i.Name != "renamed" || i.Owner != "o" {
			t.Errorf("the integration has the name %q and the owner %q", i.Name, i.Owner)
		}
		s.forge.onConnect = func() {
			again := s.forge.onConnect
			s.forge.onConnect = nil
			_, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Owner: new("o")})
			s.must(err)
			s.forge.onConnect = again
		}
		if _, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Name: new("other")}); fault.KindOf(err) != fault.KindConflict {
			t.Errorf("changing an integration that others change all the time: %v", err)
		}
	})
}

// TestCredentialAfterListChanged checks that a job gets no credential for a repository that the list of
// the integration lost after the deployment was queued. A renamed repository stays in the list.
func TestCredentialAfterListChanged(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	s.stack("dev", commits)
	s.poll()
	list := func(names ...string) {
		_, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{Settings: func(set *integrations.Settings) error {
			set.Repositories = nil
			for _, n := range names {
				set.Repositories = append(set.Repositories, integrations.Listed{Name: n})
			}
			return nil
		}})
		s.must(err)
	}
	r, err := store.Read(t.Context(), s.db, func(tx *store.Tx) (store.VCSRepo, error) { return tx.RepoByRemoteID(s.id, "17") })
	s.must(err)
	want := func(when string, allowed bool) {
		t.Helper()
		for _, id := range []string{r.ID, ""} {
			if id == "" && r.Name != "o/r" {
				continue // requested by the name in the settings
			}
			_, err := s.forges.CloneAuth(t.Context(), s.id, id, "o/r")
			if got := fault.KindOf(err); allowed && err != nil || !allowed && got != fault.KindForbidden {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	want("without a list", true)
	list("o/other", "O/R")
	want("in the list", true)
	s.forge.repos = map[string]string{"o/r": "99", "o/new": "17"}
	if _, err := s.forges.CloneAuth(t.Context(), s.id, r.ID, "o/r"); fault.KindOf(err) != fault.KindForbidden {
		t.Errorf("another repository has the name: %v", err)
	}
	s.must(s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		r, err = integrations.Repo(tx, store.VCSIntegration{ID: s.id}, vcs.Repo{RepoID: vcs.RepoID{ID: "17", Name: "o/new"}, CloneURL: "https://git.example/o/new.git"})
		return err
	}))
	want("renamed", true)
	list("o/other")
	want("removed from the list", false)
}
