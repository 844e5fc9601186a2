package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/rights"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/console"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// matrixRoutes are the routes of each column of the console's tables in docs/permissions.md. Each route
// of the console must be in one of them.
var matrixRoutes = map[string][]string{
	"start": {
		"GET /-/login", "POST /-/login", "GET /-/login/link", "POST /-/login/link", "GET /welcome/cli", "POST /-/logout",
		"GET /-/login/with/{provider}", "GET /-/login/with/{provider}/return", "GET /-/login/passkey", "POST /-/login/passkey",
		"GET /-/invitation", "POST /-/invitation/sign-up",
	},
	"own": {
		"POST /-/invitation/accept", "GET /", "GET /user/settings", "POST /user/settings/preferences", "POST /user/settings/sessions/{session}/end",
		"POST /user/settings/sessions/end", "GET /user/settings/tokens", "POST /user/settings/tokens",
		"POST /user/settings/tokens/{token}/revoke", "GET /cli-login", "POST /cli-login", "GET /-/palette",
		"GET /user/settings/passkeys/new", "POST /user/settings/passkeys", "POST /user/settings/passkeys/{passkey}/rename",
		"POST /user/settings/passkeys/{passkey}/remove", "GET /user/settings/connect/{provider}", "POST /user/settings/identities/remove",
	},
	"home": {
		"GET /{org}", "GET /{org}/{project}", "GET /{org}/-/stacks", "POST /{org}/-/stacks/star", "GET /{org}/-/stacks/bulk", "POST /{org}/-/stacks/bulk", "POST /{org}/-/stacks/views",
		"POST /{org}/-/stacks/views/delete", "GET /{org}/-/deployments", "POST /{org}/-/deployments/cancel",
		"GET /{org}/-/activity", "GET /{org}/-/activity/calendar", "GET /{org}/-/schedules", "GET /{org}/-/stacks/deleted", "POST /{org}/-/stacks/deleted/{deleted}/restore",
	},
	"see": {
		"GET /{org}/-/pools", "GET /{org}/-/pools/{pool}", "GET /{org}/-/pools/{pool}/agents/{agent}", "GET /{org}/-/settings",
		"GET /{org}/-/settings/members", "GET /{org}/-/settings/teams", "GET /{org}/-/settings/teams/{team}",
		"GET /{org}/-/policies", "GET /{org}/-/policies/packs/{pack}", "GET /{org}/insights/policypacks/{pack}/{version}", "GET /{org}/-/policies/groups", "GET /{org}/-/policies/groups/{group}",
		"GET /{org}/-/policies/issues", "GET /{org}/-/policies/issues/{issue}", "POST /{org}/-/policies/issues/{issue}", "GET /{org}/-/policies/compliance",
		"GET /{org}/-/policies/evaluations", "POST /{org}/-/policies/evaluations",
		"GET /{org}/-/policies/exceptions", "GET /{org}/-/policies/exceptions/{exception}",
	},
	"own team":      {"POST /{org}/-/settings/teams/{team}/edit", "POST /{org}/-/settings/teams/{team}/members"},
	"team's stacks": {"POST /{org}/-/settings/teams/{team}/stacks"},
	"administer": {
		"POST /{org}/-/deployments/pause", "POST /{org}/-/deployments/resume", "GET /{org}/-/audit", "GET /{org}/-/audit/export", "GET /{org}/-/settings/audit",
		"GET /{org}/-/restore", "POST /{org}/-/restore/release", "POST /{org}/-/restore/revoke-tokens",
		"POST /{org}/-/stacks/deleted/{deleted}/purge",
		"GET /{org}/-/settings/organization", "POST /{org}/-/settings/organization/rename", "POST /{org}/-/settings/organization/delete",
		"POST /{org}/-/pools", "POST /{org}/-/pools/no-default", "POST /{org}/-/pools/{pool}/default", "POST /{org}/-/pools/{pool}/edit", "POST /{org}/-/pools/{pool}/move",
		"POST /{org}/-/pools/{pool}/delete", "POST /{org}/-/pools/{pool}/tokens", "POST /{org}/-/pools/{pool}/tokens/{token}/revoke",
		"POST /{org}/-/pools/{pool}/agents/{agent}/drain", "POST /{org}/-/pools/{pool}/agents/{agent}/resume",
		"POST /{org}/-/settings/permission", "POST /{org}/-/settings/project-reads", "POST /{org}/-/settings/pulumi-version", "POST /{org}/-/settings/members", "POST /{org}/-/settings/members/{user}/role",
		"POST /{org}/-/settings/invitations", "POST /{org}/-/settings/invitations/{invitation}/revoke", "POST /{org}/-/settings/members/{user}/remove", "POST /{org}/-/settings/teams", "POST /{org}/-/settings/teams/{team}/delete",
		"POST /{org}/-/settings/teams/{team}/tokens", "POST /{org}/-/settings/teams/{team}/tokens/{token}/revoke",
		"GET /{org}/-/settings/tokens", "POST /{org}/-/settings/tokens", "POST /{org}/-/settings/tokens/{token}/revoke",
		"GET /{org}/-/settings/issuers", "POST /{org}/-/settings/issuers", "GET /{org}/-/settings/issuers/{issuer}",
		"POST /{org}/-/settings/issuers/{issuer}/edit", "POST /{org}/-/settings/issuers/{issuer}/thumbprints",
		"POST /{org}/-/settings/issuers/{issuer}/policies", "POST /{org}/-/settings/issuers/{issuer}/policies/remove",
		"POST /{org}/-/settings/issuers/{issuer}/test", "POST /{org}/-/settings/issuers/{issuer}/delete",
		"GET /{org}/-/settings/integrations/github-app", "POST /{org}/-/settings/integrations/github-app",
		"GET /{org}/-/settings/integrations/github-app/created", "GET /{org}/-/settings/integrations/github-app/installed",
		"GET /{org}/-/settings/integrations/github-app/apps/{integration}",
		"GET /{org}/-/settings/webhooks", "POST /{org}/-/settings/webhooks", "GET /{org}/-/settings/webhooks/{hook}",
		"POST /{org}/-/settings/webhooks/{hook}/{action}",
		"GET /{org}/-/settings/integrations", "POST /{org}/-/settings/integrations", "GET /{org}/-/settings/integrations/new",
		"GET /{org}/-/settings/integrations/{integration}", "GET /{org}/-/settings/integrations/{integration}/events",
		"GET /{org}/-/settings/integrations/{integration}/repositories", "POST /{org}/-/settings/integrations/{integration}/edit",
		"POST /{org}/-/settings/integrations/{integration}/rotate", "POST /{org}/-/settings/integrations/{integration}/delete",
		"POST /{org}/-/policies/packs/{pack}/remove", "POST /{org}/-/policies/groups", "POST /{org}/-/policies/groups/{group}/edit", "POST /{org}/-/policies/groups/{group}/stacks",
		"GET /{org}/-/policies/groups/{group}/packs", "POST /{org}/-/policies/groups/{group}/delete", "GET /{org}/-/policies/groups/{group}/packs/{pack}",
		"POST /{org}/-/policies/groups/{group}/packs/{pack}", "POST /{org}/-/policies/groups/{group}/packs/{pack}/remove",
		"GET /{org}/-/policies/exceptions/new", "POST /{org}/-/policies/exceptions", "POST /{org}/-/policies/exceptions/{exception}/remove",
	},
	"server": {
		"GET /-/server", "GET /-/server/audit", "GET /-/server/audit/export", "GET /-/server/users", "GET /-/server/users/{user}",
		"POST /-/server/users/{user}/disable", "POST /-/server/users/{user}/enable", "POST /-/server/users/{user}/hand-over",
		"POST /-/server/users/{user}/end-sessions", "POST /-/server/users/{user}/delete", "POST /-/server/restore/release", "POST /-/server/restore/revoke-tokens",
		"GET /-/server/organizations", "POST /-/server/organizations", "GET /-/server/organizations/{organization}",
		"POST /-/server/organizations/{organization}/quotas", "POST /-/server/organizations/{organization}/rename",
		"POST /-/server/organizations/{organization}/delete",
	},

	"read": {
		"GET STACK", "GET STACK/panel", "GET STACK/updates", "GET STACK/runs", "GET STACK/runs/compare", "GET STACK/updates/{version}", "GET STACK/previews/{update}", "GET STACK/resources", "GET STACK/resources/rows", "GET STACK/resource", "GET STACK/state",
		"GET STACK/resources/{urn}", "GET STACK/drift", "GET STACK/deployments", "GET STACK/deployments/{version}",
		"GET STACK/changes", "GET STACK/changes/rows", "GET STACK/updates/{version}/changes", "GET STACK/previews/{update}/changes", "GET STACK/deployments/{version}/changes",
		"GET STACK/evaluations/{evaluation}", "GET STACK/evaluations/{evaluation}/log/find", "GET STACK/evaluations/{evaluation}/log/raw", "GET STACK/evaluations/{evaluation}/log/{step}",
		"GET STACK/evaluations/{evaluation}/log/{step}/raw", "GET STACK/deployments/{version}/log/find", "GET STACK/deployments/{version}/log/raw", "GET STACK/deployments/{version}/log/{step}",
		"GET STACK/deployments/{version}/log/{step}/raw", "GET STACK/settings", "GET STACK/settings/schedules", "GET STACK/settings/access",
		"GET STACK/settings/options", "GET STACK/settings/triggers", "GET STACK/git",
	},
	"operate": {
		"POST STACK/tags", "GET STACK/deploy", "POST STACK/deploy", "POST STACK/pause", "POST STACK/resume",
		"POST STACK/evaluations/{evaluation}/cancel", "POST STACK/deployments/{version}/cancel", "POST STACK/deployments/{version}/force-cancel", "POST STACK/deployments/{version}/again", "POST STACK/settings", "POST STACK/settings/save", "POST STACK/settings/clear-cache",
		"POST STACK/settings/schedules", "POST STACK/settings/schedules/{schedule}/{action}", "POST STACK/settings/triggers", "POST STACK/settings/triggers/approve",
	},
	"manage": {
		"GET STACK/settings/webhooks", "POST STACK/settings/webhooks", "GET STACK/settings/webhooks/{hook}",
		"POST STACK/settings/webhooks/{hook}/{action}", "POST STACK/settings/access", "POST STACK/settings/access/grants", "POST STACK/settings/options/rename",
		"POST STACK/settings/options/transfer", "POST STACK/settings/options/delete",
	},
}

