package console_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/protocol"
)

// visitor is an administrator who uses the pages and the API of a new server.
type visitor struct {
	t       *testing.T
	server  *consoletest.Server
	browser *consoletest.Browser
	url     string
}

func visit(t *testing.T) *visitor {
	t.Helper()
	s := consoletest.With(t, nil, "deployments")
	return &visitor{t, s, s.SignIn(), s.URL}
}

// page returns the text of a page without its tags.
func (v *visitor) page(path string) string {
	v.t.Helper()
	p := v.browser.Get(path)
	if p.Status != http.StatusOK {
		v.t.Fatalf("GET %s: status %d: %s", path, p.Status, plain(p.Body))
	}
	return plain(p.Body)
}

var tags = regexp.MustCompile(`(?s)<[^>]*>`)

func plain(body string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(strings.ReplaceAll(body, "<wbr>", ""), " "))), " ")
}

func (v *visitor) post(path string, form url.Values, want int) string {
	v.t.Helper()
	p := v.browser.Post(path, form)
	if p.Status != want {
		v.t.Fatalf("POST %s: status %d, want %d: %s", path, p.Status, want, plain(p.Body))
	}
	return p.Body
}

func (v *visitor) stack(name string) {
	v.t.Helper()
	v.server.API(http.MethodPost, "/api/stacks/acme/web", map[string]any{"stackName": name}, nil)
	v.server.API(http.MethodPost, "/api/stacks/acme/web/"+name+"/deployments/settings", map[string]any{}, nil)
}

func (v *visitor) deploy(stack string) string {
	v.t.Helper()
	var out struct{ ID string }
	v.server.API(http.MethodPost, "/api/stacks/acme/web/"+stack+"/deployments", map[string]any{"operation": "update"}, &out)
	return out.ID
}

// poll claims a deployment for the agent "a1" of a pool, and returns its id.
func (v *visitor) poll(token string) string {
	v.t.Helper()
	var claim struct{ DeploymentID string }
	if err := json.Unmarshal([]byte(v.pollWith(token).Body), &claim); err != nil {
		v.t.Fatalf("polling: %v", err)
	}
	return claim.DeploymentID
}

// pollWith polls as the agent "a1" of a pool.
func (v *visitor) pollWith(token string) consoletest.Page {
	v.t.Helper()
	req := v.browser.Request(http.MethodGet, "/api/deployments/poll", nil)
	req.Header.Set("Authorization", "token "+token)
	req.Header.Set(protocol.HeaderAgentID, "a1")
	req.Header.Set(protocol.HeaderAgentHostname, "build-1")
	return v.browser.Do(req)
}

func (v *visitor) contains(what, text string, wants ...string) {
	v.t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			v.t.Errorf("%s does not contain %q:\n%s", what, want, text)
		}
	}
}

var (
	poolLink  = regexp.MustCompile(`/acme/-/pools/([0-9a-f-]{36})`)
	poolToken = regexp.MustCompile(`<span tabindex="0">(pul-[^<]+)</span>`)
)

