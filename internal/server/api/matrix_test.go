package api_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/rights"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// matrixCalls are the calls of each column of the tables in docs/permissions.md. Their bodies are
// invalid where a valid call would change what later calls find.
var matrixCalls = map[string][]string{
	"list":    {"GET /api/user/stacks"},
	"outputs": {"GET STACK", "GET STACK/export", "GET STACK/outputs"},
	"read": {
		"GET STACK/updates", "GET STACK/metadata", "GET STACK/deployments", "GET STACK/deployments/DEPLOYMENT",
		"GET STACK/deployments/DEPLOYMENT/logs", "GET STACK/deployments/settings", "GET STACK/collaborators", "GET STACK/teams", "GET STACK/grants",
		"GET STACK/resources/latest", "GET STACK/activity", "GET STACK/upstreamreferences", "GET STACK/downstreamreferences",
		"GET STACK/updates/latest/previews", "GET STACK/annotations/none",
		"GET STACK/policypacks", "GET STACK/policygroups", "GET STACK/drift/runs", "GET STACK/drift/status", "GET STACK/vcs/events", "GET STACK/vcs/pulls",
		"GET STACK/deployments/schedules", "GET STACK/deployments/schedules/none", "GET STACK/deployments/schedules/none/history",
	},
	"decrypt": {"POST STACK/decrypt", "POST STACK/batch-decrypt", "POST STACK/decrypt/log-decryption"},
	"preview": {"POST STACK/preview"},
	"write":   {"POST STACK/update", "POST STACK/destroy", "POST STACK/import", "POST STACK/tags", "PATCH STACK/annotations/some"},
	"deploy": {
		"POST STACK/deployments", "POST STACK/deployments/none/cancel", "POST STACK/deployments/resume", "POST STACK/deployments/settings/encrypt",
		"PUT STACK/config", "POST STACK/deployments/schedules", "POST STACK/deployments/drift/schedules", "POST STACK/deployments/ttl/schedules",
		"POST STACK/deployments/schedules/none", "POST STACK/deployments/drift/schedules/none", "POST STACK/deployments/ttl/schedules/none",
		"POST STACK/vcs/pulls/none/approve",
		"DELETE STACK/deployments/schedules/none", "POST STACK/deployments/schedules/none/pause", "POST STACK/deployments/schedules/none/resume",
	},
	"delete": {"DELETE STACK", "POST STACK/rename"},
	"hooks": {
		"GET STACK/hooks", "GET STACK/hooks/none", "GET STACK/hooks/none/deliveries", "POST STACK/hooks", "PATCH STACK/hooks/none", "DELETE STACK/hooks/none",
		"POST STACK/hooks/none/ping", "POST STACK/hooks/none/deliveries/none/redeliver",
	},
	"grant": {
		"POST STACK/ownership", "POST STACK/grants", "DELETE STACK/grants/none",
		"PUT STACK/collaborators/none", "DELETE STACK/collaborators/none", "PATCH /api/console/stacks/acme/proj/NAME/teams/readers",
	},

	"see": {
		"GET /api/orgs/acme", "GET /api/orgs/acme/metadata", "GET /api/orgs/acme/members", "GET /api/orgs/acme/teams", "GET /api/orgs/acme/teams/readers",
		"GET /api/orgs/acme/members/admin/teams", "GET /api/orgs/acme/agent-pools", "GET /api/orgs/acme/deployments",
		"GET /api/orgs/acme/resources/summary", "GET /api/orgs/acme/deployments/summary", "GET /api/orgs/acme/deployments/usagereport",
		"POST /api/orgs/acme/policyresults/issues", "POST /api/orgs/acme/policyresults/issues/export", "POST /api/orgs/acme/policyresults/issues/filters",
		"GET /api/orgs/acme/policyresults/issues/none", "PATCH /api/orgs/acme/policyresults/issues/none", "POST /api/orgs/acme/policyresults/compliance",
		"POST /api/orgs/acme/policyresults/policies", "GET /api/orgs/acme/policyresults/metadata",
		"GET /api/orgs/acme/policy/exceptions", "GET /api/orgs/acme/policy/exceptions/none", "POST /api/orgs/acme/policy/exceptions/drafts",
		"GET /api/orgs/acme/policypacks", "GET /api/orgs/acme/policypacks/none/latest", "GET /api/orgs/acme/policypacks/none/versions/1",
		"GET /api/orgs/acme/policypacks/none/versions/1/schema", "GET /api/orgs/acme/policygroups", "GET /api/orgs/acme/policygroups/metadata",
		"GET /api/orgs/acme/policygroups/none", "GET /api/orgs/acme/policygroups/none/stacks", "GET /api/orgs/acme/policygroups/none/accounts",
		"GET INTEGRATIONS", "GET /api/orgs/acme/restore-stack", "POST /api/orgs/acme/restore-stack/none",
	},
	"create stacks": {"POST /api/stacks/acme/proj"},
	"administer": {
		"POST /api/orgs/acme/members/admin", "PATCH /api/orgs/acme/members/admin", "DELETE /api/orgs/acme/members/none", "POST /api/orgs/acme/members/none/set-admin",
		"POST /api/orgs/acme/teams/pulumi", "DELETE /api/orgs/acme/teams/none", "GET /api/orgs/acme/tokens", "POST /api/orgs/acme/tokens",
		"GET /api/orgs/acme/teams/readers/tokens", "POST /api/orgs/acme/teams/readers/tokens", "POST /api/orgs/acme/agent-pools",
		"GET /api/orgs/acme/oidc/issuers", "POST /api/orgs/acme/oidc/issuers", "PATCH /api/orgs/acme", "POST /api/orgs/acme/deployments/resume", "GET /api/orgs/acme/restore", "POST /api/orgs/acme/restore/release",
		"DELETE /api/orgs/acme/restore-stack/none",
		"GET /api/orgs/acme/hooks", "GET /api/orgs/acme/hooks/none", "GET /api/orgs/acme/hooks/none/deliveries", "POST /api/orgs/acme/hooks",
		"PATCH /api/orgs/acme/hooks/none", "DELETE /api/orgs/acme/hooks/none", "POST /api/orgs/acme/hooks/none/ping",
		"POST /api/orgs/acme/hooks/none/deliveries/none/redeliver",
		"GET INTEGRATIONS/custom", "POST INTEGRATIONS/custom", "GET INTEGRATIONS/github/none", "PATCH INTEGRATIONS/gitlab/none", "DELETE INTEGRATIONS/bitbucket/none",
		"GET INTEGRATIONS/azure-devops/none/repos", "GET INTEGRATIONS/github-enterprise/none/repos/none/branches", "GET INTEGRATIONS/custom/none/events",
		"POST /api/orgs/acme/policy/exceptions", "DELETE /api/orgs/acme/policy/exceptions/none",
		"POST /api/orgs/acme/policypacks", "DELETE /api/orgs/acme/policypacks/none", "DELETE /api/orgs/acme/policypacks/none/versions/1",
		"POST /api/orgs/acme/policypacks/none/versions/1/complete", "POST /api/orgs/acme/policygroups", "PATCH /api/orgs/acme/policygroups/none",
		"PATCH /api/orgs/acme/policygroups/none/batch", "DELETE /api/orgs/acme/policygroups/none",
		"POST INTEGRATIONS/custom/none/repos", "DELETE INTEGRATIONS/custom/none/repos",
	},
	"govern":     {"POST /api/orgs/acme/rename", "DELETE /api/orgs/acme"},
	"survey":     {"GET /api/organizations", "POST /api/orgs", "PATCH /api/organizations/acme/quota"},
	"own tokens": {"GET /api/user/tokens"},
	"poll":       {"GET /api/deployments/poll", "GET /api/agent-pools/self/load"},
	"job":        {"GET /api/workflow/jobs/JOB", "POST /api/workflow/jobs/JOB/oidc-token"},
	"lease":      {"POST STACK/update/UPDATE/renew_lease"},
}