const stackPattern = "/{org}/{project}/{stack}"

// recentRoutes are the routes that require a recent sign-in. They create access that outlives the
// session, or destroy what no user can restore.
var recentRoutes = []string{
	"GET /cli-login", "POST /cli-login", "POST /user/settings/tokens", "GET /user/settings/passkeys/new", "POST /user/settings/passkeys",
	"POST /user/settings/passkeys/{passkey}/remove", "GET /user/settings/connect/{provider}", "POST /user/settings/identities/remove",
	"POST /{org}/-/pools", "POST /{org}/-/pools/{pool}/delete", "POST /{org}/-/stacks/deleted/{deleted}/purge",
	"POST /{org}/-/pools/{pool}/tokens", "POST /{org}/-/settings/permission", "POST /{org}/-/settings/project-reads", "POST /{org}/-/settings/members", "POST /{org}/-/settings/invitations",
	"POST /{org}/-/settings/members/{user}/role", "POST /{org}/-/settings/teams", "POST /{org}/-/settings/teams/{team}/members",
	"POST /{org}/-/settings/teams/{team}/stacks", "POST /{org}/-/settings/teams/{team}/tokens", "POST /{org}/-/settings/tokens",
	"POST /{org}/-/settings/issuers", "POST /{org}/-/settings/issuers/{issuer}/edit", "POST /{org}/-/settings/issuers/{issuer}/thumbprints",
	"POST /{org}/-/settings/issuers/{issuer}/policies", "POST /{org}/-/settings/issuers/{issuer}/policies/remove",
	"POST /{org}/-/settings/integrations/github-app",
	"POST /{org}/-/settings/organization/rename", "POST /{org}/-/settings/organization/delete",
	"POST /-/server/organizations", "POST /-/server/organizations/{organization}/quotas",
	"POST /-/server/organizations/{organization}/rename", "POST /-/server/organizations/{organization}/delete",
	"POST /{org}/-/policies/packs/{pack}/remove", "POST /{org}/-/policies/groups/{group}/delete", "POST /{org}/-/policies/exceptions",
	"POST /{org}/-/settings/webhooks", "POST STACK/settings/schedules", "POST STACK/settings/webhooks", "POST STACK/settings/access", "POST STACK/settings/access/grants",
	"POST /{org}/-/settings/integrations", "POST /{org}/-/settings/integrations/{integration}/edit", "POST /{org}/-/settings/integrations/{integration}/rotate",
	"POST STACK/settings/options/transfer", "POST STACK/settings/options/delete", "POST STACK/deployments/{version}/force-cancel",
	"POST /-/server/users/{user}/disable", "POST /-/server/users/{user}/enable", "POST /-/server/users/{user}/hand-over", "POST /-/server/users/{user}/delete",
}

