package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
)

// stranger calls a server with a token, or with a session if client has cookies.
type stranger struct {
	t           *testing.T
	url, token  string
	client      *http.Client
	contentType string
}

func (s stranger) call(method, path string, body any) (status int, text string) {
	s.t.Helper()
	var sent io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case url.Values:
		sent = strings.NewReader(b.Encode())
	default:
		sent = bytes.NewReader(must.Get(json.Marshal(body))(s.t))
	}
	req := must.Get(http.NewRequestWithContext(s.t.Context(), method, s.url+path, sent))(s.t)
	if s.token != "" {
		req.Header.Set("Authorization", "token "+s.token)
	} else {
		req.Header.Set("Accept", "text/html")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Origin", s.url)
	}
	req.Header.Set("Content-Type", s.contentType)
	res := must.Get(s.client.Do(req))(s.t)
	defer res.Body.Close()
	return res.StatusCode, string(must.Get(io.ReadAll(res.Body))(s.t))
}

// must makes a call that succeeds.
func (s stranger) must(method, path string, body, out any) {
	s.t.Helper()
	status, text := s.call(method, path, body)
	if status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: status %d, %s", method, path, status, text)
	}
	if out != nil {
		must.OK(s.t, json.Unmarshal([]byte(text), out))
	}
}

// The contents of the victim's organization, which no stranger may read. Each contains mark.
const (
	mark      = "hidden-"
	secretKey = mark + "value"
)