// matrixCaller is a row of the tables.
type matrixCaller struct {
	auth    string
	stack   string            // name of the stack in the path
	prepare func()            // called before the calls; nil for none
	fill    *strings.Replacer // values of the other words in capitals
}

// TestPermissionMatrix makes the calls of each cell of the tables in docs/permissions.md, which are
// the expectations. Every caller and every column must occur in them.
func TestPermissionMatrix(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.withKey()
	callers := l.matrixCallers()
	tables := rights.Tables(t, filepath.Join("..", "..", "..", "docs", "permissions.md"), "caller, ")
	if len(tables) != 2 {
		t.Fatalf("docs/permissions.md has %d tables of callers, want 2", len(tables))
	}
	known := map[string]bool{}
	for _, table := range tables {
		for who, cells := range table.Rows {
			known[who] = true
			c, ok := callers[who]
			if !ok {
				t.Errorf("docs/permissions.md names the caller %q, which this test does not have", who)
				continue
			}
			if c.prepare != nil {
				c.prepare()
			}
			for column, want := range cells {
				if matrixCalls[column] == nil {
					t.Errorf("docs/permissions.md has the column %q, for which this test has no calls", column)
				}
				for _, route := range matrixCalls[column] {
					if got := l.cell(c, route); got != want {
						t.Errorf("%s, %s: %s: %s, want %s", who, column, route, got, want)
					}
				}
			}
		}
	}
	for who := range callers {
		if !known[who] {
			t.Errorf("docs/permissions.md does not name the caller %q", who)
		}
	}
	for column := range matrixCalls {
		if !slices.ContainsFunc(tables, func(m rights.Table) bool { return slices.Contains(m.Columns, column) }) {
			t.Errorf("docs/permissions.md has no column %q", column)
		}
	}
}

