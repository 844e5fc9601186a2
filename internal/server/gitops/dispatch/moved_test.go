package dispatch_test

import (
	"encoding/json"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// TestGitServerMoves changes the address of a plain git server. Its repositories have no other id, so
// stacks then watch the repositories at the new address.
func TestGitServerMoves(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	address := "https://old.example"
	i, secret, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderCustom, integrations.Change{
		BaseURL: &address,
		Settings: func(set *integrations.Settings) error {
			set.Repositories = []integrations.Listed{{Name: "app"}}
			return nil
		},
	})
	s.must(err)
	st := s.stack("dev", commits)
	_, err = s.queue.ReplaceSettings(t.Context(), s.user, st,
		[]byte(`{"sourceContext":{"git":{"branch":"refs/heads/main"}},"vcs":{"provider":"custom","repository":"app","deployCommits":true}}`), "test")
	s.must(err)
	send := func(id, from string) dispatch.Outcome {
		event := push(one, two)
		event.Repo = vcs.RepoID{ID: from + "/app", Name: "app"}
		body, err := json.Marshal(vcs.Parsed{ID: id, Events: []vcs.Event{event}})
		s.must(err)
		out, err := s.dispatch.Receive(t.Context(), vcs.FlavorGit, i.ID, vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
		s.must(err)
		return out
	}
	if out := send("before", "https://old.example"); out.Accepted != 1 {
		t.Errorf("before the move, the delivery has the outcome %+v", out)
	}
	address = "https://new.example"
	_, _, err = s.forges.Update(t.Context(), s.org, i.ID, integrations.Change{BaseURL: &address})
	s.must(err)
	if out := send("old", "https://old.example"); out.Accepted != 0 {
		t.Errorf("after the move, a delivery for the old address has the outcome %+v", out)
	}
	if out := send("new", "https://new.example"); out.Accepted != 1 {
		t.Errorf("after the move, the delivery has the outcome %+v", out)
	}
}

// TestIntegrationMoves checks that repositories of one server are not used with the credential of
// another one.
func TestIntegrationMoves(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	move := func(to string) error {
		_, _, err := s.forges.Update(t.Context(), s.org, s.id, integrations.Change{BaseURL: &to, Token: new("other")})
		return err
	}
	for _, c := range []integrations.Change{{BaseURL: new("https://evil.example")}, {APIURL: new("https://evil.example")}, {BaseURL: new("https://evil.example"), UserName: new("x")}, {BaseURL: new("https://evil.example"), SSHKey: new("")}} {
		if _, _, err := s.forges.Update(t.Context(), s.org, s.id, c); fault.KindOf(err) != fault.KindInvalid {
			t.Errorf("the stored credential is sent to another address: %v", err)
		}
	}
	s.must(move("https://one.example"))
	s.stack("dev", commits)
	s.poll()
	s.must(move("https://one.example/"))
	if err := move("https://two.example"); fault.KindOf(err) != fault.KindConflict {
		t.Errorf("got %v", err)
	}
}
