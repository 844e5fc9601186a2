package dispatch_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// TestNamesWithSpaces deploys a repository of Azure DevOps whose project and name have spaces, however
// the settings and the integration write them.
func TestNamesWithSpaces(t *testing.T) {
	guid := "6ce954b1-ce1f-45d1-b94d-e6bf2464ba2c"
	for _, name := range []string{"acme/My Project/My Repo", "acme/My%20Project/My%20Repo", "Acme/my project/_git/my repo.git"} {
		for _, change := range []integrations.Change{
			{},
			{Owner: new("acme"), Project: new("My%20Project")},
			{Owner: new("acme"), Project: &guid},
			{BaseURL: new("https://acme.visualstudio.com/DefaultCollection"), Project: new("My Project")},
			{BaseURL: new("https://dev.azure.com/acme/")},
			{Settings: func(set *integrations.Settings) error {
				set.Repositories = []integrations.Listed{{Name: "acme/My%20Project/My%20Repo"}}
				return nil
			}},
		} {
			s := newSite(t, storetest.SQLite(t), connected())
			change.Name, change.Token = new("azure"), new("token")
			i, secret, err := s.forges.Create(t.Context(), s.user, s.org, vcs.ProviderAzure, change)
			s.must(err)
			if i.BaseURL != "https://dev.azure.com" {
				t.Errorf("the integration has the address %s", i.BaseURL)
			}
			st := s.stack("dev", `"deployCommits":false`)
			s.id, s.forge.repos = i.ID, map[string]string{"acme/My Project/My Repo": "18"}
			document, err := json.Marshal(map[string]any{
				"sourceContext": map[string]any{"git": map[string]any{"branch": "main"}},
				"vcs":           map[string]any{"provider": "azure_devops", "repository": name, "deployCommits": true},
			})
			s.must(err)
			_, err = s.queue.ReplaceSettings(t.Context(), s.user, st, document, "test")
			s.must(err)
			s.poll()
			s.forge.refs["refs/heads/main"] = two
			e := push(one, two)
			e.Repo = vcs.RepoID{ID: "18", Name: "acme/My Project/My Repo"}
			body, err := json.Marshal(vcs.Parsed{ID: "d", Events: []vcs.Event{e}})
			s.must(err)
			_, err = s.dispatch.Receive(t.Context(), vcs.ProviderAzure, i.ID, vcs.Delivery{Header: map[string]string{"secret": secret}, Body: body})
			s.must(err)
			s.process()
			if got := fmt.Sprint(s.deployed(st)); got != "[update 2]" {
				t.Errorf("%q with the integration %s/%s: deployments %s, reason %s", name, i.Owner, i.Project, got, s.reason(st))
			}
		}
	}
}

// TestAddressesOfDeliveries sends deliveries about a repository of a plain git server with the address of
// another protocol, and of another repository.
func TestAddressesOfDeliveries(t *testing.T) {
	for address, accepted := range map[string]bool{
		"https://git.example/app": true, "ssh://git@git.example:2222/app": true, "git@git.example:app": true,
		"https://git.example:8443/app": false, "https://evil.example/app": false, "git@git.example:app2": false,
	} {
		s := newSite(t, storetest.SQLite(t), connected())
		st, send := s.plain(commits, integrations.Change{})
		e := push("", two)
		e.Repo = vcs.RepoID{ID: address, Name: "app"}
		send(e)
		if got := s.deployed(st); (len(got) == 1) != accepted {
			t.Errorf("%s: deployments %q, reason %s", address, got, s.reason(st))
		}
	}
}

// TestSuffixThatAServerNeeds polls a plain git server that has the repository with the suffix .git only,
// which the settings leave out.
func TestSuffixThatAServerNeeds(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), connected())
	s.forge.only = "app.git"
	st, _ := s.plain(commits, connected())
	failing := func() int64 {
		t.Helper()
		all, err := s.forges.Failing(t.Context(), s.org)
		s.must(err)
		return all[s.id]
	}
	s.poll()
	if n := failing(); n != 1 {
		t.Errorf("%d stacks have a problem with a repository that does not exist, want 1", n)
	}
	s.forge.set(func() {
		s.forge.repos["app.git"], s.forge.redirect = "https://git.example/app", map[string]string{"app": "app.git"}
	})
	s.poll()
	s.forge.set(func() { s.forge.refs["refs/heads/main"] = two })
	s.poll()
	if got := s.deployed(st); len(got) != 1 || failing() != 0 {
		t.Errorf("deployments %q, %d failing, reason %s", got, failing(), s.reason(st))
	}
}