// token creates a token with a body of the public API, and returns its text.
func (f *fixture) token(path string, body map[string]any) string {
	f.t.Helper()
	var made struct{ TokenValue string }
	f.do("POST", path, body).want(200, &made)
	return made.TokenValue
}

// cell makes a call and returns what the tables contain for its result.
func (l *lab) cell(c matrixCaller, route string) string {
	l.t.Helper()
	route = strings.NewReplacer("STACK", "/api/stacks/acme/proj/"+c.stack, "NAME", c.stack, "INTEGRATIONS", "/api/console/orgs/acme/integrations").Replace(route)
	method, path, _ := strings.Cut(c.fill.Replace(route), " ")
	var body any = map[string]any{}
	switch {
	case strings.HasSuffix(path, "/import"):
		body = "{" // an empty object is a valid state
	case strings.HasSuffix(path, "/batch-decrypt"):
		body = map[string]any{"ciphertexts": []string{"eA=="}}
	}
	a := l.send(call{Method: method, Path: path, Body: body, Auth: c.auth})
	hidden := a.Status == 404 && (strings.Contains(string(a.Body), "you may not see it") || strings.Contains(string(a.Body), "do not contain the secret"))
	if path == "/api/user/stacks" && a.Status == 200 {
		hidden = !strings.Contains(string(a.Body), `"stackName":"`+c.stack+`"`)
	}
	switch {
	case hidden:
		return "404"
	case a.Status == 401, a.Status == 403:
		return fmt.Sprint(a.Status)
	case a.Status >= 500 && a.Status != 501:
		return fmt.Sprintf("status %d", a.Status)
	default:
		return "✓"
	}
}

