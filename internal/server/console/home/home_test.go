package home_test

import (
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
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

const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(2)>`

type m = map[string]any

// event returns an event of the engine about a resource.
func event(t *testing.T, seq int, kind, op, name string) json.RawMessage {
	t.Helper()
	urn := "urn:pulumi:prod::web::pkg:index:Thing::" + name
	body := m{"metadata": m{"op": op, "urn": urn, "type": "pkg:index:Thing"}}
	if kind == "diagnosticEvent" {
		body = m{"urn": urn, "severity": "error", "message": "error: 1 error occurred:\n* creating Thing: " + name + " is taken"}
	}
	return must.Get(json.Marshal(m{"sequence": seq, "timestamp": 1764000000 + seq, kind: body}))(t)
}

var tags = regexp.MustCompile(`<[^>]*>`)

// text returns the text of a page on one line.
func text(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}

// TestHome reads a home with something in each part, as an administrator, and as a member who may see one of the stacks.
func TestHome(t *testing.T) {
	s := consoletest.New(t)
	for _, name := range []string{"prod", "copy", "drifted", "held", "good", "secret"} {
		s.Stack("web", name)
	}
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 0}, nil)
	ann := s.AddUser("ann", identity.RoleMember)
	s.API(http.MethodPut, "/api/stacks/acme/web/good/collaborators/ann", m{"permission": 101}, nil)

	token := s.Pool()
	exit := 1
	for name, port := range map[string]string{"prod": "8080", "copy": "9090"} {
		job := s.StartJob(token, "web", name)
		job.Step(0, workflow.StepRunning, nil)
		job.PrintLines(0, "error: the port "+port+" is taken "+hostile)
		job.Step(0, workflow.StepFailed, &exit)
		job.Finish(protocol.ResultRequest{Status: workflow.StatusFailed, Reason: workflow.ReasonExitCode, ExitCode: &exit})
	}
	s.RunUpdate(consoletest.Update{Stack: "web/drifted", Kind: "refresh", DryRun: true, Changes: m{"update": 2, "delete": 1, "same": 3}, Result: "succeeded"})
	s.RunUpdate(consoletest.Update{Stack: "web/secret", Kind: "update", Message: hostile, Result: "failed", Events: []json.RawMessage{
		event(t, 0, "resourcePreEvent", "create", "queue"), event(t, 1, "diagnosticEvent", "create", "queue"), event(t, 2, "resOpFailedEvent", "create", "queue"),
	}})
	s.RunUpdate(consoletest.Update{Stack: "web/good", Kind: "update", Message: "Keep traces " + hostile, Changes: m{"create": 4, "replace": 1, "delete": 2}, Result: "succeeded"})
	s.BeginUpdate(consoletest.Update{Stack: "web/held", Kind: "update", Message: "by hand"})
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", m{"name": "gpu"}, nil)
	s.API(http.MethodPost, "/api/stacks/acme/web/good/deployments", m{"operation": "preview"}, nil)
	s.API(http.MethodPost, "/api/orgs/acme/invites/link", m{"role": "member", "email": hostile}, nil)
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET started_at = started_at - 600000000, lease_expires_at = started_at + 60000000 WHERE status = 'running'")
		return err
	}))

	page := s.SignIn().Get("/acme")
	if strings.Contains(page.Body, "<script>alert") || strings.Contains(page.Body, "<img") {
		t.Error("the page contains markup of users")
	}
	got := text(page.Body)
	for _, want := range []string{
		"Needs you 6", "failed web/ prod", "The same error as web/", "failed web/ secret queue could not be created: creating Thing: queue is taken",
		"drift found web/ drifted 2 changed and 1 deleted outside Pulumi", "warning web/ held Locked by admin; its client has been silent for",
		"Invitations Not accepted yet by " + hostile, "1 running, 1 queued", "running web/ held update from the CLI, by Administrator",
		"queued web/ good preview: ", "web/ good Administrator updated Keep traces " + hostile + " +4 ±1 −2 from the CLI", "Administrator failed to update",
		"Estate 6 stacks Failed 3 Drift 1 Running 1 As declared 1", "gpu none online",
		"Home 6 Activity Stacks 6 Deployments 1 Environments Policies Agents", // the numbers of the navigation
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the home lacks %q: %s", want, got)
		}
	}
	for _, link := range []string{`href="/acme/web/prod/deployments/1"`, `href="/acme/web/secret/updates/1"`, `href="/acme/web/drifted/drift"`, `href="/acme/-/settings/members"`, `href="/acme/-/stacks?state=failed&amp;state=drift"`} {
		if !page.Contains(link) {
			t.Errorf("the home lacks the link %s", link)
		}
	}

	got = text(s.SignInWith(ann).Get("/acme").Body)
	for _, hidden := range []string{"web/ prod", "web/ copy", "web/ drifted", "web/ held", "web/ secret", "Invitations", "is taken"} {
		if strings.Contains(got, hidden) {
			t.Errorf("a member who sees one stack reads %q: %s", hidden, got)
		}
	}
	for _, want := range []string{"Nothing needs you.", "web/ good Administrator updated", "Estate 1 stack ", "Home Activity Stacks Deployments Environments Policies Agents"} {
		if !strings.Contains(got, want) {
			t.Errorf("the home of a member lacks %q: %s", want, got)
		}
	}

	// The number of the navigation also counts a pool that waits for an agent, and the pause of the organization.
	b := s.SignIn()
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultAgentPoolID": ""}, nil)
	var pools struct{ AgentPools []struct{ ID string } }
	s.API(http.MethodGet, "/api/orgs/acme/agent-pools", nil, &pools)
	s.API(http.MethodPost, "/api/stacks/acme/web/drifted/deployments", m{"operation": "preview", "agentPoolID": pools.AgentPools[len(pools.AgentPools)-1].ID}, nil)
	b.Post("/acme/-/deployments/pause", nil)
	if got := text(b.Get("/acme").Body); !strings.Contains(got, "Needs you 8") || !strings.Contains(got, "Home 8 Activity") {
		t.Errorf("the home and its number differ: %s", got)
	}
}
