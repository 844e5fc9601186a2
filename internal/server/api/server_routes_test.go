package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/console"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

func TestServerTellsAboutItself(t *testing.T) {
	f := newFixture(t, options{})
	for _, path := range []string{"/healthz", "/readyz", "/api/capabilities", "/api/cli/version"} {
		f.send(call{Method: "GET", Path: path, Auth: "none"}).want(200, nil)
	}
	f.send(call{Method: "GET", Path: "/", Auth: "none"}).want(200, nil).says("pulumi login http://server.test").says("<a href=")
	b := f.send(call{Method: "GET", Path: "/api/cli/version", Auth: "none", Header: map[string]string{"User-Agent": "pulumi-cli/1 (v3.255.0; linux)"}}).want(200, nil).Body
	if !strings.Contains(string(b), `"latestVersion":"3.255.0"`) {
		t.Errorf("cli version = %s", b)
	}
	if m := f.metrics(); !strings.Contains(m, "workflow_server_http_requests_total") {
		t.Errorf("metrics = %.200s", m)
	}
	f.do("GET", "/api/console/orgs/acme/integrations/github-app", nil).want(200, nil)
}

// TestSchemas fetches the schemas of configuration files without authentication.
func TestSchemas(t *testing.T) {
	f := newFixture(t, options{})
	for _, name := range []string{"pulumi-workflow-agent", "workflow-server"} {
		path := "/schemas/" + name + ".schema.json"
		var schema struct {
			Properties map[string]any
		}
		f.send(call{Method: "GET", Path: path, Auth: "none"}).want(200, &schema)
		if schema.Properties["log_format"] == nil {
			t.Errorf("%s describes no log_format", path)
		}
		if console.Serves(path) {
			t.Errorf("the console serves %s", path)
		}
	}
	f.send(call{Method: "GET", Path: "/schemas/none.schema.json", Auth: "none"}).want(404, nil)
	if !console.Serves("/schemas/project/stack") {
		t.Error("the console does not serve an organization that is called schemas")
	}
}

func TestWhoIsCalling(t *testing.T) {
	f := newFixture(t, options{})
	var me struct {
		GithubLogin   string
		Organizations []struct{ GithubLogin, Role string }
		TokenInfo     *struct{ Name, Organization string }
	}
	f.do("GET", "/api/user", nil).want(200, &me)
	if me.GithubLogin != "admin" || len(me.Organizations) != 1 || me.Organizations[0].GithubLogin != "acme" || me.TokenInfo != nil {
		t.Errorf("user = %+v", me)
	}
	var def map[string]any
	f.do("GET", "/api/user/organizations/default", nil).want(200, &def)
	if def["GitHubLogin"] != "acme" {
		t.Errorf("default organization = %v", def)
	}
	f.do("POST", "/api/user/organizations/acme/default", nil).want(204, nil)
	f.do("POST", "/api/user/organizations/none/default", nil).want(404, nil)
	f.do("GET", "/api/orgs/acme", nil).want(200, nil)
	f.do("GET", "/api/orgs/acme/members", nil).want(200, nil)
	f.do("GET", "/api/orgs/none", nil).want(404, nil)
}

func TestTokenLife(t *testing.T) {
	f := newFixture(t, options{})
	f.do("POST", "/api/orgs/acme/teams/core/tokens", map[string]any{"name": "ci", "description": "d", "expires": 0}).want(404, nil)
	f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
	for path, body := range map[string]map[string]any{
		"/api/user/tokens":                 {"description": "d", "expires": 0},
		"/api/orgs/acme/tokens":            {"name": "ci", "description": "d", "expires": time.Now().Add(time.Hour).Unix(), "admin": true},
		"/api/orgs/acme/teams/core/tokens": {"name": "ci", "description": "d", "expires": 0},
	} {
		var made struct{ ID, TokenValue string }
		f.do("POST", path, body).want(200, &made)
		if !strings.HasPrefix(made.TokenValue, "pul-") {
			t.Errorf("%s: token %q", path, made.TokenValue)
		}
		var list struct{ Tokens []struct{ ID string } }
		a := f.do("GET", path, nil).want(200, &list)
		if bytes.Contains(a.Body, []byte(made.TokenValue)) {
			t.Errorf("%s lists the token itself", path)
		}
		var me struct{ TokenInfo *struct{ Name string } }
		f.send(call{Method: "GET", Path: "/api/user", Auth: "token " + made.TokenValue}).want(200, &me)
		f.do("DELETE", path+"/"+made.ID, nil).want(204, nil)
		f.do("DELETE", path+"/"+made.ID, nil).want(404, nil)
		f.send(call{Method: "GET", Path: "/api/user", Auth: "token " + made.TokenValue}).want(401, nil)
	}
	f.do("POST", "/api/user/tokens", map[string]any{"description": "", "expires": 1}).want(400, nil)
	f.do("POST", "/api/user/tokens", map[string]any{"description": "", "expires": -1}).want(400, nil)
	f.do("POST", "/api/orgs/acme/tokens", map[string]any{"description": ""}).want(400, nil)
}