// matrixCallers creates the stacks, users, teams, tokens and jobs behind the rows of the tables.
func (l *lab) matrixCallers() map[string]matrixCaller {
	l.t.Helper()
	permit := func(p int) func() {
		return func() {
			l.t.Helper()
			l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": p}).want(200, nil)
		}
	}
	none, read, write, admin := permit(0), permit(101), permit(102), permit(103)
	for _, name := range []string{"target", "own", "previewed", "unrequested"} {
		l.publish(l.stack(name)) // a stack with resources cannot be deleted
	}
	const target = "/api/stacks/acme/proj/target"
	ann := l.person("ann", "acme", "member")

	write()
	update := l.job("/api/stacks/acme/proj/own", "update", ann)
	preview := l.job("/api/stacks/acme/proj/previewed", "preview", "")
	robot := "token " + l.token("/api/orgs/acme/tokens", map[string]any{"name": "robot"})
	unrequested := l.job("/api/stacks/acme/proj/unrequested", "update", robot)
	l.deployable("granted")
	l.send(call{Method: "POST", Path: "/api/stacks/acme/proj/granted/deployments", Auth: robot, Body: map[string]any{"operation": "update"}}).want(202, nil)
	_, jc := l.start("agent of granted")
	definition, err := jc.Definition(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	granted := "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
	l.do("POST", target+"/grants", map[string]any{"stack": "acme/proj/granted"}).want(201, nil)
	l.do("PUT", target+"/deployments/settings", map[string]any{
		"agentPoolID":   l.pool,
		"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
	}).want(200, nil)
	deployment := l.deploy(target+"/deployments", "preview")
	job, _ := l.claim("matrix")
	creator := l.person("creator", "acme", "member")
	l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "created"}, Auth: creator}).want(200, nil)
	l.publish("/api/stacks/acme/proj/created")
	started := l.fixture.start(target, "update")

	team := func(name string, permission int, members ...string) {
		l.t.Helper()
		l.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": name}).want(201, nil)
		for _, m := range members {
			l.do("PATCH", "/api/orgs/acme/teams/"+name, map[string]any{"memberAction": "add", "member": m}).want(204, nil)
		}
		if permission > 0 {
			l.do("PATCH", "/api/console/stacks/acme/proj/target/teams/"+name, map[string]any{"permissions": permission}).want(204, nil)
		}
	}
	reader, leader := l.person("reader", "acme", "member"), l.person("leader", "acme", "member")
	writer, guest := l.person("writer", "acme", "member"), l.person("guest", "acme", identity.RoleCollaborator)
	removed := l.person("removed", "acme", "admin")
	team("readers", 101, "reader", "removed")
	team("leaders", 103, "leader")
	team("idlers", 0)
	l.do("PUT", target+"/collaborators/writer", map[string]any{"permission": 102}).want(204, nil)
	l.do("PUT", target+"/collaborators/guest", map[string]any{"permission": 101}).want(204, nil)
	l.do("DELETE", "/api/orgs/acme/members/removed", nil).want(204, nil)
	disabled := l.person("disabled", "acme", "admin")
	if _, err := l.identity.DisableUser(l.t.Context(), identity.Operator(), "disabled", ""); err != nil {
		l.t.Fatal(err)
	}
	root, err := l.identity.CreateUser(l.t.Context(), identity.NewUser{Login: "root", SiteAdmin: true})
	if err != nil {
		l.t.Fatal(err)
	}
	rivals := store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: time.Now()}
	if err := l.db.Write(l.t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(rivals) }); err != nil {
		l.t.Fatal(err)
	}
	_, _, rival := l.member(rivals.ID, "rival-admin")

	fill := strings.NewReplacer("DEPLOYMENT", deployment, "JOB", job.JobID, "UPDATE", started.path[strings.LastIndexByte(started.path, '/')+1:])
	on := func(stack, auth string, prepare func()) matrixCaller {
		if auth != "none" && !strings.Contains(auth, "token ") {
			auth = "token " + auth
		}
		return matrixCaller{auth, stack, prepare, fill}
	}
	teamToken := func(name string) string {
		return l.token("/api/orgs/acme/teams/"+name+"/tokens", map[string]any{"name": "ci"})
	}
	return map[string]matrixCaller{
		"no token":                                                  on("target", "none", nil),
		"site administrator, not a member":                          on("target", root, none),
		"administrator":                                             on("target", l.person("chief", "acme", "admin"), none),
		"member, default none":                                      on("target", ann, none),
		"member, default read":                                      on("target", ann, read),
		"member, default write":                                     on("target", ann, write),
		"member, default admin":                                     on("target", ann, admin),
		"member, default write, in a team with read":                on("target", reader, write),
		"member, default none, in a team with read":                 on("target", reader, none),
		"member, default none, in a team with admin":                on("target", leader, none),
		"member, default none, with write on the stack":             on("target", writer, none),
		"member, default none, who created the stack":               on("created", creator, none),
		"billing manager, default write":                            on("target", l.person("bill", "acme", identity.RoleBillingManager), write),
		"stack collaborator, default write, with read on the stack": on("target", guest, write),
		"stack collaborator, default write, without a permission":   on("target", l.person("stranger", "acme", identity.RoleCollaborator), write),
		"organization token, default write":                         on("target", robot, write),
		"organization token, default none":                          on("target", robot, none),
		"organization token with admin":                             on("target", l.token("/api/orgs/acme/tokens", map[string]any{"name": "boss", "admin": true}), none),
		"team token, default write, team with read":                 on("target", teamToken("readers"), write),
		"team token, default write, team without a permission":      on("target", teamToken("idlers"), write),
		"pool token":                                             on("target", l.poolToken, admin),
		"runner token of a job":                                  on("target", job.JobToken, admin),
		"job token, preview, own stack":                          on("previewed", preview, admin),
		"job token, update, own stack":                           on("own", update, none),
		"job token, update, own stack, no requester":             on("unrequested", unrequested, none),
		"job token, other stack that the requester may read":     on("target", update, read),
		"job token, other stack that the requester may not read": on("target", update, none),
		"job token, other stack, no requester":                   on("target", unrequested, admin),
		"job token, other stack, no requester, with a grant":     on("target", granted, none),
		"update token":                                           on("target", "update-token "+started.token, admin),
		"administrator of another organization":                  on("target", rival, admin),
		"removed member":                                         on("target", removed, admin),
		"disabled user":                                          on("target", disabled, admin),
	}
}
