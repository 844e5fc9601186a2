package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// tenant is an organization with one object for each path parameter of the routes.
type tenant struct {
	names map[string]string // values of path parameters
	auth  map[string]string // by kind of credential
}

// tenant creates a [tenant] in an existing organization. admin is the Authorization header of the
// organization's administrator.
func (l *lab) tenant(org, admin string) tenant {
	l.t.Helper()
	send := func(method, path string, body any, status int, into any) {
		l.t.Helper()
		l.send(call{Method: method, Path: path, Body: body, Auth: admin}).want(status, into)
	}
	var pool struct{ ID, TokenValue string }
	send("POST", "/api/orgs/"+org+"/agent-pools", map[string]any{"name": "of " + org}, 200, &pool)
	send("POST", "/api/stacks/"+org+"/proj", map[string]any{"stackName": "dev"}, 200, nil)
	stack := "/api/stacks/" + org + "/proj/dev"
	send("PUT", stack+"/deployments/settings", map[string]any{
		"agentPoolID":   pool.ID,
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
	}, 200, nil)
	var deployment struct{ ID string }
	send("POST", stack+"/deployments", map[string]any{"operation": "update"}, 202, &deployment)
	claimed, err := l.client.Poll(l.t.Context(), pool.TokenValue, protocol.PollRequest{
		AgentID: "agent of " + org, SessionID: "s", PollID: "p " + org, FreeSlots: 1, Types: []workflow.Type{workflow.TypeDeployment},
	})
	if err != nil || claimed.Job == nil {
		l.t.Fatalf("claiming: %+v, %v", claimed, err)
	}
	definition, err := l.client.Job(claimed.Job.JobID, claimed.Job.JobToken).Definition(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	var issuer, policy struct{ ID string }
	send("POST", "/api/orgs/"+org+"/oidc/issuers", map[string]any{
		"name": "issuer", "url": "https://issuer.example", "jwks": map[string]any{"keys": []any{map[string]any{
			"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", // the example of RFC 7517
			"x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
		}}},
	}, 200, &issuer)
	send("GET", "/api/orgs/"+org+"/auth/policies/oidcissuers/"+issuer.ID, nil, 200, &policy)
	send("POST", "/api/esc/environments/"+org, map[string]any{"project": "proj", "name": "env"}, 200, nil)
	send("POST", "/api/orgs/"+org+"/teams/pulumi", map[string]any{"name": "team"}, 201, nil)
	const gone = "gone"
	send("POST", "/api/stacks/"+org+"/proj", map[string]any{"stackName": gone}, 200, nil)
	send("DELETE", "/api/stacks/"+org+"/proj/"+gone, nil, 204, nil)
	var deleted struct{ DeletedStacks []struct{ ProgramID string } }
	send("GET", "/api/orgs/"+org+"/restore-stack", nil, 200, &deleted)
	var made struct{ ID string }
	send("POST", "/api/console/orgs/"+org+"/integrations/custom", map[string]any{"name": "git", "baseUrl": "https://git.example"}, 201, &made)
	var update struct{ UpdateID string }
	send("POST", stack+"/update", program(), 200, &update)
	var started struct{ Token string }
	send("POST", stack+"/update/"+update.UpdateID, map[string]any{}, 200, &started)
	return tenant{
		names: map[string]string{
			"provider": "oidc",
			"org":      org, "project": "proj", "stack": "dev", "environment": "env", "deploymentID": deployment.ID, "workflow": "deployment:" + deployment.ID, "poolID": pool.ID,
			"jobID": claimed.Job.JobID, "step": "1", "updateID": update.UpdateID, "version": "1",
			"tokenID": "none", "team": "team", "user": "nobody", "roleID": "none", "inviteID": "none", "grantID": "none", "tag": "tag", "issuerID": issuer.ID, "policyID": policy.ID, "hook": "none", "pack": "none", "group": "none", "event": "none", "session": "none", "draft": "none", "issue": "none", "exception": "EXC-1", "scheduleID": "none", "driftRunId": "none",
			"kind": "team", "urn": "urn", "integration": made.ID, "repo": "o%2Fr", "number": "7", "id": made.ID,
			"stackID": deleted.DeletedStacks[0].ProgramID,
		},
		auth: map[string]string{
			"administrator":                  admin,
			"agent":                          "token " + pool.TokenValue,
			"runner":                         "token " + claimed.Job.JobToken,
			"deployment":                     "token " + definition.Env["PULUMI_ACCESS_TOKEN"],
			"update":                         "update-token " + started.Token,
			"update as a token":              "token " + started.Token,
			"administrator's, of the update": "update-" + admin,
		},
	}
}

func (f *fixture) routes() []string {
	f.t.Helper()
	routes, ok := f.server.Config.Handler.(chi.Routes)
	if !ok {
		f.t.Fatalf("the handler is a %T", f.server.Config.Handler)
	}
	var all []string
	err := chi.Walk(routes, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		all = append(all, method+" "+pattern)
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (n tenant) path(t *testing.T, pattern string) string {
	t.Helper()
	for name, value := range n.names {
		pattern = strings.ReplaceAll(pattern, "{"+name+"}", value)
	}
	if strings.ContainsAny(pattern, "{*") {
		t.Fatalf("%s: the test has no value for a parameter", pattern)
	}
	return pattern
}

// TestStrangersFindNothing calls every route with the names of one organization's objects, with
// every credential of another organization and with none. Except on public routes, the server must
// reject the call. It must not reveal any other name.
func TestStrangersFindNothing(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	now := time.Now()
	rival := store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: now}
	user := store.User{ID: identity.NewID(), Login: "rival-admin", CreatedAt: now}
	err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertOrganization(rival); err != nil {
			return err
		}
		if err := tx.InsertUser(user); err != nil {
			return err
		}
		return tx.InsertMember(store.Member{OrgID: rival.ID, UserID: user.ID, Role: identity.RoleAdmin, CreatedAt: now})
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs := l.tenant("rival", "token "+l.issue(store.Token{Kind: store.PersonalToken, UserID: user.ID}))
	theirs.auth["organization"] = "token " + l.issue(store.Token{Kind: store.OrgToken, OrgID: rival.ID, Name: "o", Admin: true})
	theirs.auth["nobody"] = "none"
	theirs.auth["garbage"] = "token pul-0000000000000000000000000000000000000000000000000000000000000000"
	ours := l.tenant("acme", "token "+l.admin)

	tried := 0
	for _, methodRoute := range l.routes() {
		method, route, _ := strings.Cut(methodRoute, " ")
		path := ours.path(t, route)
		for who, auth := range theirs.auth {
			if path == route && auth != "none" {
				continue // the path names no object of the organization
			}
			target := path
			if strings.HasSuffix(route, "/log") {
				target += "?offset=0"
			}
			a := l.send(call{Method: method, Path: target, Body: map[string]any{"status": "failed", "finishedAt": now}, Auth: auth})
			tried++
			if !slices.Contains([]int{401, 403, 404}, a.Status) && !slices.Contains(open, route) {
				t.Errorf("%s %s by the rival's %s: status %d, body %.200s", method, path, who, a.Status, a.Body)
			}
			for _, name := range []string{ours.names["deploymentID"], ours.names["poolID"], ours.names["updateID"]} {
				if strings.Contains(string(a.Body), name) && !strings.Contains(path, name) {
					t.Errorf("%s %s reveals to the rival's %s: %s", method, path, who, name)
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("the test made only %d calls", tried)
	}
	l.do("GET", "/api/stacks/acme/proj/dev", nil).want(200, nil)
	l.do("GET", "/api/orgs/acme/agent-pools/"+ours.names["poolID"], nil).want(200, nil)
	var d details
	l.do("GET", "/api/stacks/acme/proj/dev/deployments/"+ours.names["deploymentID"], nil).want(200, &d)
	if d.Status != "accepted" {
		t.Errorf("our deployment is %+v", d)
	}
	for _, path := range []string{"/api/user", "/api/user/stacks", "/api/orgs/rival/deployments", "/api/orgs/rival/agent-pools"} {
		a := l.send(call{Method: "GET", Path: path, Auth: theirs.auth["administrator"]}).want(200, nil)
		if strings.Contains(string(a.Body), "acme") || strings.Contains(string(a.Body), ours.names["poolID"]) {
			t.Errorf("%s shows ours: %s", path, a.Body)
		}
	}
}

// open lists the routes without authentication, or for all callers. They describe the server, or accept another proof
// of identity.
var open = []string{
	"/api/oauth/token", "/api/console/orgs/{org}/integrations/github-app", // reports "not installed" to strangers
	"/oidc/.well-known/openid-configuration", "/oidc/.well-known/jwks", "/oidc/v2/.well-known/openid-configuration", "/oidc/v2/.well-known/jwks", "/api/esc/providers/{provider}/schema",
	"/healthz", "/readyz", "/metrics", "/api/capabilities", "/api/cli/version", "/", "/api/openapi/pulumi-spec.json", "/schemas/pulumi-workflow-agent.schema.json", "/schemas/workflow-server.schema.json",
}
