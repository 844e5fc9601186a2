package home_test

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/server/identity"
)

// TestFirstVisit shows users without deployments the first steps that they can take, and says why the
// page is empty if they may see no stack.
func TestFirstVisit(t *testing.T) {
	s := consoletest.New(t)
	s.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": "prod"}, nil)
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	const steps, hidden = "From an empty server to a deployment in three steps", "You can see no stack of acme"
	shared := s.AddUser("shared", identity.RoleCollaborator)
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/shared", map[string]any{"permission": 101}, nil)
	for who, test := range map[string]struct {
		token         string
		steps, hidden bool
	}{
		"the administrator, who has created a stack": {s.Token, true, false},
		"another administrator":                      {s.AddUser("boss", identity.RoleAdmin), true, false},
		"a member":                                   {s.AddUser("ann", identity.RoleMember), true, true},
		"a collaborator":                             {s.AddUser("guest", identity.RoleCollaborator), false, true},
		"a collaborator of a stack":                  {shared, false, false},
	} {
		p := s.SignInWith(test.token).Get("/acme")
		if p.Status != http.StatusOK {
			t.Errorf("%s: status %d", who, p.Status)
		}
		if got := strings.Contains(p.Body, steps); got != test.steps {
			t.Errorf("%s: the first steps are shown: %t", who, got)
		}
		if got := strings.Contains(p.Body, hidden); got != test.hidden {
			t.Errorf("%s: the page says that no stack is visible: %t", who, got)
		}
	}
}

// TestFirstSteps follows the steps from an empty server to a deployment.
func TestFirstSteps(t *testing.T) {
	s := consoletest.With(t, map[string]string{"external_url": ""})
	b := s.SignIn()
	contains := func(when string, want ...string) consoletest.Page {
		t.Helper()
		p := b.Get("/acme")
		for _, text := range want {
			if !p.Contains(text) {
				t.Errorf("%s, the page lacks %q:\n%s", when, text, p.Body)
			}
		}
		return p
	}
	domain := strings.TrimPrefix(s.URL, "http://")
	p := contains("on an empty server", "Stacks store the URL of the server, "+s.URL, "export PULUMI_CONSOLE_DOMAIN="+domain, "pulumi login "+s.URL,
		`href="/user/settings/tokens"`, "pulumi stack init acme/dev", "Create a pool", "pulumi deployment run update")
	if p.Contains("#s-ok") {
		t.Error("a step is done on an empty server")
	}
	s.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": "dev"}, nil)
	var pool struct{ ID, TokenValue string }
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]string{"name": "eu"}, &pool)
	p = contains("with a stack and a pool", "sudo customer-managed-workflow-agent configure --service-url "+s.URL, "/acme/-/pools/"+pool.ID+"#install", "web/dev")
	if n := strings.Count(p.Body, "#s-ok"); n != 1 {
		t.Errorf("with a stack and a pool, %d steps are done", n)
	}
}
