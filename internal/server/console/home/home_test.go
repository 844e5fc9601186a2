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
	const steps, hidden = "Three steps to the first deployment", "You can see no stack of acme"
	shared := s.AddUser("shared", identity.RoleCollaborator)
	s.API(http.MethodPut, "/api/stacks/acme/web/prod/collaborators/shared", map[string]any{"permission": 101}, nil)
	for who, test := range map[string]struct {
		token         string
		steps, hidden bool
	}{
		"the administrator, who has created a stack": {s.Token, false, false},
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