// TestQueuesAndPools follows an operator: an empty organization, a pool, queued deployments with their
// reasons, an agent that takes one, pauses and cancels.
func TestQueuesAndPools(t *testing.T) {
	v := visit(t)
	v.contains("the empty home", v.page("/acme"), "From an empty server to a deployment in three steps", "pulumi login "+v.url)
	v.contains("the empty list", v.page("/acme/-/deployments"), "No deployment yet", "pulumi deployment run update")
	v.contains("the list without pools", v.page("/acme/-/pools"), "No agent pool exists yet")

	v.stack("dev")
	v.stack("prod")
	first := v.deploy("dev")
	v.contains("the queue without a pool", v.page("/acme/-/deployments"), "No agent pool exists in the organization.", "Create a pool")

	v.contains("the form with an error", plain(v.post("/acme/-/pools", url.Values{"name": {" "}}, http.StatusUnprocessableEntity)), "must not be empty.")
	made := v.post("/acme/-/pools", url.Values{"name": {"eu"}}, http.StatusOK)
	pool := "/acme/-/pools/" + poolLink.FindStringSubmatch(made)[1]
	token := poolToken.FindStringSubmatch(made)[1]
	v.contains("a new pool", v.page(pool), "Waiting for the first agent", "default", "1 queued", "configure --service-url "+v.url, "No agent of the pool")
	for _, way := range []string{"deb", "rpm", "homebrew", "docker", "kubernetes"} {
		v.contains("the way "+way, v.page(pool+"?install="+way), v.url)
	}
	if text := v.page(pool); strings.Contains(text, token) {
		t.Error("the token is shown again")
	}

	// An agent takes the first deployment; the others wait behind it or for the agent.
	if claimed := v.poll(token); claimed != first {
		t.Fatalf("the poll returned deployment %q, want %s", claimed, first)
	}
	second := v.deploy("dev")
	v.contains("the active list", v.page("/acme/-/deployments"), "web/ dev #1 starts on build-1", "claimed", "1 running, 1 queued", "Queued 1 in the order in which they start")
	v.contains("the queue", v.page("/acme/-/deployments?status=queued"), "Waiting for deployment #1 of the stack, which is running (update by admin, since", "pool eu")
	v.contains("the stack's queue", v.page("/acme/web/dev/runs?status=queued"), "Waiting for deployment #1", "Pause the stack")
	v.contains("the pool with an agent", v.page(pool), "1 of 1 online", "busy", "web/ dev #1")
	v.contains("the home", v.page("/acme"), "Running now", "1 running, 1 queued", "web/ dev starts on build-1", "update: Waiting for deployment #1", "Recent changes", "1 of 1 busy")
	var details struct {
		Queue struct {
			Reason, Text string
			Ahead        int
		}
	}
	v.server.API(http.MethodGet, "/api/stacks/acme/web/dev/deployments/"+second, nil, &details)
	if why := details.Queue; why.Reason != "earlier-deployment" || !strings.Contains(why.Text, "Waiting for deployment #1") || why.Ahead != 1 {
		t.Errorf("the API explains the second deployment with %+v", why)
	}

	v.post("/acme/-/deployments/pause", nil, http.StatusSeeOther)
	v.contains("the paused queue", v.page("/acme/-/deployments?status=queued"), "All deployments are paused by admin", "Deployments of the organization are paused by admin since", "Resume all deployments")
	v.post("/acme/-/deployments/resume", nil, http.StatusSeeOther)
	v.post("/acme/-/deployments/cancel", url.Values{"id": {second, "unknown"}}, http.StatusSeeOther)
	v.contains("the finished list", v.page("/acme/-/deployments?since=24h"), "web/ dev #2", "cancelled", "Cancelled by admin.")
	if text := v.page("/acme/-/deployments?status=bad"); strings.Contains(text, "dev #2") {
		t.Errorf("the filter by status selects a cancelled deployment: %s", text)
	}
	v.contains("mine", v.page("/acme/-/deployments?mine=on&operation=update&initiator=api"), "web/ dev #2")
	for old, now := range map[string]string{
		"/acme/-/deployments?show=queued&pool=x&after=1-a": "/acme/-/deployments?pool=x&status=queued", "/acme/-/deployments?show=active": "/acme/-/deployments?status=started",
		"/acme/-/deployments?show=finished&status=failed": "/acme/-/deployments?since=all&status=failed",
		"/acme/web/dev/updates":                           "/acme/web/dev/runs", "/acme/web/dev/updates?previews=1": "/acme/web/dev/runs?kind=preview",
		"/acme/web/dev/deployments?show=queued&operation=update": "/acme/web/dev/runs?kind=update&status=queued",
	} {
		if p := v.browser.Get(old); p.Status != http.StatusSeeOther || p.Location() != now {
			t.Errorf("%s: status %d to %q, want %q", old, p.Status, p.Location(), now)
		}
	}

	// Tokens: one more, and both revoked; then the pool cannot hand anything out.
	v.contains("a further token", v.post(pool+"/tokens", url.Values{"description": {"second host"}}, http.StatusOK), "shows this token only now")
	body := v.browser.Get(pool).Body
	for _, m := range regexp.MustCompile(`action="(`+regexp.QuoteMeta(pool)+`/tokens/[^"]+/revoke)"`).FindAllStringSubmatch(body, -1) {
		v.post(m[1], nil, http.StatusSeeOther)
	}
	v.contains("the pool without tokens", v.page(pool), "The pool has no token, so no agent can connect.")

	v.contains("the deletion without a name", plain(v.post(pool+"/delete", url.Values{"confirm": {"x"}}, http.StatusUnprocessableEntity)), "This is not the name of the pool.")
	v.contains("the deletion of a busy pool", plain(v.post(pool+"/delete", url.Values{"confirm": {"eu"}}, http.StatusUnprocessableEntity)), "Agent pool is in use")
	v.post(pool+"/delete", url.Values{"confirm": {"eu"}, "force": {"on"}}, http.StatusSeeOther)
	v.contains("the server's page", v.page("/-/server"), "The server is ready.", "SQLite, ", "deployments", "The installation was never backed up.")
}