// matrixForms are the forms of actions that an empty form does not reach.
var matrixForms = map[string]url.Values{
	"POST /{org}/-/settings/teams/{team}/stacks":  {"stack": {"proj/target"}, "permission": {"101"}},
	"POST /{org}/-/settings/teams/{team}/edit":    {"description": {"x"}},
	"POST /{org}/-/settings/teams/{team}/members": {"member": {"nobody"}, "action": {"remove"}},
}

// matrixVisitor is a row of the tables: a signed-in user, or nobody without a token.
type matrixVisitor struct {
	token   string
	stack   string
	prepare string // default permission of the organization
}

// TestPermissionMatrix makes the requests of each cell of the console's tables in docs/permissions.md.
func TestPermissionMatrix(t *testing.T) {
	m := newMatrix(t)
	visitors := m.visitors()
	known := map[string]bool{}
	for _, table := range matrixTables(t) {
		for who, cells := range table.Rows {
			known[who] = true
			v, ok := visitors[who]
			if !ok {
				t.Errorf("docs/permissions.md names %q, whom this test does not have", who)
				continue
			}
			m.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": permissionOf(v.prepare)}, nil)
			browser := m.Browser()
			if v.token != "" {
				browser = m.SignInWith(v.token)
			}
			for column, want := range cells {
				for _, route := range matrixRoutes[column] {
					if got := m.cell(browser, v, route); got != want {
						t.Errorf("%s, %s: %s: %s, want %s", who, column, route, got, want)
					}
					if route == "POST /-/logout" && v.token != "" {
						browser = m.SignInWith(v.token)
					}
				}
			}
		}
	}
	for who := range visitors {
		if !known[who] {
			t.Errorf("docs/permissions.md does not name %q", who)
		}
	}
}

