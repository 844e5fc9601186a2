package dispatch_test

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

func TestReceiveFailsClosed(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	s.stack("dev", commits)
	s.poll()
	before, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
	s.must(err)
	other, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderAzure, connected())
	s.must(err)
	for name, d := range map[string]struct{ provider, id, secret string }{
		"row 92: wrong secret":                {vcs.ProviderGitHub, s.id, "wrong"},
		"row 92: no secret":                   {vcs.ProviderGitHub, s.id, ""},
		"row 92: another integration's":       {vcs.ProviderAzure, other.ID, s.secret},
		"the path of another kind of forge":   {vcs.FlavorGit, s.id, s.secret},
		"an integration that does not exist":  {vcs.ProviderGitHub, "none", s.secret},
		"the address without an integration":  {vcs.ProviderGitHub, "", s.secret},
		"an integration of another provider ": {vcs.ProviderGitHub, other.ID, s.secret},
	} {
		_, err := s.dispatch.Receive(t.Context(), d.provider, d.id, vcs.Delivery{Header: map[string]string{"secret": d.secret}, Body: []byte(`{"ID":"x"}`)})
		if err == nil || err.Error() != "the integration does not exist, or the delivery is not signed with its secret" {
			t.Errorf("%s: %v", name, err)
		}
	}
	after, err := s.dispatch.OfIntegration(t.Context(), s.org, s.id)
	s.must(err)
	if len(after) != len(before) {
		t.Errorf("stored %d events", len(after)-len(before))
	}
}

// TestInstallationOfSeveralOrganizations checks that a delivery of a GitHub App reaches all
// integrations of its installation, and no others.
func TestInstallationOfSeveralOrganizations(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	secret := strings.Repeat("s", 32)
	app := func(name, installation, secret string) string {
		c := integrations.Change{Name: &name, AppID: new("42"), Installation: &installation, AppKey: new("key"), Secret: &secret}
		i, _, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderGitHub, c)
		s.must(err)
		return i.ID
	}
	want := map[string]int{app("first", "1", secret): 1, app("second", "1", secret): 1, app("other", "2", secret): 0, app("thief", "1", strings.Repeat("x", 32)): 0}
	body, err := json.Marshal(vcs.Parsed{ID: "d", Installation: "1", Events: []vcs.Event{{Kind: vcs.KindAccess}}})
	s.must(err)
	out, err := s.dispatch.ReceiveApp(t.Context(), "42", vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
	if err != nil || out.Accepted != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	for id, n := range want {
		events, err := s.dispatch.OfIntegration(t.Context(), s.org, id)
		if err != nil || len(events) != n {
			t.Errorf("the integration %s has %d events, want %d: %v", id, len(events), n, err)
		}
	}
}

// TestForgedPush sends a push with the secret of an integration whose forge sends the secret itself. It
// deploys nothing that the forge does not confirm.
func TestForgedPush(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	st, send := s.azure(commits)
	s.poll()
	send("forged", push(one, three))
	s.wantDeployed(st)
	s.forge.refs["refs/heads/main"] = two
	send("genuine", push(one, two))
	gone := push(two, "")
	gone.Deleted = true
	send("forged deletion", gone)
	send("genuine again", push("", two))
	s.wantDeployed(st, "update 2")
}