// TestQueuesNeedASession checks that the pages are closed to visitors who have not signed in, and that
// actions do not follow GET.
func TestQueuesNeedASession(t *testing.T) {
	b := consoletest.New(t).Browser()
	for _, path := range []string{"/acme", "/acme/-/deployments", "/acme/-/pools", "/-/server", "/acme/web/dev/deployments"} {
		if p := b.Get(path); p.Status != http.StatusSeeOther || !strings.HasPrefix(p.Location(), "/-/login") {
			t.Errorf("GET %s: status %d to %q, want a redirect to the sign-in", path, p.Status, p.Location())
		}
	}
	for _, path := range []string{"/acme/-/deployments/pause", "/acme/-/pools", "/acme/-/deployments/cancel"} {
		if p := b.Post(path, url.Values{}); p.Status != http.StatusUnauthorized {
			t.Errorf("POST %s: status %d, want a refusal", path, p.Status)
		}
	}
}

// TestPoolsOfMembers checks that members see pools but can change neither pools nor the whole queue,
// and that collaborators see no pools.
func TestPoolsOfMembers(t *testing.T) {
	s := consoletest.New(t)
	member := s.SignInWith(s.AddUser("mia", "member"))
	if p := member.Get("/acme/-/pools"); p.Status != http.StatusOK || p.Contains("Create the pool") {
		t.Errorf("a member's list of pools: status %d, with a form: %t", p.Status, p.Contains("Create the pool"))
	}
	if p := member.Get("/acme/-/deployments"); p.Status != http.StatusOK || p.Contains("Pause all") {
		t.Errorf("a member's list of deployments: status %d, with a button to pause: %t", p.Status, p.Contains("Pause all"))
	}
	for _, path := range []string{"/acme/-/pools", "/acme/-/deployments/pause", "/acme/-/pools/p/delete", "/acme/-/pools/p/tokens", "/acme/-/pools/p/default"} {
		if p := member.Post(path, url.Values{"name": {"x"}}); p.Status != http.StatusForbidden {
			t.Errorf("POST %s by a member: status %d, want 403", path, p.Status)
		}
	}
	collaborator := s.SignInWith(s.AddUser("cole", "stack-collaborator"))
	if p := collaborator.Get("/acme/-/pools"); p.Status != http.StatusForbidden && p.Status != http.StatusNotFound {
		t.Errorf("a collaborator's list of pools: status %d, want a refusal", p.Status)
	}
	if p := collaborator.Get("/acme"); p.Status != http.StatusOK || p.Contains("Agent pools") {
		t.Errorf("a collaborator's home: status %d, with pools: %t", p.Status, p.Contains("Agent pools"))
	}
	if p := member.Get("/-/server"); p.Status != http.StatusForbidden {
		t.Errorf("the server's page for a member: status %d, want 403", p.Status)
	}
}

// TestDrain drains an agent, which then gets no deployment until it is resumed.
func TestDrain(t *testing.T) {
	v := visit(t)
	var pool struct{ ID, TokenValue string }
	v.server.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]any{"name": "eu"}, &pool)
	v.pollWith(pool.TokenValue)
	agent := "/acme/-/pools/" + pool.ID + "/agents/a1"
	v.post(agent+"/drain", nil, http.StatusSeeOther)
	v.stack("prod")
	id := v.deploy("prod")
	if p := v.pollWith(pool.TokenValue); p.Status != http.StatusNoContent || p.Header.Get(protocol.HeaderAgentDrained) != "true" {
		t.Errorf("the poll of a drained agent: status %d, headers %v", p.Status, p.Header)
	}
	if text := v.page(agent); !strings.Contains(text, "Drained by admin") || !strings.Contains(text, "Hand out deployments again") {
		t.Errorf("the page of a drained agent: %s", text)
	}
	if text := v.page("/acme/-/pools/" + pool.ID); !strings.Contains(text, "takes no jobs") || !strings.Contains(text, "All online agents are drained. 1 deployment waits.") {
		t.Errorf("the page of the pool: %s", text)
	}
	ada := &visitor{t, v.server, v.server.SignInWith(v.server.AddUser("ada", "member")), v.url}
	if text := ada.page(agent); strings.Contains(text, "Hand out") || !strings.Contains(text, "Drained by admin") {
		t.Errorf("a member sees %s", text)
	}
	v.post(agent+"/resume", nil, http.StatusSeeOther)
	if got := v.poll(pool.TokenValue); got != id {
		t.Errorf("a resumed agent gets %q, want %s", got, id)
	}
	if text := ada.page(agent); strings.Contains(text, "Drain the agent") {
		t.Errorf("a member may drain: %s", text)
	}
}