// TestOrganizationsAreIsolated creates two organizations with the program alone, and lets the administrator, a member and
// the tokens of one, and an administrator of the server, try to read and to change the other one.
func TestOrganizationsAreIsolated(t *testing.T) {
	storetest.OnSQLite(t)
	h := newHost(t)
	settings := []string{"--data-dir", h.dir("data", self)}
	h.serve(self, settings...)
	run := func(args ...string) string { t.Helper(); return h.ok(self, append(args, settings...)...) }
	api := func(token string) stranger {
		return stranger{t: t, url: h.url, token: token, client: http.DefaultClient, contentType: "application/json"}
	}

	bob := api(run("user", "create", "bob"))
	run("org", "create", "rival", "--admin", "bob")
	ann := api(run("user", "create", "ann"))
	run("org", "create", "victim", "--admin", "ann")
	poolToken := run("pool", "create", mark+"pool", "--org", "victim")
	var team, org, robot, agent struct{ TokenValue, ID string }
	const victim, stack = "/api/orgs/victim", "/api/stacks/victim/proj/" + mark + "stack"
	ann.must("POST", "/api/stacks/victim/proj", map[string]any{"stackName": mark + "stack"}, nil)
	ann.must("POST", stack+"/import", map[string]any{"version": 3, "deployment": map[string]any{
		"manifest": map[string]any{"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""},
		"resources": []any{map[string]any{
			"urn": "urn:pulumi:" + mark + "stack::proj::pulumi:pulumi:Stack::proj-" + mark + "stack", "type": "pulumi:pulumi:Stack", "outputs": map[string]any{"key": secretKey},
		}},
	}}, nil)
	ann.must("PUT", stack+"/deployments/settings", map[string]any{"operationContext": map[string]any{"environmentVariables": map[string]any{"A": secretKey}}}, nil)
	ann.must("POST", victim+"/teams/pulumi", map[string]any{"name": mark + "team"}, nil)
	ann.must("POST", victim+"/teams/"+mark+"team/tokens", map[string]any{"name": mark + "team-token"}, &team)
	ann.must("POST", victim+"/tokens", map[string]any{"name": mark + "org-token"}, &org)
	ann.must("POST", victim+"/hooks", map[string]any{"name": mark + "hook", "displayName": mark + "hook", "payloadUrl": "https://" + mark + "hook.invalid", "active": true, "format": "raw"}, nil)
	ann.must("PATCH", victim, map[string]any{"setDefaultPulumiVersion": "3"}, nil)

	bob.must("POST", "/api/orgs/rival/tokens", map[string]any{"name": "robot", "admin": true}, &robot)
	bob.must("POST", "/api/orgs/rival/agent-pools", map[string]any{"name": "pool"}, &agent)
	bob.must("POST", "/api/stacks/rival/proj", map[string]any{"stackName": "own"}, nil)
	strangers := map[string]stranger{
		"an administrator of the other organization":     bob,
		"a member of the other organization":             api(run("user", "create", "eve", "--member-of", "rival")),
		"an administrator's token of the other one":      api(robot.TokenValue),
		"an agent of the other organization":             api(agent.TokenValue),
		"an administrator of the server":                 api(run("user", "create", "root2", "--site-admin")),
		"a user without an organization":                 api(run("user", "create", "nobody2")),
		"an administrator of the server and of one":      api(run("user", "create", "root3", "--site-admin", "--member-of", "rival", "--role", "admin")),
		"a former administrator of the organization":     formerAdmin(run, ann, api),
		"the organization's agent, which is not a user":  api(poolToken),
		"the organization's team without any permission": api(team.TokenValue),
	}
	before := content(ann, stack, victim)
	for who, s := range strangers {
		for _, c := range attacks(stack, victim) {
			if strings.HasPrefix(who, "the organization's team") && !strings.HasPrefix(c.path, stack) {
				continue // it sees the organization
			}
			status, text := s.call(c.method, c.path, c.body)
			if status != 401 && status != 403 && status != 404 {
				t.Errorf("%s: %s %s: status %d, %s", who, c.method, c.path, status, text)
			}
			// Errors repeat what the caller has named.
			if hidden := strings.ReplaceAll(strings.ReplaceAll(text, mark+"stack", ""), mark+"team", ""); strings.Contains(hidden, mark) {
				t.Errorf("%s: %s %s answers %s", who, c.method, c.path, text)
			}
		}
		own := []string{"/api/user", "/api/user/organizations/default", "/api/user/stacks", "/api/organizations"}
		if strings.HasPrefix(who, "the organization's") {
			own = own[2:] // the others name the organization
		}
		for _, path := range own {
			if _, text := s.call("GET", path, nil); strings.Contains(text, mark) || strings.Contains(text, "victim") && path != "/api/organizations" {
				t.Errorf("%s: GET %s answers %s", who, path, text)
			}
		}
	}
	for _, s := range []stranger{bob, strangers["an administrator of the server"]} {
		browse(t, h.url, s.token)
	}
	if after := content(ann, stack, victim); after != before {
		t.Errorf("the organization changed from\n%s\nto\n%s", before, after)
	}

	// Administrators of the server see how large it is.
	var seen struct {
		Organizations []struct {
			Name                            string
			Stacks, Resources, Pools, Teams int64
		}
	}
	strangers["an administrator of the server"].must("GET", "/api/organizations", nil, &seen)
	if o := seen.Organizations[len(seen.Organizations)-1]; len(seen.Organizations) != 3 || o.Name != "victim" || o.Stacks != 1 || o.Pools != 1 || o.Teams != 1 {
		t.Errorf("an administrator of the server sees %+v", seen)
	}
	if status, text := bob.call("GET", "/api/organizations", nil); status != 403 {
		t.Errorf("an administrator of an organization sees all others: %d %s", status, text)
	}
}

// formerAdmin adds an administrator to the organization, and removes it.
func formerAdmin(run func(args ...string) string, ann stranger, api func(token string) stranger) stranger {
	token := run("user", "create", "leaver", "--member-of", "victim", "--role", "admin")
	ann.must("DELETE", "/api/orgs/victim/members/leaver", nil, nil)
	return api(token)
}

// content returns what a change of the organization would change.
func content(ann stranger, stack, victim string) string {
	ann.t.Helper()
	var all []string
	for _, path := range []string{
		stack, stack + "/export", stack + "/deployments/settings", stack + "/collaborators", victim + "/metadata", victim + "/members", victim + "/teams",
		victim + "/tokens", victim + "/hooks", victim + "/oidc/issuers",
	} {
		status, text := ann.call("GET", path, nil)
		if status != 200 {
			ann.t.Fatalf("GET %s: status %d, %s", path, status, text)
		}
		var value map[string]any
		if json.Unmarshal([]byte(text), &value) == nil {
			text = string(must.Get(json.Marshal(value))(ann.t))
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

type attack struct {
	method, path string
	body         any
}

// attacks returns calls that read or change each kind of thing.
func attacks(stack, org string) []attack {
	all := []attack{
		{"POST", stack + "/import", map[string]any{"version": 3, "deployment": map[string]any{}}},
		{"POST", stack + "/decrypt", map[string]any{"ciphertext": "eA=="}},
		{"POST", stack + "/batch-decrypt", map[string]any{"ciphertexts": []string{"eA=="}}},
		{"POST", stack + "/encrypt", map[string]any{"plaintext": "eA=="}},
		{"POST", stack + "/update", map[string]any{}},
		{"POST", stack + "/tags", map[string]any{"name": "a", "value": "b"}},
		{"POST", stack + "/rename", map[string]any{"newName": "x"}},
		{"POST", stack + "/transfer", map[string]any{"toOrg": "rival"}},
		{"POST", stack + "/deployments", map[string]any{"operation": "update"}},
		{"PUT", stack + "/deployments/settings", map[string]any{}},
		{"PUT", stack + "/collaborators/bob", map[string]any{"permission": 103}},
		{"POST", stack + "/grants", map[string]any{"stack": "rival/proj/own"}},
		{"DELETE", stack + "/grants/none", nil},
		{"POST", stack + "/hooks", map[string]any{"name": "x", "displayName": "x", "payloadUrl": "https://x.invalid"}},
		{"POST", stack + "/deployments/schedules", map[string]any{"scheduleCron": "0 0 * * *", "request": map[string]any{"operation": "update"}}},
		{"DELETE", stack + "?force=true", nil},
		{"POST", "/api/stacks/victim/proj", map[string]any{"stackName": "planted"}},
		{"POST", "/api/stacks/rival/proj/own/transfer", map[string]any{"toOrg": "victim"}},
		{"PATCH", org, map[string]any{"setDefaultStackPermission": 103}},
		{"POST", org + "/members/bob", map[string]any{"role": "admin"}},
		{"DELETE", org + "/members/ann", nil},
		{"POST", org + "/teams/pulumi", map[string]any{"name": "x"}},
		{"DELETE", org + "/teams/" + mark + "team", nil},
		{"POST", org + "/tokens", map[string]any{"name": "x"}},
		{"POST", org + "/agent-pools", map[string]any{"name": "x"}},
		{"POST", org + "/hooks", map[string]any{"name": "x", "displayName": "x", "payloadUrl": "https://x.invalid"}},
		{"POST", org + "/oidc/issuers", map[string]any{"name": "x", "url": "https://x.invalid"}},
		{"POST", org + "/deployments/pause", nil},
		{"POST", "/api/user/organizations/victim/default", nil},
	}
	for _, path := range []string{
		stack, stack + "/export", stack + "/outputs", stack + "/updates", stack + "/deployments", stack + "/deployments/settings", stack + "/config", stack + "/resources/latest",
		stack + "/activity", stack + "/collaborators", stack + "/teams", stack + "/grants", stack + "/hooks", stack + "/deployments/schedules", "/api/stacks/victim/proj/" + mark + "stack/metadata",
		org, org + "/metadata", org + "/members", org + "/teams", org + "/tokens", org + "/agent-pools", org + "/hooks", org + "/oidc/issuers", org + "/auditlogs", org + "/deployments",
		org + "/resources/summary", "/api/console/orgs/victim/integrations",
	} {
		all = append(all, attack{"GET", path, nil})
	}
	return all
}

// browse opens pages of the organization in the console.
func browse(t *testing.T, address, token string) {
	t.Helper()
	client := &http.Client{
		Jar:           must.Get(cookiejar.New(nil))(t),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s := stranger{t: t, url: address, client: client, contentType: "application/x-www-form-urlencoded"}
	if status, text := s.call("POST", "/-/login", url.Values{"token": {token}}); status != http.StatusSeeOther {
		t.Fatalf("signing in: status %d, %s", status, text)
	}
	for _, path := range []string{
		"/victim", "/victim/-/stacks", "/victim/-/deployments", "/victim/-/pools", "/victim/-/schedules", "/victim/-/activity", "/victim/-/activity/calendar", "/victim/-/audit", "/victim/-/settings", "/victim/-/settings/members",
		"/victim/-/settings/tokens", "/victim/-/settings/organization", "/victim/proj/" + mark + "stack", "/victim/proj/" + mark + "stack/resources", "/victim/proj/" + mark + "stack/settings",
	} {
		status, text := s.call("GET", path, nil)
		if status != http.StatusNotFound || strings.Contains(strings.ReplaceAll(text, mark+"stack", ""), mark) {
			t.Errorf("GET %s: status %d, %s", path, status, text)
		}
	}
	for path, form := range map[string]url.Values{
		"/victim/-/settings/organization/delete": {"confirm": {"victim"}}, "/victim/-/settings/organization/rename": {"name": {"x"}},
		"/victim/-/settings/members": {"login": {"bob"}, "role": {"admin"}}, "/victim/-/settings/tokens": {"name": {"x"}}, "/victim/-/deployments/pause": {},
		"/victim/proj/" + mark + "stack/deploy": {"operation": {"update"}},
	} {
		if status, text := s.call("POST", path, form); status != http.StatusNotFound {
			t.Errorf("POST %s: status %d, %s", path, status, text)
		}
	}
	// The palette and the server's pages name no content.
	for _, path := range []string{"/-/palette?q=hidden&org=victim", "/-/server/organizations", "/-/server/organizations/victim", "/-/server/audit"} {
		if _, text := s.call("GET", path, nil); strings.Contains(text, mark) {
			t.Errorf("GET %s answers %s", path, text)
		}
	}
}
