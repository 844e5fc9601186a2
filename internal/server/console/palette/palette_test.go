package palette_test

import (
	"encoding/json"
	"net/http"
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