// TestTokensExpireWithinACentury creates tokens of all kinds that expire too late.
func TestTokensExpireWithinACentury(t *testing.T) {
	f := newFixture(t, options{})
	f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
	var pool struct{ ID string }
	f.do("POST", "/api/orgs/acme/agent-pools", map[string]any{"name": "p"}).want(200, &pool)
	kinds := []string{"/api/user/tokens", "/api/orgs/acme/tokens", "/api/orgs/acme/teams/core/tokens", "/api/orgs/acme/agent-pools/" + pool.ID + "/tokens"}
	tried := 0
	for _, route := range f.routes() {
		if strings.HasPrefix(route, "POST ") && strings.HasSuffix(route, "/tokens") {
			tried++
		}
	}
	if tried != len(kinds) {
		t.Errorf("%d routes create tokens, and the test knows %d", tried, len(kinds))
	}
	now := time.Now()
	for _, path := range kinds {
		for _, expires := range []int64{now.AddDate(101, 0, 0).Unix(), now.UnixMilli(), 253402300800, 9223372036854, 9223372036854775807} {
			f.do("POST", path, map[string]any{"name": "n", "description": "d", "expires": expires}).want(400, nil).says("more than 100 years away")
		}
		f.do("POST", path, map[string]any{"name": "n", "description": "d", "expires": now.AddDate(99, 0, 0).Unix()}).want(200, nil)
	}
}

func TestBadCredentials(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	for _, auth := range []string{"none", "token", "token ", "token pul-nope", "Bearer " + f.admin, f.admin, "update-token " + f.admin} {
		f.send(call{Method: "GET", Path: path, Auth: auth}).want(401, nil)
	}
}

func (f *fixture) issue(tok store.Token) string {
	f.t.Helper()
	text, hash := identity.NewToken()
	tok.ID, tok.Hash, tok.CreatedAt = identity.NewID(), hash, time.Now()
	if err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertToken(tok) }); err != nil {
		f.t.Fatalf("creating a token: %v", err)
	}
	return text
}