// TestEveryRouteIsInTheMatrix compares the registered routes with those of the tables.
func TestEveryRouteIsInTheMatrix(t *testing.T) {
	var registered []string
	for _, r := range console.New(console.Deps{}).Routes() {
		registered = append(registered, r.Method+" "+strings.Replace(r.Pattern, stackPattern, "STACK", 1))
	}
	listed := map[string]int{}
	for _, routes := range matrixRoutes {
		for _, r := range routes {
			listed[r]++
			if !slices.Contains(registered, r) {
				t.Errorf("%s is in the tables, but not registered", r)
			}
		}
	}
	for _, r := range registered {
		if listed[r] != 1 {
			t.Errorf("%s is in %d columns of the tables, want 1: add it to matrixRoutes", r, listed[r])
		}
	}
}

// TestRecentSignIn uses a session older than 15 minutes for every route.
func TestRecentSignIn(t *testing.T) {
	m := newMatrix(t)
	v := matrixVisitor{token: m.Token, stack: "target"}
	browser := m.SignIn()
	m.AgeSessions(16 * time.Minute)
	for column, routes := range matrixRoutes {
		if column == "start" { // these sign in and out
			continue
		}
		for _, route := range routes {
			got := m.cell(browser, v, route)
			if want := slices.Contains(recentRoutes, route); (got == "again") != want {
				t.Errorf("%s with an old sign-in: %s; requires a recent one: %v", route, got, want)
			}
		}
	}
}

