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
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// environmentRoutes are the routes below an environment, by the permission that they need.
var environmentRoutes = map[string][]string{
	"read": {
		"GET ENV", "HEAD ENV", "GET ENV/metadata", "GET ENV/settings", "GET ENV/referrers", "GET ENV/tags", "GET ENV/tags/{tag}", "GET ENV/versions",
		"GET ENV/versions/tags", "GET ENV/versions/tags/{tag}", "GET ENV/versions/{version}", "GET ENV/versions/{version}/referrers", "GET ENV/versions/{version}/tags",
		"POST ENV/check", "POST ENV/versions/{version}/check", "GET ENV/grants",
	},
	"open":    {"POST ENV/open", "POST ENV/versions/{version}/open", "GET ENV/open/{session}"},
	"decrypt": {"GET ENV/decrypt", "GET ENV/versions/{version}/decrypt", "POST ENV/decrypt-secrets"},
	"copy":    {"POST ENV/clone"},
	"write": {
		"PATCH ENV", "POST ENV/tags", "PATCH ENV/tags/{tag}", "DELETE ENV/tags/{tag}", "POST ENV/versions/tags", "PATCH ENV/versions/tags/{tag}",
		"DELETE ENV/versions/tags/{tag}", "POST ENV/versions/{version}/retract", "POST ENV/encrypt-secrets",
		"POST ENV/drafts", "GET ENV/drafts/{draft}", "POST ENV/drafts/{draft}/open",
	},
	"administer": {
		"PATCH ENV/settings", "DELETE ENV", "POST ENV/grants", "DELETE ENV/grants/{grantID}", "GET ENV/hooks", "POST ENV/hooks", "GET ENV/hooks/{hook}", "PATCH ENV/hooks/{hook}", "DELETE ENV/hooks/{hook}",
		"POST ENV/hooks/{hook}/ping", "GET ENV/hooks/{hook}/deliveries", "POST ENV/hooks/{hook}/deliveries/{event}/redeliver",
	},
}

const environmentPattern = "/api/esc/environments/{org}/{project}/{environment}"

// allEnvironmentRoutes returns all of them.
func allEnvironmentRoutes() []string {
	var all []string
	for _, routes := range environmentRoutes {
		for _, route := range routes {
			all = append(all, strings.Replace(route, "ENV", environmentPattern, 1))
		}
	}
	return all
}

// environment creates an environment of acme, and returns its path.
func (f *fixture) environment(name string) string {
	f.t.Helper()
	f.do("POST", "/api/esc/environments/acme", map[string]any{"project": "app", "name": name}).want(200, nil)
	return "/api/esc/environments/acme/app/" + name
}

// header sends a header.
func header(name, value string) func(*call) {
	return func(c *call) { c.Header = map[string]string{name: value} }
}

