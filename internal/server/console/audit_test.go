package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/console"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// notAudited lists the actions without an entry in the audit log, with the reason.
var notAudited = map[string][]string{
	"nothing is stored": {"POST STACK/settings", "POST STACK/settings/triggers", "POST /{org}/-/settings/issuers/{issuer}/test", "POST /{org}/-/settings/integrations/github-app"},
	"it changes nothing; the list of evaluations says who requested it": {"POST /{org}/-/policies/evaluations", "POST STACK/evaluations/{evaluation}/cancel"},
	"only the user sees it":                 {"POST /user/settings/preferences"},
	"it is a label that only the user sees": {"POST /user/settings/passkeys/{passkey}/rename"},
	"it is a mark that only the user sees":  {"POST /{org}/-/stacks/star"},
	"it is a view that only the user sees":  {"POST /{org}/-/stacks/views", "POST /{org}/-/stacks/views/delete"},
	"a link is used up before the sign-in":  {"POST /-/login/link"},
	"only an authenticator can answer":      {"POST /-/login/passkey", "POST /user/settings/passkeys"},
}

// volatile are tables and columns that change in the background, or with every request.
var volatile = []string{
	"audit_entries", "server_beats", "sessions.seen_at", "tokens.last_used_at", "webhook_deliveries", "webhook_events", "organization_storage", "activity_visits",
}

// auditor sends forms and checks their entries in the audit log.
type auditor struct {
	t *testing.T
	*consoletest.Server
	browser *consoletest.Browser
	made    map[string]bool // by route
}

// change sends a form twice: first, while the audit log refuses entries, it must fail and change
// nothing. Then it must succeed and leave an entry.
func (a *auditor) change(route string, fields ...string) consoletest.Page {
	a.t.Helper()
	pattern, values, _ := strings.Cut(route, " ")
	path := strings.Replace(pattern, "STACK", "/acme/proj/dev", 1)
	path = strings.Replace(path, "{org}", "acme", 1)
	for value := range strings.FieldsSeq(values) { // in the order of the parameters
		from, to := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
		path = path[:from] + url.PathEscape(value) + path[to+1:]
	}
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	a.made["POST "+pattern] = true
	before := storetest.Contents(a.t, a.DB(), volatile...)
	allow := storetest.RefuseInserts(a.t, a.DB(), "audit_entries")
	refused := a.browser.Post(path, form)
	allow()
	if refused.Status < http.StatusInternalServerError {
		a.t.Errorf("%s: status %d although the audit log refuses entries: %s", pattern, refused.Status, plain(refused.Body))
	}
	if diff := cmp.Diff(before, storetest.Contents(a.t, a.DB(), volatile...)); diff != "" {
		a.t.Errorf("%s changed the database without an entry in the audit log:\n%s", pattern, diff)
	}
	entries := a.entries()
	p := a.browser.Post(path, form)
	if p.Status != http.StatusSeeOther && p.Status != http.StatusOK {
		a.t.Fatalf("%s: status %d: %s", pattern, p.Status, plain(p.Body))
	}
	if a.entries() == entries {
		a.t.Errorf("%s left no entry in the audit log", pattern)
	}
	return p
}

func (a *auditor) entries() int {
	a.t.Helper()
	return len(storetest.Contents(a.t, a.DB())["audit_entries"])
}

