package deployment_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
)

// TestDeployForm starts each operation by the form, which says first what the deployment waits for.
func TestDeployForm(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("box", "dev")
	s.Stack("box", "other")
	b := s.SignIn()
	sees := func(when string, wants ...string) {
		t.Helper()
		p := b.Get("/acme/box/dev/deploy")
		for _, want := range wants {
			if text := html.UnescapeString(p.Body); !strings.Contains(text, want) {
				t.Errorf("%s, the form does not say %q", when, want)
			}
		}
	}
	sees("without a pool", "It will wait until a pool is chosen.", "No default pool: choose one")
	token := s.Pool()
	sees("without an agent", "It will wait: no agent of pool pool is online.", "pool (no agent online)")
	s.StartJob(token, "box", "other")
	sees("with a busy agent", "It will wait: all agents of pool pool are busy.", "The default pool: pool (0 of 1 agent free)")

	for i, operation := range []string{"update", "preview", "refresh", "detect-drift", "destroy", "remediate-drift"} {
		form := url.Values{"operation": {operation}}
		if operation == "destroy" || operation == "remediate-drift" {
			if p := b.Post("/acme/box/dev/deploy", form); p.Status != http.StatusUnprocessableEntity || !p.Contains("Type box/dev to confirm") {
				t.Errorf("%s without the stack's name: status %d", operation, p.Status)
			}
			form.Set("confirm", "box/dev")
		}
		p := b.Post("/acme/box/dev/deploy", form)
		if want := fmt.Sprintf("/acme/box/dev/deployments/%d", i+1); p.Status != http.StatusSeeOther || p.Location() != want {
			t.Errorf("%s: status %d to %q, want %s", operation, p.Status, p.Location(), want)
			continue
		}
		if shown := b.Get(p.Location()); !shown.Contains("<li>"+operation+"</li>", "by admin (console)") {
			t.Errorf("the page of the deployment does not show the operation %s and who started it", operation)
		}
	}
	sees("behind another deployment", "It will wait behind #")
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/settings", map[string]any{}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/box/dev/deployments/pause", nil, nil)
	sees("with a paused stack", "It will wait: deployments of the stack are paused.")
}