// TestEnvironments makes the calls of pulumi env.
func TestEnvironments(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		env := f.environment("prod")
		f.do("POST", "/api/esc/environments/acme", map[string]any{"project": "app", "name": "prod"}).want(409, nil)
		f.do("POST", "/api/esc/environments/acme", map[string]any{"name": "legacy"}).want(200, nil)
		f.do("GET", "/api/esc/environments/acme/default/legacy", nil).want(200, nil)
		first := f.do("GET", env, nil).want(200, nil)
		if got := first.Header.Get("Pulumi-ESC-Revision"); got != "1" || len(first.Body) != 0 {
			t.Errorf("a new environment has revision %s and the definition %q", got, first.Body)
		}
		tag := first.Header.Get("ETag")
		patch := func(text string, options ...func(*call)) answer {
			c := call{Method: "PATCH", Path: env, Body: text, Auth: "token " + f.admin}
			for _, o := range options {
				o(&c)
			}
			return f.send(c)
		}
		made := patch("values:\n  a: {fn::secret: planted}\n", header("ETag", tag)).want(200, nil) // 3.255
		if made.Header.Get("Pulumi-ESC-Revision") != "2" || made.Header.Get("ETag") == tag {
			t.Errorf("the headers are %v", made.Header)
		}
		patch("values: {}\n", header("ETag", tag)).want(409, nil)
		patch("values: {}\n", header("If-Match", tag)).want(409, nil)
		patch("values: {b: UNUSUAL}\n", header("If-Match", made.Header.Get("ETag"))).want(200, nil).says(`{"diagnostics":[{"summary":"unusual word","severity":"warning"}]}`) // 3.276
		patch("values: BROKEN\n").want(400, nil).says(`"diagnostics":[{"range":{"environment":"prod","begin":{"line":1,"column":1,"byte":0},"end":{"line":1,"column":7,"byte":6}},"summary":"unknown word BROKEN"}]`).says(`"code":400`)
		patch("a: \x00").want(400, nil)
		f.do("HEAD", env, nil).want(200, nil)
		f.do("GET", env+"/versions/2", nil).want(200, nil).says("ciphertext")
		f.do("GET", env+"/versions/2/decrypt", nil).want(200, nil).says("fn::secret: planted")
		f.do("GET", env+"/decrypt", nil).want(200, nil).says("UNUSUAL")

		f.do("POST", env+"/versions/tags", map[string]any{"name": "stable", "revision": 2}).want(204, nil)
		f.do("POST", env+"/versions/tags", map[string]any{"name": "stable"}).want(409, nil)
		f.do("PATCH", env+"/versions/tags/other", map[string]any{"revision": 2}).want(404, nil)
		f.do("GET", env+"/versions/tags/stable", nil).want(200, nil).says(`"revision":2`).says(`"editorLogin":"admin"`)
		f.do("GET", env+"/versions/tags/latest", nil).want(200, nil).says(`"revision":3`)
		f.do("GET", env+"/versions/tags?after=&count=500", nil).want(200, nil).says(`"name":"latest"`).says(`"name":"stable"`).says(`"nextToken":""`)
		f.do("GET", env+"/versions/2/tags", nil).want(200, nil).says(`"name":"stable"`)
		f.do("POST", env+"/versions/3/retract", map[string]any{}).want(400, nil)
		f.do("POST", env+"/versions/stable/retract", map[string]any{"replacement": 3, "reason": "leaked"}).want(204, nil)
		f.do("GET", env+"/versions/stable", nil).want(200, nil).says("UNUSUAL")
		f.do("GET", env+"/versions?before=0&count=500", nil).want(200, nil).says(`"tags":["latest","stable"]`).says(`"retracted":{"replacement":3,`).says(`"reason":"leaked"`)
		if got := string(f.do("GET", env+"/versions?before=1", nil).want(200, nil).Body); strings.TrimSpace(got) != "[]" {
			t.Errorf("the revisions before the first are %s", got)
		}
		f.do("GET", env+"/versions?count=501", nil).want(400, nil)
		f.do("PATCH", env+"/versions/tags/stable", map[string]any{"revision": 1}).want(204, nil)
		f.do("DELETE", env+"/versions/tags/stable", nil).want(204, nil)
		f.do("DELETE", env+"/versions/tags/stable", nil).want(404, nil)

		f.do("POST", env+"/tags", map[string]any{"name": "team", "value": "core"}).want(200, nil).says(`"value":"core"`)
		f.do("POST", env+"/tags", map[string]any{"name": "team", "value": "core"}).want(409, nil)
		f.do("PATCH", env+"/tags/team", map[string]any{"currentTag": map[string]string{"value": "other"}, "newTag": map[string]string{"value": "web"}}).want(409, nil)
		f.do("PATCH", env+"/tags/team", map[string]any{"currentTag": map[string]string{"value": "core"}, "newTag": map[string]string{"name": "owner", "value": "web"}}).want(200, nil)
		f.do("GET", env+"/tags/team", nil).want(404, nil)
		f.do("GET", env+"/tags/owner", nil).want(200, nil).says(`"value":"web"`)
		f.do("GET", env+"/tags", nil).want(200, nil).says(`"owner":{"name":"owner"`).says(`"nextToken":"0"`)
		f.do("GET", "/api/esc/environments/acme/tags", nil).want(200, nil).says(`{"owner":["web"]}`)

		f.do("POST", env+"/clone", map[string]any{"name": "copy", "preserveEnvironmentTags": true, "version": 2}).want(204, nil)
		f.do("GET", "/api/esc/environments/acme/app/copy/tags/owner", nil).want(200, nil)
		patch("- app/copy\n").want(200, nil)
		f.do("GET", "/api/esc/environments/acme/app/copy/referrers", nil).want(200, nil).says(`{"latest":[{"environment":{"project":"app","name":"prod","revision":4}}]}`)
		f.do("GET", "/api/esc/environments/acme/app/copy/versions/latest/referrers", nil).want(200, nil).says(`"name":"prod"`)
		f.do("GET", env+"/metadata", nil).want(200, nil).says(`"githubLogin":"admin"`)
		page := struct {
			Environments []struct {
				Name string
				Tags map[string]string
			}
			NextToken string
		}{}
		var names []string
		for next := ""; ; {
			page.NextToken = ""
			f.do("GET", "/api/esc/environments?maxResults=2&includeReferrerMetadata=true&continuationToken="+next, nil).want(200, &page)
			for _, e := range page.Environments {
				names = append(names, e.Name)
			}
			if next = page.NextToken; next == "" {
				break
			}
		}
		if want := []string{"copy", "prod", "legacy"}; !slices.Equal(names, want) {
			t.Errorf("listed %q, want %q", names, want)
		}
		f.do("GET", "/api/esc/environments/acme", nil).want(200, nil).says(`"referrerMetadata":{"environmentReferrerCount":0`)
		f.do("GET", "/api/esc/environments/none", nil).want(404, nil)
		f.do("GET", "/api/esc/environments?organization=acme", nil).want(200, nil)
		f.do("GET", "/api/esc/environments?continuationToken=eA", nil).want(400, nil)

		f.do("PATCH", env+"/settings", map[string]any{"deletionProtected": true}).want(200, nil)
		f.do("GET", env+"/settings", nil).want(200, nil).says(`{"deletionProtected":true}`)
		f.do("DELETE", env, nil).want(409, nil)
		f.do("PATCH", env+"/settings", map[string]any{"deletionProtected": false}).want(200, nil)
		f.do("DELETE", env, nil).want(200, nil)
		f.do("GET", env, nil).want(404, nil)
	})
}