// last returns the last segment of the target of a redirect, or what a pattern finds in the page.
func last(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// TestEveryActionIsAudited sends a form to every action of the console. Each must leave an entry in
// the audit log in the transaction of the change, or be in the list of exceptions.
func TestEveryActionIsAudited(t *testing.T) {
	s := consoletest.New(t)
	a := &auditor{t, s, s.SignIn(), map[string]bool{}}
	a.changeSettings()
	a.changeIssuers()
	a.changePools()
	a.changeStack()
	a.changePolicies()
	a.changeEnvironments()
	a.changeInvitations()
	a.changeUsers()
	a.changeWhole()
	a.changeAccount()

	var known []string
	var exempt []string
	for _, routes := range notAudited {
		exempt = append(exempt, routes...)
	}
	for _, r := range console.New(console.Deps{}).Routes() {
		name := r.Method + " " + strings.Replace(r.Pattern, stackPattern, "STACK", 1)
		known = append(known, name)
		if r.Method == http.MethodPost && !a.made[name] && !slices.Contains(exempt, name) {
			t.Errorf("this test sends no form to %s: add one, or an exception with a reason", name)
		}
	}
	for _, name := range exempt {
		if !slices.Contains(known, name) || a.made[name] {
			t.Errorf("the exception %s is not needed", name)
		}
	}
}

func (a *auditor) changeSettings() {
	const base = "/{org}/-/settings"
	a.AddUser("ann", "")
	a.change("/{org}/-/deployments/pause")
	a.change("/{org}/-/deployments/resume")
	a.Restored()
	a.change("/{org}/-/restore/release")
	a.Restored()
	a.change("/-/server/restore/release")
	for i, action := range []string{"/{org}/-/restore/revoke-tokens", "/-/server/restore/revoke-tokens"} {
		must.OK(a.t, a.DB().Write(a.t.Context(), scope.Server(), func(tx *store.Tx) error {
			org, err := tx.OrganizationByName("acme")
			if err != nil {
				return err
			}
			return tx.InsertToken(store.Token{ID: fmt.Sprint("old", i), Hash: fmt.Append(nil, i), Kind: store.OrgToken, OrgID: org.ID, CreatedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
		}))
		a.change(action, "kind", "access")
	}
	a.change(base+"/permission", "permission", "101")
	a.change(base+"/project-reads", "on", "")
	a.change(base+"/pulumi-version", "version", "3.276")
	a.change(base+"/members", "login", "ann", "role", "member")
	a.change(base+"/members/{user}/role ann", "role", "billing-manager")
	a.change(base+"/teams", "name", "core")
	const team = base + "/teams/{team}"
	a.change(team+"/edit core", "description", "x")
	a.change(team+"/members core", "member", "ann", "action", "add")
	a.API(http.MethodPost, "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}, nil)
	a.change(team+"/stacks core", "stack", "proj/dev", "permission", "101")
	a.change(team+"/tokens core", "name", "ci")
	a.change(team + "/tokens/{token}/revoke core " + a.found("/acme/-/settings/teams/core", `tokens/([^/"]+)/revoke`))
	a.change(team + "/delete core")
	a.change(base + "/members/{user}/remove ann")
	a.change(base+"/tokens", "name", "ci")
	a.change(base + "/tokens/{token}/revoke " + a.found("/acme/-/settings/tokens", `tokens/([^/"]+)/revoke`))
	a.change(base+"/webhooks", "name", "chat", "url", "https://hooks.invalid/x", "format", "raw")
	a.change(base + "/webhooks/{hook}/{action} chat disable")

	const integrations = base + "/integrations"
	a.change(integrations, "kind", "github", "name", "forge", "owner", "acme", "token", "none")
	id := a.found("/acme/-/settings/integrations", `integrations/([0-9a-f-]{36})"`)
	a.change(integrations+"/{integration}/edit "+id, "name", "renamed", "owner", "acme")
	a.change(integrations + "/{integration}/rotate " + id)
	a.change(integrations + "/{integration}/delete " + id)
}

// found returns what a pattern finds in a page.
func (a *auditor) found(path, pattern string) string {
	a.t.Helper()
	p := a.browser.Get(path)
	m := regexp.MustCompile(pattern).FindStringSubmatch(p.Body)
	if m == nil {
		a.t.Fatalf("%s: status %d, without %s: %s", path, p.Status, pattern, plain(p.Body))
	}
	return m[1]
}

func (a *auditor) changeIssuers() {
	const base = "/{org}/-/settings/issuers"
	const keys = `{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`
	id := last(a.change(base, "name", "cluster", "url", "https://cluster.invalid", "keys", keys).Location())
	const issuer = base + "/{issuer}"
	a.change(issuer+"/edit "+id, "name", "renamed")
	for range 2 {
		a.change(issuer+"/policies "+id, "decision", "allow", "type", "organization", "rules", "sub = x")
	}
	a.change(issuer+"/policies/remove "+id, "version", "3", "index", "0")
	a.change(issuer + "/delete " + id)
	// The certificates of an issuer with static keys cannot be renewed. Package oidc makes both
	// changes with the same method.
	a.made["POST "+issuer+"/thumbprints"] = true
}

func (a *auditor) changePools() {
	const base = "/{org}/-/pools"
	a.change(base, "name", "eu")
	id := a.found("/acme/-/pools", `/acme/-/pools/([0-9a-f-]{36})"`)
	a.change(base + "/no-default")
	a.change(base + "/{pool}/default " + id)
	a.change(base+"/{pool}/edit "+id, "name", "us")
	var other struct{ ID string }
	a.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]string{"name": "other"}, &other)
	a.change(base+"/{pool}/move "+id, "to", other.ID)
	a.change(base+"/{pool}/tokens "+id, "description", "second")
	a.change(base + "/{pool}/tokens/{token}/revoke " + id + " " + a.found("/acme/-/pools/"+id, `tokens/([^/"]+)/revoke`))
	var pool struct{ TokenValue string }
	a.API(http.MethodPost, "/api/orgs/acme/agent-pools/"+id+"/tokens", map[string]string{"description": "agent"}, &pool)
	v := visitor{a.t, a.Server, a.browser, a.URL}
	v.pollWith(pool.TokenValue)
	a.change(base + "/{pool}/agents/{agent}/drain " + id + " a1")
	a.change(base + "/{pool}/agents/{agent}/resume " + id + " a1")
	a.change(base+"/{pool}/delete "+id, "confirm", "us")
}

func (a *auditor) changeStack() {
	a.AddUser("bob", "member")
	a.change("STACK/tags", "name", "a", "value", "1")
	a.change("STACK/settings/save", "version", "0", "patch", `{"operationContext":{"preRunCommands":["true"]}}`)
	a.change("STACK/deploy", "operation", "preview")
	a.change("STACK/deployments/{version}/cancel 1")
	a.change("STACK/deployments/{version}/again 1")
	a.change("/{org}/-/deployments/cancel", "id", a.deployment())
	a.change("STACK/deployments/{version}/again 1")
	a.change("STACK/deployments/{version}/force-cancel 3")
	a.change("STACK/settings/clear-cache")
	a.change("STACK/pause")
	a.change("STACK/resume")
	a.change("/{org}/-/stacks/bulk", "do", "preview", "stack", a.found("/acme/-/stacks", `name="stack" value="([^"]+)"`), "batch", "b", "confirmed", "1")
	a.change("STACK/settings/schedules", "kind", "drift", "cron", "0 3 * * *")
	a.change("STACK/settings/schedules/{schedule}/{action} " + a.found("/acme/proj/dev/settings/schedules", `schedules/([^/"]+)/pause`) + " pause")
	a.change("STACK/settings/webhooks", "name", "chat", "url", "https://hooks.invalid/x", "format", "raw")
	a.change("STACK/settings/webhooks/{hook}/{action} chat delete")
	a.change("STACK/settings/access", "user", "bob", "permission", "101")
	a.change("STACK/settings/access/grants", "kind", "project", "name", "web")
	// An approval needs a pull request of a git host. The API's test of its audit log makes one.
	a.made["POST STACK/settings/triggers/approve"] = true
	a.change("STACK/settings/options/rename", "name", "prod", "project", "proj")
	a.API(http.MethodPost, "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}, nil)
	a.change("/-/server/organizations", "name", "rival", "admin", identity.AdminLogin)
	a.change("STACK/settings/options/transfer", "to", "rival", "confirm", "proj/dev")
	a.API(http.MethodPost, "/api/stacks/acme/proj", map[string]string{"stackName": "dev"}, nil)
	const deleted = "/{org}/-/stacks/deleted"
	a.change("STACK/settings/options/delete", "confirm", "proj/dev")
	id := a.found("/acme/-/stacks/deleted", `deleted/([^/"]+)/restore`)
	a.change(deleted+"/{deleted}/restore "+id, "name", "dev")
	a.change("STACK/settings/options/delete", "confirm", "proj/dev")
	a.change(deleted + "/{deleted}/purge " + id)
}

// changeWhole changes organizations as a whole, and ends them.
func (a *auditor) changeWhole() {
	const one = "/-/server/organizations/{organization}"
	a.change(one+"/quotas rival", "storage", "50g", "deployments", "7")
	a.change(one+"/rename rival", "name", "rivals")
	a.change(one+"/delete rival", "confirm", "rivals")
	a.change("/-/server/organizations", "name", "heir", "admin", identity.AdminLogin)
	a.change("/{org}/-/settings/organization/rename", "name", "umbrella")
	a.change("/{org}/-/settings/organization/delete", "confirm", "umbrella")
}

// deployment returns the id of the newest deployment.
func (a *auditor) deployment() string {
	a.t.Helper()
	var list struct{ Deployments []struct{ ID string } }
	a.API(http.MethodGet, "/api/stacks/acme/proj/dev/deployments", nil, &list)
	if len(list.Deployments) == 0 {
		a.t.Fatal("the stack has no deployment")
	}
	return list.Deployments[0].ID
}

func (a *auditor) changeInvitations() {
	const base = "/{org}/-/settings/invitations"
	admin := a.browser
	invite := func() string {
		p := a.change(base, "role", "member", "days", "1")
		return regexp.MustCompile(`/-/invitation\?key=[\w-]+`).FindString(p.Body)
	}
	link := invite()
	guest := a.AddUser("guest", "")
	a.API(http.MethodPost, "/api/orgs", map[string]string{"name": "research"}, nil)
	a.API(http.MethodPost, "/api/orgs/research/members/guest", map[string]string{"role": "member"}, nil)
	a.browser = a.SignInWith(guest)
	a.browser.Get(link)
	field, seen := consoletest.SeenInvitation(link)
	a.change("/-/invitation/accept", field, seen)
	a.browser = admin
	link = invite()
	a.browser = a.Browser()
	a.browser.Get(link)
	field, seen = consoletest.SeenInvitation(link)
	a.change("/-/invitation/sign-up", "login", "newcomer", field, seen)
	a.browser = admin
	invite()
	a.change(base + "/{invitation}/revoke " + a.found("/acme/-/settings/members", `invitations/([^/"]+)/revoke`))
}

func (a *auditor) changeUsers() {
	const user = "/-/server/users/{user}"
	a.SignInWith(a.AddUser("leaver", "member"))
	a.change(user + "/end-sessions leaver")
	a.change(user + "/disable leaver")
	a.change(user + "/enable leaver")
	a.change(user+"/hand-over leaver", "to", "bob")
	a.change(user+"/delete leaver", "confirm", "leaver")
}

func (a *auditor) changeAccount() {
	a.change("/user/settings/tokens", "description", "laptop")
	a.change("/user/settings/tokens/{token}/revoke " + a.found("/user/settings/tokens", `tokens/([^/"]+)/revoke`))
	a.change("/cli-login", "cliSessionPort", "43210", "cliSessionNonce", strings.Repeat("0", 64), "cliSessionDescription", "x")
	a.SignIn()
	a.change("/user/settings/sessions/{session}/end " + a.found("/user/settings", `sessions/([^/"]+)/end`))
	a.browser = a.SignIn() // the ended session could be its own
	a.change("/user/settings/sessions/end")
	if err := a.DB().Write(a.t.Context(), scope.Server(), func(tx *store.Tx) error {
		u, err := tx.UserByLogin(identity.AdminLogin)
		if err != nil {
			return err
		}
		if err := tx.InsertIdentity(store.Identity{Issuer: "https://idp.invalid", Subject: "ada", UserID: u.ID, CreatedAt: tx.Now()}); err != nil {
			return err
		}
		return tx.InsertPasskey(store.Passkey{ID: "p1", Credential: []byte("c"), UserID: u.ID, Name: "laptop", PublicKey: []byte("k"), CreatedAt: tx.Now()})
	}); err != nil {
		a.t.Fatal(err)
	}
	a.change("/user/settings/identities/remove", "issuer", "https://idp.invalid", "subject", "ada")
	a.change("/user/settings/passkeys/{passkey}/remove p1")
	a.change("/-/login", "token", a.Token)
	a.change("/-/logout")
}