type matrix struct {
	t *testing.T
	*consoletest.Server
}

func newMatrix(t *testing.T) matrix {
	t.Helper()
	m := matrix{t, consoletest.New(t)}
	for _, name := range []string{"target", "created"} {
		m.API(http.MethodPost, "/api/stacks/acme/proj", map[string]any{"stackName": name}, nil)
	}
	m.API(http.MethodPost, "/api/esc/environments/acme", map[string]any{"project": "proj", "name": "target"}, nil)
	m.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]any{"name": "readers"}, nil)
	m.API(http.MethodPatch, "/api/orgs/acme/teams/readers", map[string]any{"addStackPermission": map[string]any{"projectName": "proj", "stackName": "target", "permission": 101}}, nil)
	return m
}

func permissionOf(name string) int {
	return map[string]int{"": 0, "none": 0, "read": 101, "write": 102, "admin": 103}[name]
}

func (m matrix) visitors() map[string]matrixVisitor {
	m.t.Helper()
	ids := identity.New(m.DB(), storetest.Log())
	root, err := ids.CreateUser(m.t.Context(), identity.NewUser{Login: "root", SiteAdmin: true})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.DB().Write(m.t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertOrganization(store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: time.Now()})
	}); err != nil {
		m.t.Fatal(err)
	}
	rival, err := ids.CreateUser(m.t.Context(), identity.NewUser{Login: "rival-admin", Org: "rival", Role: identity.RoleAdmin})
	if err != nil {
		m.t.Fatal(err)
	}
	guest, leader, reader, creator := m.AddUser("guest", identity.RoleCollaborator), m.AddUser("leader", "member"), m.AddUser("reader", "member"), m.AddUser("creator", "member")
	m.API(http.MethodPut, "/api/stacks/acme/proj/target/collaborators/guest", map[string]any{"permission": 101}, nil)
	m.API(http.MethodPost, "/api/stacks/acme/proj/created/ownership", map[string]any{"githubLogin": "creator"}, nil)
	// The team of the administrator has no permission on the stack.
	m.API(http.MethodPatch, "/api/orgs/acme/teams/readers", map[string]any{"memberAction": "add", "member": "reader"}, nil)
	m.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]any{"name": "led"}, nil)
	for _, action := range []string{"add", "promote"} {
		m.API(http.MethodPatch, "/api/orgs/acme/teams/led", map[string]any{"memberAction": action, "member": "leader"}, nil)
	}
	member := m.AddUser("ann", "member")
	on := func(token, prepare string) matrixVisitor { return matrixVisitor{token, "target", prepare} }
	return map[string]matrixVisitor{
		"not signed in":                                             on("", "admin"),
		"administrator of another organization":                     on(rival, "admin"),
		"stack collaborator, default write, without a permission":   on(m.AddUser("stranger", identity.RoleCollaborator), "write"),
		"stack collaborator, default write, with read on the stack": on(guest, "write"),
		"billing manager, default write":                            on(m.AddUser("bill", identity.RoleBillingManager), "write"),
		"member, default none":                                      on(member, "none"),
		"member, default read":                                      on(member, "read"),
		"member, default write":                                     on(member, "write"),
		"member, default admin":                                     on(member, "admin"),
		"member, default none, in a team with read":                 on(reader, "none"),
		"member, default none, who administers the team":            on(leader, "none"),
		"member, default none, who created the stack":               {creator, "created", "none"},
		"administrator":                                             on(m.AddUser("boss", "admin"), "none"),
		"site administrator, not a member":                          on(root, "none"),
	}
}