// TestEnvironmentsOfTwoOrganizations uses environments of the same name in two organizations.
func TestEnvironmentsOfTwoOrganizations(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		rival := store.Organization{ID: identity.NewID(), Name: "rival", CreatedAt: time.Now(), EnvironmentPermission: store.AdminEnvironment}
		if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(rival) }); err != nil {
			t.Fatal(err)
		}
		auth := map[string]string{"acme": "token " + f.admin, "rival": f.person("eve", "rival", "admin")}
		const env = "/api/esc/environments/%s/app/prod"
		send := func(as, method, path string, body any) answer {
			return f.send(call{Method: method, Path: path, Body: body, Auth: auth[as]})
		}
		stored := map[string]string{}
		for org := range auth {
			send(org, "POST", "/api/esc/environments/"+org, map[string]any{"project": "app", "name": "prod"}).want(200, nil)
			send(org, "PATCH", fmt.Sprintf(env, org), "password: {fn::secret: of-"+org+"}\n").want(200, nil)
			stored[org] = string(send(org, "GET", fmt.Sprintf(env, org), nil).want(200, nil).Body)
			send(org, "GET", fmt.Sprintf(env, org)+"/decrypt", nil).want(200, nil).says("of-" + org)
		}
		for org, other := range map[string]string{"acme": "rival", "rival": "acme"} {
			for _, route := range allEnvironmentRoutes() {
				method, path, _ := strings.Cut(strings.NewReplacer("{org}", other, "{project}", "app", "{environment}", "prod", "{version}", "1", "{tag}", "latest", "{grantID}", "none").Replace(route), " ")
				if a := send(org, method, path, map[string]any{}); a.Status != 404 || strings.Contains(string(a.Body), "fn::") {
					t.Errorf("%s %s by %s: status %d: %s", method, path, org, a.Status, a.Body)
				}
			}
			send(org, "GET", "/api/esc/environments/"+other, nil).want(404, nil)
			send(org, "POST", "/api/esc/environments/"+other, map[string]any{"project": "app", "name": "mine"}).want(404, nil)
			if list := string(send(org, "GET", "/api/esc/environments", nil).want(200, nil).Body); strings.Contains(list, `"`+other+`"`) {
				t.Errorf("the list of %s contains environments of %s: %s", org, other, list)
			}
			send(org, "PATCH", fmt.Sprintf(env, org), stored[other]).want(200, nil) // the ciphertext of the other organization
			if a := send(org, "GET", fmt.Sprintf(env, org)+"/decrypt", nil); a.Status != 400 || strings.Contains(string(a.Body), "of-"+other) {
				t.Errorf("decrypting a ciphertext of %s: status %d: %s", other, a.Status, a.Body)
			}
			send(org, "GET", fmt.Sprintf(env, org)+"/versions/2/decrypt", nil).want(200, nil).says("of-" + org)
		}
	})
}

