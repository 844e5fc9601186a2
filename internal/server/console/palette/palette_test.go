package palette_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	if p := admin.Get(found[0]); p.Status != http.StatusOK || !p.Contains(">build-1</span>", "</h1>") {
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
		"prod network eu":    "network/prod-eu",
		"EU website":         "website/prod-eu",
		"deploy eu network":  "Deploy network/prod-eu",
		"netw prod-us pause": "Pause network/prod-us",
		"drift website":      "Drift of website/prod-eu",
		"schedules website":  "Schedules of website/prod-eu",
		"tokens access":      "Access tokens",
	} {
		var items []struct{ Text, Kind string }
		p := admin.Get("/-/palette?" + url.Values{"org": {"acme"}, "q": {words}}.Encode())
		if err := json.Unmarshal([]byte(p.Body), &items); err != nil || len(items) == 0 || items[0].Text != want {
			t.Errorf("%q finds %+v, %v; want %q first", words, items, err, want)
		}
		for _, i := range items {
			if i.Kind == "stack" && !strings.HasSuffix(want, i.Text) {
				t.Errorf("%q finds the stack %s", words, i.Text)
			}
		}
	}
}

type found struct{ Group, Text, Kind, Note, Key, Href, Way string }

func search(t *testing.T, b *consoletest.Browser, words string) (items []found) {
	t.Helper()
	p := b.Get("/-/palette?" + url.Values{"org": {"acme"}, "q": {words}}.Encode())
	if err := json.Unmarshal([]byte(p.Body), &items); err != nil {
		t.Fatalf("%q: the palette answers %s", words, p.Body)
	}
	return items
}

// texts returns the texts of a group.
func texts(items []found, group string) (out []string) {
	for _, i := range items {
		if i.Group == group {
			out = append(out, i.Text)
		}
	}
	return out
}

// hostile is a message that must stay text.
const hostile = "<img src=x onerror=alert(1)> \u202egnp"

// TestFind finds deployments, resources, users, teams and actions, each only for users who may see them.
func TestFind(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("payments", "prod")
	s.Stack("web", "dev")
	s.API(http.MethodPost, "/api/stacks/acme/payments/prod/deployments/settings", map[string]any{}, nil)
	job := s.StartJob(s.Pool(), "payments", "prod")
	s.RunUpdate(consoletest.Update{Access: job.Token, Stack: "payments/prod", Kind: "update", Message: "Add charge-queue " + hostile, Result: "succeeded", State: map[string]any{
		"manifest": map[string]any{"time": "2026-01-02T03:04:05Z", "magic": "x", "version": "v3.0.0"},
		"resources": []any{
			map[string]any{"urn": "urn:pulumi:prod::payments::pulumi:pulumi:Stack::payments-prod", "type": "pulumi:pulumi:Stack"},
			map[string]any{"urn": "urn:pulumi:prod::payments::aws:sqs/queue:Queue::prod-payment-queue", "type": "aws:sqs/queue:Queue", "custom": true, "id": "x"},
		},
	}})
	ann := s.AddUser("ann", identity.RoleMember)
	s.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]string{"name": "core", "displayName": "Core payments"}, nil)
	admin := s.SignIn()
	admin.Get("/acme/payments/prod") // reads the state, as the server does in the background
	for _, tt := range []struct{ words, group, want string }{
		{"", "Recent", "payments/prod"},
		{"#1", "Deployments", "payments/prod #1: "},
		{"prod 1 paym", "Deployments", "payments/prod #1: "},
		{"queue charge-", "Deployments", "payments/prod #1: Add charge-queue"},
		{"onerror", "Deployments", "alert(1)"},
		{"queue payments/", "Resources", "prod-payment-queue in payments/prod"},
		{"sqs PAYMENT", "Resources", "prod-payment-queue in payments/prod"},
		{"pay", "Actions", "Preview payments/prod"},
		{"pay", "Actions", "Deploy payments/prod"},
		{"pay", "Actions", "Pause payments/prod"},
		{"destroy dev", "Actions", "Destroy web/dev…"},
		{"ann", "People", "ann"},
		{"payments core", "Teams", "Core payments"},
		{"issuers", "Pages", "Settings: issuers"},
	} {
		if got := texts(search(t, admin, tt.words), tt.group); !strings.Contains(strings.Join(got, "\n"), tt.want) {
			t.Errorf("%q finds in %s %q, want %q", tt.words, tt.group, got, tt.want)
		}
	}
	if got := search(t, admin, "#2"); len(got) > 0 {
		t.Errorf("a number that no deployment has finds %+v", got)
	}
	if got := texts(search(t, admin, "prod"), "Deployments"); len(got) > 0 {
		t.Errorf("the name of a stack finds its deployments %q", got)
	}
	for _, strange := range []string{"%", "_", "\\", "'; DROP TABLE estate --", "\x00a", strings.Repeat("a ", 300), "\xff\xfe"} {
		search(t, admin, strange)
	}

	// Another one does the same after a pause, at once; users who may only read see neither.
	for _, i := range search(t, admin, "pause payments") {
		if i.Text == "Pause payments/prod" {
			if p := admin.Post(i.Href, nil); i.Way != "post" || p.Status != http.StatusSeeOther {
				t.Errorf("pausing: %+v, status %d: %s", i, p.Status, p.Body)
			}
		}
	}
	if got := texts(search(t, admin, "pay"), "Actions"); !slices.Contains(got, "Resume payments/prod") || slices.Contains(got, "Pause payments/prod") {
		t.Errorf("of a paused stack: %q", got)
	}
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}, nil)
	reader := s.SignInWith(ann)
	if got := search(t, reader, "deploy pay"); len(texts(got, "Actions")) > 0 {
		t.Errorf("a reader may %q", texts(got, "Actions"))
	}
	if got := texts(search(t, reader, "issuers"), "Pages"); len(got) > 0 {
		t.Errorf("a member finds the pages %q", got)
	}
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	for _, words := range []string{"", "pay", "#1", "charge", "queue", "deploy", "pause prod"} {
		for _, i := range search(t, reader, words) {
			if strings.Contains(i.Text, "prod") || strings.Contains(i.Text, "web/dev") {
				t.Errorf("%q finds %+v for a member without permission", words, i)
			}
		}
	}
	guest := s.SignInWith(s.AddUser("guest", identity.RoleCollaborator))
	for _, words := range []string{"ann", "core", "build", "pay", "1"} {
		if got := search(t, guest, words); len(got) > 0 {
			t.Errorf("a collaborator finds %+v by %q", got, words)
		}
	}
}
