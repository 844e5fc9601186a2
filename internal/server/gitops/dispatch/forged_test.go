package dispatch_test

import (
	"encoding/json"
	"errors"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// TestForgedNames sends deliveries with the secret of an integration whose forge sends the secret
// itself. They must not bind a stack to a repository of the sender, whatever names they contain.
func TestForgedNames(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	i, secret, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderAzure, connected())
	s.must(err)
	s.id, s.forge.repos = i.ID, map[string]string{"o/p/r": "18", "o/p/evil": "99"}
	s.forge.err = errors.New("no route to host")
	st, err := s.stacks.Create(t.Context(), s.user, stacks.NewStack{Org: s.org, Project: "proj", Name: "dev"})
	s.must(err)
	settings := `{"sourceContext":{"git":{"branch":"main"}},"vcs":{"provider":"azure_devops","repository":"o/p/r","deployCommits":true}}`
	_, err = s.queue.ReplaceSettings(t.Context(), s.user, st, []byte(settings), "test")
	s.must(err)
	send := func(id, repoID, name string) {
		e := push(one, two)
		e.Repo = vcs.RepoID{ID: repoID, Name: name}
		body, err := json.Marshal(vcs.Parsed{ID: id, Events: []vcs.Event{e}})
		s.must(err)
		_, err = s.dispatch.Receive(t.Context(), vcs.ProviderAzure, i.ID, vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
		s.must(err)
		s.process()
	}
	want := func(when, remoteID, name string) {
		t.Helper()
		s.must(s.db.Read(t.Context(), func(tx *store.Tx) error {
			w, err := tx.Watch(st.ID)
			if err != nil || w.RepoID == "" {
				if remoteID != "" {
					t.Errorf("%s: the stack has no repository", when)
				}
				return err
			}
			r, err := tx.Repo(w.RepoID)
			if r.RemoteID != remoteID || r.Name != name {
				t.Errorf("%s: the stack has the repository %s, %s at %s", when, r.RemoteID, r.Name, r.CloneURL)
			}
			return err
		}))
	}
	send("before the forge was asked", "99", "o/p/r")
	want("before the forge was asked", "", "")
	s.forge.set(func() { s.forge.err = nil })
	s.poll()
	want("after a poll", "18", "o/p/r")
	send("a forged name", "18", "o/p/evil")
	want("with a forged name", "18", "o/p/r")
	s.wantDeployed(st)
	s.forge.set(func() {
		s.forge.repos = map[string]string{"o/p/new": "18", "o/p/evil": "99"}
		s.forge.refs["refs/heads/main"] = two
	})
	send("renamed", "18", "o/p/new")
	want("renamed", "18", "o/p/new")
	s.wantDeployed(st, "update 2")
}
