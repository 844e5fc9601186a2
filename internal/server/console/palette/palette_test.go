package palette_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/identity"
)

// TestAgents finds an agent by its host for visitors who may see pools, and only by words that match.
func TestAgents(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.StartJob(s.Pool(), "box", "dev") // by an agent on the host build-1
	find := func(b *consoletest.Browser, words string) (agents []string) {
		t.Helper()
		var items []struct{ Text, Kind, Href string }
		p := b.Get("/-/palette?org=acme&q=" + words)
		if err := json.Unmarshal([]byte(p.Body), &items); err != nil {
			t.Fatalf("the palette answers %s", p.Body)
		}
		for _, i := range items {
			if i.Kind != "agent" {
				continue
			}
			if i.Text != "build-1 in pool" {
				t.Errorf("the palette names an agent %q", i.Text)
			}
			agents = append(agents, i.Href)
		}
		return agents
	}
	admin := s.SignIn()
	found := find(admin, "BUILD")
	if len(found) != 1 {
		t.Fatalf("the palette finds the agents %q, want one", found)
	}
	if p := admin.Get(found[0]); p.Status != http.StatusOK || !p.Contains("<h1>build-1</h1>") {
		t.Errorf("%s: status %d", found[0], p.Status)
	}
	for _, words := range []string{"", "build-2"} {
		if found := find(admin, words); len(found) > 0 {
			t.Errorf("the words %q find the agents %q", words, found)
		}
	}
	if found := find(s.SignInWith(s.AddUser("guest", identity.RoleCollaborator)), "build"); len(found) > 0 {
		t.Errorf("a collaborator finds the agents %q", found)
	}
}

// TestWords finds pages and stacks by words in any order.
func TestWords(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("network", "prod-eu")
	s.Stack("network", "prod-us")
	s.Stack("website", "prod-eu")
	admin := s.SignIn()
	for words, want := range map[string]string{
		"prod network eu":   "network/prod-eu",
		"EU website":        "website/prod-eu",
		"deploy eu network": "network/prod-eu",
		"tokens access":     "Access tokens",
	} {
		var items []struct{ Text, Kind string }
		p := admin.Get("/-/palette?" + url.Values{"org": {"acme"}, "q": {words}}.Encode())
		if err := json.Unmarshal([]byte(p.Body), &items); err != nil || len(items) == 0 || items[0].Text != want {
			t.Errorf("%q finds %+v, %v; want %q first", words, items, err, want)
		}
		for _, i := range items {
			if i.Kind == "stack" && i.Text != want {
				t.Errorf("%q finds the stack %s", words, i.Text)
			}
		}
	}
}