// TestEnvironmentMatrix makes the calls of each cell of the table about environments in docs/permissions.md.
func TestEnvironmentMatrix(t *testing.T) {
	f := newFixture(t, options{})
	f.stack("dev")
	org, _, stack := f.ids("dev")
	if err := f.db.Write(t.Context(), scope.Stack(org, stack), func(tx *store.Tx) error {
		return tx.InsertDeployment(store.Deployment{ID: "d", OrgID: org, StackID: stack, Project: "proj", Stack: "dev", Version: 1, Operation: "update", Configuration: "{}", CreatedAt: tx.Now(), Trust: store.TrustOwn})
	}); err != nil {
		t.Fatal(err)
	}
	env := f.environment("prod")
	lent := f.environment("lent")
	f.do("PATCH", lent+"/settings", map[string]any{"deletionProtected": true}).want(200, nil)
	f.do("POST", lent+"/grants", map[string]any{"stack": "proj/dev"}).want(201, nil)
	f.do("PATCH", env+"/settings", map[string]any{"deletionProtected": true}).want(200, nil) // so that it stays
	permit := func(permission string) func() {
		return func() {
			f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": permission}).want(200, nil)
		}
	}
	ann := f.person("ann", "acme", "member")
	creator := f.person("creator", "acme", "member")
	f.send(call{Method: "POST", Path: "/api/esc/environments/acme", Body: map[string]any{"project": "app", "name": "created"}, Auth: creator}).want(200, nil)
	f.send(call{Method: "PATCH", Path: "/api/esc/environments/acme/app/created/settings", Body: map[string]any{"deletionProtected": true}, Auth: creator}).want(200, nil)
	team := func(name, permission string, members ...string) {
		f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": name}).want(201, nil)
		for _, m := range members {
			f.do("PATCH", "/api/orgs/acme/teams/"+name, map[string]any{"memberAction": "add", "member": m}).want(204, nil)
		}
		if permission != "" {
			f.do("PATCH", "/api/orgs/acme/teams/"+name, map[string]any{"addEnvironmentPermission": map[string]any{"projectName": "app", "envName": "prod", "permission": permission}}).want(204, nil)
		}
	}
	writer, leader, guest := f.person("writer", "acme", "member"), f.person("leader", "acme", "member"), f.person("guest", "acme", identity.RoleCollaborator)
	removed := f.person("removed", "acme", "admin")
	team("openers", "open", "guest", "removed")
	team("writers", "write", "writer")
	team("leaders", "admin", "leader")
	team("idlers", "")
	f.do("DELETE", "/api/orgs/acme/members/removed", nil).want(204, nil)
	root, err := f.identity.CreateUser(t.Context(), identity.NewUser{Login: "root", SiteAdmin: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertOrganization(store.Organization{ID: "rival", Name: "rival"})
	}); err != nil {
		t.Fatal(err)
	}
	job := func(login string, s identity.Scope) string {
		var user string
		if login != "" {
			if err := f.db.Read(t.Context(), func(tx *store.Tx) error {
				u, err := tx.UserByLogin(login)
				user = u.ID
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		return "token " + f.issue(store.Token{Kind: store.JobToken, OrgID: org, UserID: user, StackID: stack, JobID: "j", DeploymentID: "d", Scope: s.String()})
	}
	evaluation := func() string {
		return "token " + f.issue(store.Token{Kind: store.JobToken, OrgID: org, StackID: stack, JobID: "e", Scope: identity.EvaluationScope(stack).String()})
	}
	opens := identity.Scope{identity.Environments: identity.Outputs}
	robot := "token " + f.token("/api/orgs/acme/tokens", map[string]any{"name": "robot"})
	teamToken := func(name string) string {
		return "token " + f.token("/api/orgs/acme/teams/"+name+"/tokens", map[string]any{"name": "ci"})
	}
	var pool struct{ TokenValue string }
	f.do("POST", "/api/orgs/acme/agent-pools", map[string]any{"name": "pool"}).want(200, &pool)
	type row struct {
		name, auth string
		prepare    func()
	}
	callers := map[string]row{
		"no token":                                             {"prod", "none", permit("admin")},
		"administrator of another organization":                {"prod", f.person("eve", "rival", "admin"), permit("admin")},
		"site administrator, not a member":                     {"prod", "token " + root, permit("admin")},
		"removed member":                                       {"prod", removed, permit("admin")},
		"administrator":                                        {"prod", "token " + f.admin, permit("none")},
		"member, default none":                                 {"prod", ann, permit("none")},
		"member, default read":                                 {"prod", ann, permit("read")},
		"member, default open":                                 {"prod", ann, permit("open")},
		"member, default write":                                {"prod", ann, permit("write")},
		"member, default admin":                                {"prod", ann, permit("admin")},
		"member, default none, in a team with write":           {"prod", writer, permit("none")},
		"member, default none, in a team with admin":           {"prod", leader, permit("none")},
		"member, default none, who created the environment":    {"created", creator, permit("none")},
		"billing manager, default admin":                       {"prod", f.person("bill", "acme", identity.RoleBillingManager), permit("admin")},
		"stack collaborator, default admin":                    {"prod", f.person("stranger", "acme", identity.RoleCollaborator), permit("admin")},
		"stack collaborator, in a team with open":              {"prod", guest, permit("none")},
		"organization token, default none":                     {"prod", robot, permit("none")},
		"organization token, default write":                    {"prod", robot, permit("write")},
		"organization token with admin":                        {"prod", "token " + f.token("/api/orgs/acme/tokens", map[string]any{"name": "boss", "admin": true}), permit("none")},
		"team token, default admin, team with open":            {"prod", teamToken("openers"), permit("admin")},
		"team token, default admin, team without a permission": {"prod", teamToken("idlers"), permit("admin")},
		"pool token":                                           {"prod", "token " + pool.TokenValue, permit("admin")},
		"job token, requested by a member who may open it":     {"prod", job("ann", opens), permit("open")},
		"job token, requested by its administrator":            {"prod", job("leader", opens), permit("none")},
		"job token, requested by a member who may not open it": {"prod", job("ann", opens), permit("none")},
		"job token, no requester":                              {"prod", job("", opens), permit("admin")},
		"job token, no requester, with a grant":                {"lent", job("", nil), permit("none")},
		"token of a policy evaluation":                         {"lent", evaluation(), permit("admin")},
	}
	calls := map[string][]string{"names": {"GET /api/esc/environments"}}
	for column, routes := range environmentRoutes {
		calls[column] = slices.Clone(routes)
	}
	tables := rights.Tables(t, filepath.Join("..", "..", "..", "docs", "permissions.md"), "who, on an environment")
	if len(tables) != 1 {
		t.Fatalf("docs/permissions.md has %d tables about environments, want 1", len(tables))
	}
	for _, column := range tables[0].Columns {
		if calls[column] == nil {
			t.Errorf("docs/permissions.md has the column %q, for which this test has no calls", column)
		}
	}
	for who, cells := range tables[0].Rows {
		c, ok := callers[who]
		if !ok {
			t.Errorf("docs/permissions.md names the caller %q, which this test does not have", who)
			continue
		}
		delete(callers, who)
		c.prepare()
		for column, routes := range calls {
			for _, route := range routes {
				method, path, _ := strings.Cut(strings.NewReplacer("ENV", "/api/esc/environments/acme/app/"+c.name, "{version}", "1", "{tag}", "latest", "{grantID}", "none").Replace(route), " ")
				a := f.send(call{Method: method, Path: path, Body: map[string]any{}, Auth: c.auth})
				got := "✓"
				switch {
				case method == "HEAD" && a.Status == 404, a.Status == 404 && strings.Contains(string(a.Body), "you may not see it"),
					column == "names" && a.Status == 200 && !strings.Contains(string(a.Body), `"name":"`+c.name+`"`):
					got = "404"
				case a.Status == 503 && strings.Contains(string(a.Body), "workflow-esc"): // it was about to be evaluated
				case a.Status == 401, a.Status == 403, a.Status >= 500:
					got = fmt.Sprint(a.Status)
				}
				if got != cells[column] {
					t.Errorf("%s, %s: %s: %s, want %s: %.200s", who, column, route, got, cells[column], a.Body)
				}
			}
		}
	}
	for who := range callers {
		t.Errorf("docs/permissions.md does not name the caller %q", who)
	}
}

// TestTeamsOnEnvironments grants permissions on environments, and removes them.
func TestTeamsOnEnvironments(t *testing.T) {
	f := newFixture(t, options{})
	f.environment("prod")
	f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
	ann := f.person("ann", "acme", "member")
	const team = "/api/orgs/acme/teams/core"
	grant := func(permission string) map[string]any {
		return map[string]any{"projectName": "app", "envName": "prod", "permission": permission}
	}
	f.send(call{Method: "PATCH", Path: team, Body: map[string]any{"addEnvironmentPermission": grant("open")}, Auth: ann}).want(403, nil)
	f.do("PATCH", team, map[string]any{"addEnvironmentPermission": grant("owner")}).want(400, nil)
	f.do("PATCH", team, map[string]any{"addEnvironmentPermission": map[string]any{"projectName": "app", "envName": "none", "permission": "open"}}).want(404, nil)
	f.do("PATCH", team, map[string]any{"addEnvironmentPermission": grant("open")}).want(204, nil)
	f.do("GET", team, nil).want(200, nil).says(`"environments":[{"projectName":"app","envName":"prod","permission":"open"}]`)
	f.do("PATCH", team, map[string]any{"editEnvironmentPermission": grant("write")}).want(204, nil)
	f.do("GET", "/api/orgs/acme/teams", nil).want(200, nil).says(`"permission":"write"`)
	f.do("PATCH", team, map[string]any{"removeEnvironment": map[string]any{"projectName": "app", "envName": "prod"}}).want(204, nil)
	f.do("GET", team, nil).want(200, nil).says(`"environments":[]`)
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "all"}).want(400, nil)
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "read"}).want(200, nil).says(`"defaultEnvironmentPermission":"read"`).says(`"environmentCount":1`)
}