// cell makes a request and returns what the tables contain for its result.
func (m matrix) cell(b *consoletest.Browser, v matrixVisitor, route string) string {
	m.t.Helper()
	team := "none"
	switch {
	case slices.Contains(matrixRoutes["own team"], route):
		team = "led"
	case slices.Contains(matrixRoutes["team's stacks"], route):
		team = "readers"
	}
	method, path, _ := strings.Cut(strings.Replace(route, "STACK", stackPattern, 1), " ")
	path = strings.NewReplacer(
		"{org}", "acme", "{project}", "proj", "{stack}", v.stack, "{team}", team, "{version}", "1", "{step}", "0", "{update}", "none", "{urn}", "none",
		"{pool}", "none", "{token}", "none", "{agent}", "none", "{session}", "none", "{user}", "none", "{issuer}", "none", "{hook}", "none",
		"{schedule}", "none", "{action}", "none", "{provider}", "none", "{passkey}", "none", "{integration}", "none",
		"{pack}", "none", "{group}", "none", "{issue}", "none", "{exception}", "none", "{invitation}", "none", "{deleted}", "none", "{organization}", "acme", "{environment}", "target",
	).Replace(path)
	var form url.Values
	if method == http.MethodPost {
		if form = matrixForms[route]; form == nil {
			form = url.Values{}
		}
	}
	p := b.Do(b.Request(method, path, form))
	says := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(p.Body, text) })
	}
	failed := p.Status == http.StatusUnprocessableEntity // a form is shown again with an error
	switch signedOut := p.Status == http.StatusSeeOther && strings.HasPrefix(p.Location(), "/-/login"); {
	case p.Status == http.StatusServiceUnavailable && slices.Contains(matrixRoutes["start"], route):
		return "✓" // too many failed attempts, or a way to sign in that is off
	case p.Status == http.StatusServiceUnavailable && says("workflow-esc"):
		return "✓" // the definition was about to be evaluated, for which this server has no program
	case p.Status >= http.StatusInternalServerError:
		return fmt.Sprintf("status %d: %s", p.Status, p.Text())
	case signedOut && route == "POST /-/logout":
		return "✓"
	case signedOut && v.token == "", p.Status == http.StatusUnauthorized:
		return "401"
	case signedOut, p.Status == http.StatusForbidden && says("sign-in in the last 15 minutes"):
		return "again"
	case (p.Status == http.StatusNotFound || failed) && says("you may not see it"):
		return "404"
	case p.Status == http.StatusForbidden, failed && says("Only administrators", "may not do this"):
		return "403"
	default:
		return "✓"
	}
}

// matrixTables reads the console's tables of docs/permissions.md.
func matrixTables(t *testing.T) []rights.Table {
	t.Helper()
	tables := rights.Tables(t, filepath.Join("..", "..", "..", "docs", "permissions.md"), "in the console, ")
	found := map[string]bool{}
	for _, table := range tables {
		for _, c := range table.Columns {
			if found[c] = true; matrixRoutes[c] == nil {
				t.Fatalf("docs/permissions.md has the column %q, for which this test has no routes", c)
			}
		}
	}
	for c := range matrixRoutes {
		if !found[c] {
			t.Errorf("docs/permissions.md has no column %q", c)
		}
	}
	return tables
}