func (f *fixture) ids(stack string) (orgID, userID, stackID string) {
	f.t.Helper()
	err := f.db.Read(f.t.Context(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		u, err := tx.UserByLogin("admin")
		if err != nil {
			return err
		}
		s, err := tx.StackByName("acme", "proj", stack)
		orgID, userID, stackID = o.ID, u.ID, s.ID
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return orgID, userID, stackID
}

func TestJobTokensWriteOnlyTheirStack(t *testing.T) {
	f := newFixture(t, options{})
	mine, other := f.stack("mine"), f.stack("other")
	org, user, stack := f.ids("mine")
	token := func(op workflow.Operation, o workflow.Options, id string) string {
		return "token " + f.issue(store.Token{
			Kind: store.JobToken, OrgID: org, UserID: user, StackID: stack, DeploymentID: id, JobID: id,
			Scope: identity.JobScope(stack, op, o, true).String(),
		})
	}
	job := token(workflow.OperationUpdate, workflow.Options{}, "d1")
	as := func(method, path string, body any, want int) answer {
		t.Helper()
		return f.send(call{Method: method, Path: path, Body: body, Auth: job}).want(want, nil)
	}
	as("GET", "/api/user", nil, 200)
	as("GET", mine+"/export", nil, 200)
	as("GET", other+"/export", nil, 200)
	as("POST", mine+"/import", state(0), 200)
	as("POST", other+"/import", state(0), 404)
	as("POST", other+"/update", program(), 404)
	as("POST", other+"/encrypt", map[string][]byte{"plaintext": {1}}, 404)
	as("POST", mine+"/rename", map[string]string{"newName": "x"}, 403)
	as("DELETE", mine, nil, 403)
	remover := token(workflow.OperationDestroy, workflow.Options{DeleteAfterDestroy: true}, "d2")
	f.send(call{Method: "DELETE", Path: mine + "?force=true", Auth: remover}).want(403, nil)
	f.send(call{Method: "DELETE", Path: other, Auth: remover}).want(404, nil)
	f.send(call{Method: "POST", Path: "/api/orgs/acme/tokens", Body: map[string]any{"name": "x"}, Auth: remover}).want(403, nil)
	as("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "new"}, 403)
	as("GET", "/api/user/tokens", nil, 403)
	as("POST", "/api/orgs/acme/tokens", map[string]any{"name": "x"}, 403)
	var created struct{ UpdateID string }
	f.send(call{Method: "POST", Path: mine + "/update", Body: program(), Auth: job}).want(200, &created)
	var linked store.Update
	err := f.db.Read(t.Context(), func(tx *store.Tx) (err error) {
		linked, err = tx.Update(created.UpdateID)
		return err
	})
	if err != nil || linked.DeploymentID != "d1" {
		t.Errorf("the update is %+v, %v", linked, err)
	}
	f.send(call{Method: "DELETE", Path: mine, Auth: remover}).want(204, nil)
}

func TestAgentTokensDoNotOpenStacks(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	org, _, stack := f.ids("dev")
	for _, kind := range []store.TokenKind{store.PoolToken, store.RunnerToken} {
		text := f.issue(store.Token{Kind: kind, OrgID: org, StackID: stack, PoolID: "p", JobID: "j"})
		for _, p := range []string{path, path + "/export", "/api/user", "/api/orgs/acme"} {
			f.send(call{Method: "GET", Path: p, Auth: "token " + text}).want(403, nil)
		}
	}
}

func TestExpiredTokensAreRefused(t *testing.T) {
	f := newFixture(t, options{})
	f.stack("dev")
	_, user, _ := f.ids("dev")
	text := f.issue(store.Token{Kind: store.PersonalToken, UserID: user, ExpiresAt: time.Now().Add(-time.Second)})
	f.send(call{Method: "GET", Path: "/api/user", Auth: "token " + text}).want(401, nil)
}

func TestBadRequestsAreAnsweredClearly(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Body: 1000, BigBody: 2000, BigInflated: 20000}})
	path := f.stack("dev")
	f.do("GET", "/api/nothing", nil).want(404, nil)
	f.do("PUT", "/api/user", nil).want(405, nil)
	f.do("POST", path+"/tags", `{"name":`).want(400, nil).says("not valid JSON")
	f.do("POST", path+"/tags", ``).want(400, nil)
	f.do("POST", path+"/tags", `{"name": 5}`).want(400, nil).says("name")
	f.do("POST", path+"/tags", `{"NAME": "a", "Value": "b", "unknown": [1]}`).want(204, nil)
	f.do("POST", path+"/tags", strings.Repeat("x", 1001)).want(413, nil)
	f.send(call{Method: "POST", Path: path + "/tags", Body: strings.Repeat(" ", 1001), Gzip: true}).want(413, nil)
	f.do("POST", path+"/import", strings.Repeat(" ", 2001)).want(413, nil)
	f.send(call{Method: "POST", Path: path + "/import", Body: strings.Repeat(" ", 20001), Gzip: true}).want(413, nil)
	f.send(call{Method: "POST", Path: path + "/tags", Body: "not gzip", Header: map[string]string{"Content-Encoding": "gzip"}}).want(400, nil)
	f.send(call{Method: "POST", Path: path + "/tags", Body: "x", Header: map[string]string{"Content-Encoding": "br"}}).want(415, nil)
	f.send(call{Method: "POST", Path: path + "/import", Body: []byte{0x1f, 0x8b, 8, 0, 0}, Header: map[string]string{"Content-Encoding": "gzip"}}).want(400, nil)
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	f.do("POST", path+"/import", state(500)).want(200, nil)
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.server.URL+path+"/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "token "+f.admin)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	plain, err := io.ReadAll(res.Body)
	if err != nil || res.Header.Get("Content-Encoding") != "" || !json.Valid(plain) {
		t.Errorf("uncompressed: %v, %v", res.Header, err)
	}
	// The default client requests gzip and decompresses the response.
	if got := f.do("GET", path+"/export", nil).want(200, nil).Body; !bytes.Equal(got, plain) {
		t.Error("the compressed response differs from the plain one")
	}
}