func (a *auditor) changeEnvironments() {
	const org, one = "/api/esc/environments/acme", "/api/esc/environments/acme/app/audited"
	a.change("POST", org, map[string]any{"project": "app", "name": "audited"}, nil)
	a.change("PATCH", one, "a: {fn::secret: planted}\n", nil)
	a.change("POST", one+"/clone", map[string]any{"name": "copy", "preserveHistory": true, "preserveEnvironmentTags": true}, nil)
	a.change("POST", one+"/tags", map[string]any{"name": "team", "value": "core"}, nil)
	a.change("PATCH", one+"/tags/team", map[string]any{"currentTag": map[string]string{"value": "core"}, "newTag": map[string]string{"value": "web"}}, nil)
	a.change("DELETE", one+"/tags/team", nil, nil)
	a.change("POST", one+"/versions/tags", map[string]any{"name": "stable"}, nil)
	a.change("PATCH", one+"/versions/tags/stable", map[string]any{"revision": 1}, nil)
	a.change("DELETE", one+"/versions/tags/stable", nil, nil)
	a.change("POST", one+"/versions/1/retract", map[string]any{"replacement": 2}, nil)
	var granted struct{ ID string }
	a.change("POST", one+"/grants", map[string]any{"project": "web"}, &granted)
	a.change("DELETE", one+"/grants/"+granted.ID, nil, nil)
	a.change("POST", one+"/hooks", map[string]any{"name": "chat", "displayName": "chat", "payloadUrl": "https://127.0.0.1:1/x", "secret": "planted"}, nil)
	a.change("PATCH", one+"/hooks/chat", map[string]any{"displayName": "talk", "active": false}, nil)
	a.change("DELETE", one+"/hooks/chat", nil, nil)
	a.change("PATCH", one+"/settings", map[string]any{"deletionProtected": true}, nil)
	a.change("PATCH", one+"/settings", map[string]any{"deletionProtected": false}, nil)
	a.change("DELETE", one, nil, nil)
	a.change("PATCH", "/api/orgs/acme", map[string]any{"setDefaultEnvironmentPermission": "read"}, nil)
}

// TestEnvironmentReadsAreAudited decrypts definitions. While the audit log refuses entries, no secret leaves the server.
func TestEnvironmentReadsAreAudited(t *testing.T) {
	f := newFixture(t, options{})
	env := f.environment("prod")
	f.send(call{Method: "PATCH", Path: env, Body: "a: {fn::secret: canary}\n", Auth: "token " + f.admin}).want(200, nil)
	for _, path := range []string{env + "/decrypt", env + "/versions/2/decrypt"} {
		allow := storetest.RefuseInserts(t, f.db, "audit_entries")
		if a := f.do("GET", path, nil); a.Status < 500 || strings.Contains(string(a.Body), "canary") {
			t.Errorf("%s: status %d although the audit log refuses entries: %s", path, a.Status, a.Body)
		}
		allow()
		f.do("GET", path, nil).want(200, nil).says("canary")
	}
	log := f.do("GET", "/api/orgs/acme/auditlogs", nil).want(200, nil).says(`"environment.decrypted"`).says("acme/app/prod")
	if strings.Contains(string(log.Body), "canary") {
		t.Errorf("the audit log contains the secret: %s", log.Body)
	}
}
