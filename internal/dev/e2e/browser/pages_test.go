package browser

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/console"
)

// hostile is a text that would break out of HTML, attributes and scripts. Every place that shows
// text of others must show it unchanged.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}`

// signIn signs a tab in with the administrator's token.
func signIn(tb *tab, token string) {
	tb.t.Helper()
	tb.open("/-/login")
	tb.fill("#token", token)
	tb.click("form[action='/-/login'] button")
	tb.wait("the browser is signed in", "document.querySelector('.me details')")
}

// world is a site with something on every page.
type world struct {
	*harness.Site
	stack *harness.Stack
	org   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{Site: harness.StartSite(t, "")}
	w.org = w.Server.Organization
	must.OK(t, w.MakePool(ctx))
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	w.stack = w.NewStack(ctx, t, "box", "a-stack-with-a-name-that-is-as-long-as-names-of-stacks-are-allowed-to-be-in-this-product-1234567890", "", nil)
	repo := w.Repo(ctx, t)
	w.stack.Finish(ctx, t, w.stack.Deploy(ctx, t, "update", repo.URL))
	w.stack.Finish(ctx, t, w.stack.Deploy(ctx, t, "update", repo.URL, "echo '"+strings.ReplaceAll(hostile, "'", "")+"'; exit 7"))
	must.OK(t, w.Server.Call(ctx, http.MethodPost, "/api/stacks/"+w.stack.Name+"/tags", map[string]string{"name": "note", "value": hostile}, nil))
	must.OK(t, w.Server.Call(ctx, http.MethodPost, "/api/stacks/"+w.stack.Name+"/deployments/pause", nil, nil))
	w.stack.Deploy(ctx, t, "preview", repo.URL)
	hook := map[string]any{
		"name": "chat", "displayName": hostile, "payloadUrl": "https://hooks.invalid/x", "format": "raw", "active": true,
		"organizationName": w.org, "projectName": "box", "stackName": strings.TrimPrefix(w.stack.Name, w.org+"/box/"),
	}
	must.OK(t, w.Server.Call(ctx, http.MethodPost, "/api/stacks/"+w.org+"/box", map[string]string{"stackName": "deleted"}, nil))
	must.OK(t, w.Server.Call(ctx, http.MethodDelete, "/api/stacks/"+w.org+"/box/deleted", nil, nil))
	for path, body := range map[string]any{
		"/api/stacks/" + w.org + "/box":          map[string]string{"stackName": "fresh"},
		"/api/stacks/" + w.stack.Name + "/hooks": hook,
		"/api/stacks/" + w.stack.Name + "/deployments/schedules": map[string]any{
			"scheduleCron": "*/15 * * * *", "request": map[string]any{"operation": "preview"},
		},
		"/api/stacks/" + w.stack.Name + "/deployments/drift/schedules": map[string]any{"scheduleCron": "0 3 * * *"},
		"/api/orgs/" + w.org + "/hooks":                                map[string]any{"name": "all", "displayName": hostile, "payloadUrl": "https://hooks.invalid/x", "format": "raw", "active": true, "organizationName": w.org},
		"/api/orgs/" + w.org + "/teams/pulumi":                         map[string]string{"name": "core", "displayName": hostile, "description": hostile},
		"/api/orgs/" + w.org + "/tokens":                               map[string]any{"name": hostile, "description": strings.Repeat("long", 50), "admin": true},
	} {
		must.OK(t, w.Server.Call(ctx, http.MethodPost, path, body, nil))
	}
	return w
}

// issuer registers an issuer of identity tokens with a policy, and returns its id.
func (w *world) issuer(t *testing.T) string {
	t.Helper()
	var issuer, set struct{ ID string }
	keys := map[string]any{"keys": []any{map[string]string{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "k", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}}
	body := map[string]any{"name": hostile, "url": "https://cluster.invalid/" + strings.Repeat("long", 20), "jwks": keys}
	err := w.Server.Call(t.Context(), http.MethodPost, "/api/orgs/"+w.org+"/oidc/issuers", body, &issuer)
	if err == nil {
		err = w.Server.Call(t.Context(), http.MethodGet, "/api/orgs/"+w.org+"/auth/policies/oidcissuers/"+issuer.ID, nil, &set)
	}
	if err == nil {
		policy := map[string]any{"decision": "allow", "tokenType": "runner", "runnerID": w.Pool.ID, "rules": map[string]string{"sub": hostile}}
		err = w.Server.Call(t.Context(), http.MethodPatch, "/api/orgs/"+w.org+"/auth/policies/"+set.ID, map[string]any{"policies": []any{policy}}, nil)
	}
	must.OK(t, err)
	return issuer.ID
}

// app adds an integration with an installed GitHub App, and returns its id.
func (w *world) app(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.OK(t, err)
	var made struct{ ID string }
	err = w.Server.Call(t.Context(), http.MethodPost, "/api/console/orgs/"+w.org+"/integrations/github-enterprise", map[string]any{
		"name": hostile, "baseUrl": "https://github.invalid", "owner": strings.Repeat("long", 20), "appId": "77", "installationId": "88", "webhookSecret": rand.Text() + rand.Text(),
		"privateKey": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	}, &made)
	must.OK(t, err)
	return made.ID
}

// agent returns the id of the pool's agent.
func (w *world) agent(t *testing.T) string {
	t.Helper()
	var pool struct {
		Agents []struct {
			ID string `json:"id"`
		} `json:"agents"`
	}
	must.OK(t, w.Server.Call(t.Context(), http.MethodGet, "/api/orgs/"+w.org+"/agent-pools/"+w.Pool.ID, nil, &pool))
	if len(pool.Agents) == 0 {
		t.Fatal("the pool has no agent")
	}
	return pool.Agents[0].ID
}

// invitation returns the path of the page of an invitation.
func (w *world) invitation(t *testing.T) string {
	t.Helper()
	var made struct {
		AcceptInviteURL string `json:"acceptInviteUrl"`
	}
	body := map[string]any{"role": "member", "email": hostile}
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, "/api/orgs/"+w.org+"/invites/link", body, &made))
	return must.Get(url.Parse(made.AcceptInviteURL))(t).RequestURI()
}

// urn returns the URN of the stack's root resource.
func (w *world) urn(ctx context.Context, t *testing.T) string {
	t.Helper()
	var state struct {
		Deployment struct {
			Resources []struct {
				URN string `json:"urn"`
			} `json:"resources"`
		} `json:"deployment"`
	}
	must.OK(t, w.Server.Call(ctx, http.MethodGet, "/api/stacks/"+w.stack.Name+"/export", nil, &state))
	if len(state.Deployment.Resources) == 0 {
		t.Fatal("the stack has no resource")
	}
	return state.Deployment.Resources[0].URN
}

// TestPages opens every page of the console, as an administrator, in both color schemes and on a
// phone. A route that this test does not know fails it.
func TestPages(t *testing.T) {
	w := newWorld(t)
	stack, fresh := "/"+w.stack.Name, "/"+w.org+"/box/fresh"
	forges := "/" + w.org + "/-/settings/integrations"
	forge := forges + "/" + w.integration(t)
	envs := environments(t, w.Site)
	env := envs + "/lab/" + longEnvironment
	pages := map[string][]string{
		"/-/login":              {"/-/login?next=/user/settings"},
		"/-/login/link":         {"/-/login/link?key=x", "/-/login/link"},
		"/user/settings":        {"/user/settings"},
		"/user/settings/tokens": {"/user/settings/tokens"},
		"/cli-login":            {"/cli-login?cliSessionPort=43210&cliSessionNonce=0123456789abcdef0123456789abcdef&cliSessionDescription=" + strings.ReplaceAll(hostile, " ", "%20")},
		"/welcome/cli":          {"/welcome/cli"},
		"/{org}":                {"/" + w.org},
		"/{org}/{project}":      {"/" + w.org + "/box", "/" + w.org + "/none"},
		"/{org}/-/stacks":       {"/" + w.org + "/-/stacks", "/" + w.org + "/-/stacks?q=nothing", "/" + w.org + "/-/stacks?fold=box"},
		"/{org}/-/deployments":  {"/" + w.org + "/-/deployments", "/" + w.org + "/-/deployments?status=bad", "/" + w.org + "/-/deployments?q=nothing", "/" + w.org + "/-/deployments?stack=box/none&initiator=git-push"},
		"/{org}/-/pools":        {"/" + w.org + "/-/pools"},
		"/{org}/-/pools/{pool}": {"/" + w.org + "/-/pools/" + w.Pool.ID, "/" + w.org + "/-/pools/" + w.Pool.ID + "?install=docker"},

		"/{org}/{project}/{stack}":                          {stack},
		"/{org}/{project}/{stack}/panel":                    {stack + "/panel", fresh + "/panel"},
		"/{org}/{project}/{stack}/runs":                     {stack + "/runs", stack + "/runs?kind=rename", fresh + "/runs"},
		"/{org}/{project}/{stack}/updates/{version}":        {stack + "/updates/1", stack + "/updates/1?all=1", stack + "/updates/1?view=diff", stack + "/updates/1?view=timeline", stack + "/updates/1?view=config", stack + "/updates/1?view=environment"},
		"/{org}/{project}/{stack}/changes":                  {stack + "/changes", stack + "/changes?show=all&same=1", stack + "/changes?columns=1", stack + "/changes?from=1&to=999"},
		"/{org}/{project}/{stack}/resources":                {stack + "/resources", stack + "/resources?view=tree&part=history", stack + "/resources?view=changed&q=nothing&urn=none", stack + "/resources?part=neighbours", fresh + "/resources"},
		"/{org}/{project}/{stack}/resources/{urn}":          {stack + "/resources/" + url.PathEscape(w.urn(t.Context(), t))},
		"/{org}/{project}/{stack}/drift":                    {stack + "/drift"},
		"/{org}/{project}/{stack}/settings":                 {stack + "/settings", fresh + "/settings"},
		"/{org}/{project}/{stack}/settings/triggers":        {stack + "/settings/triggers", fresh + "/settings/triggers"},
		"/{org}/{project}/{stack}/settings/schedules":       {stack + "/settings/schedules"},
		"/{org}/{project}/{stack}/settings/webhooks":        {stack + "/settings/webhooks"},
		"/{org}/{project}/{stack}/settings/webhooks/{hook}": {stack + "/settings/webhooks/chat"},
		"/{org}/{project}/{stack}/settings/access":          {stack + "/settings/access"},
		"/{org}/{project}/{stack}/settings/options":         {stack + "/settings/options"},
		"/{org}/-/pools/{pool}/agents/{agent}":              {"/" + w.org + "/-/pools/" + w.Pool.ID + "/agents/" + w.agent(t)},
		"/{org}/-/activity":                                 {"/" + w.org + "/-/activity", "/" + w.org + "/-/activity?part=access", "/" + w.org + "/-/activity?q=nothing"},
		"/{org}/-/activity/calendar":                        {"/" + w.org + "/-/activity/calendar", "/" + w.org + "/-/activity/calendar?q=nothing"},
		"/{org}/-/settings/audit":                           {"/" + w.org + "/-/settings/audit"},
		"/-/server/audit":                                   {"/-/server/audit"},
		"/{org}/{project}/{stack}/deployments/{version}":    {stack + "/deployments/1", stack + "/deployments/2", stack + "/deployments/3", stack + "/deployments/1?view=timeline", stack + "/deployments/2?view=settings", stack + "/deployments/1?view=changes"},
		"/{org}/{project}/{stack}/deploy":                   {stack + "/deploy", stack + "/deploy?operation=destroy", fresh + "/deploy"},
		"/-/server":                                         {"/-/server"},
		"/{org}/-/settings":                                 {"/" + w.org + "/-/settings"},
		"/{org}/-/settings/members":                         {"/" + w.org + "/-/settings/members", "/" + w.org + "/-/settings/members?q=nothing"},
		"/{org}/-/settings/teams":                           {"/" + w.org + "/-/settings/teams"},
		"/{org}/-/settings/teams/{team}":                    {"/" + w.org + "/-/settings/teams/core"},
		"/{org}/-/settings/tokens":                          {"/" + w.org + "/-/settings/tokens", "/" + w.org + "/-/settings/tokens?q=nothing"},
		"/{org}/-/settings/issuers":                         {"/" + w.org + "/-/settings/issuers"},
		"/{org}/-/settings/issuers/{issuer}":                {"/" + w.org + "/-/settings/issuers/" + w.issuer(t)},
		"/{org}/-/settings/webhooks":                        {"/" + w.org + "/-/settings/webhooks"},
		"/{org}/-/settings/webhooks/{hook}":                 {"/" + w.org + "/-/settings/webhooks/all"},
		"/{org}/-/settings/organization":                    {"/" + w.org + "/-/settings/organization"},
		"/-/server/organizations":                           {"/-/server/organizations"},
		"/-/server/organizations/{organization}":            {"/-/server/organizations/" + w.org},
		"/-/server/users":                                   {"/-/server/users"},
		"/-/server/users/{user}":                            {"/-/server/users/admin"},
		"/{org}/-/stacks/deleted":                           {"/" + w.org + "/-/stacks/deleted"},
		"/-/invitation":                                     {w.invitation(t)},

		"/{org}/-/policies":                                 {"/" + w.org + "/-/policies", "/" + w.org + "/-/policies?q=nothing"},
		"/{org}/-/policies/packs/{pack}":                    {"/" + w.org + "/-/policies/packs/" + w.pack(t)},
		"/{org}/-/policies/groups":                          {"/" + w.org + "/-/policies/groups"},
		"/{org}/-/policies/groups/{group}":                  {"/" + w.org + "/-/policies/groups/default-policy-group"},
		"/{org}/-/policies/groups/{group}/packs/{pack}":     {"/" + w.org + "/-/policies/groups/default-policy-group/packs/lab"},
		"/{org}/-/policies/issues":                          {"/" + w.org + "/-/policies/issues", "/" + w.org + "/-/policies/issues?q=nothing"},
		"/{org}/-/policies/issues/{issue}":                  {"/" + w.org + "/-/policies/issues/" + w.issue(t)},
		"/{org}/-/policies/compliance":                      {"/" + w.org + "/-/policies/compliance", "/" + w.org + "/-/policies/compliance?by=severity"},
		"/{org}/-/policies/evaluations":                     {"/" + w.org + "/-/policies/evaluations", "/" + w.org + "/-/policies/evaluations?state=failed"},
		"/{org}/{project}/{stack}/evaluations/{evaluation}": {w.evaluation(t, stack)},
		"/{org}/-/policies/exceptions":                      {"/" + w.org + "/-/policies/exceptions", "/" + w.org + "/-/policies/exceptions?state=removed"},
		"/{org}/-/policies/exceptions/new":                  {"/" + w.org + "/-/policies/exceptions/new?pack=lab&policy=no-public"},
		"/{org}/-/policies/exceptions/{exception}":          {"/" + w.org + "/-/policies/exceptions/" + w.exception(t)},

		"/{org}/-/environments":                                           {envs, envs + "?sort=changed", envs + "?q=nothing"},
		"/{org}/-/environments/new":                                       {envs + "/new"},
		"/{org}/-/environments/{project}/{environment}":                   {env, env + "?version=stable", envs + "/lab/base"},
		"/{org}/-/environments/{project}/{environment}/revisions":         {env + "/revisions"},
		"/{org}/-/environments/{project}/{environment}/revisions/compare": {env + "/revisions/compare?from=2&to=3"},
		"/{org}/-/environments/{project}/{environment}/edit":              {env + "/edit", envs + "/lab/base/edit"},
		"/{org}/-/environments/{project}/{environment}/values":            {env + "/values", envs + "/lab/base/values?version=1"},
		"/{org}/-/environments/{project}/{environment}/users":             {env + "/users", envs + "/lab/base/users"},
		"/{org}/-/environments/{project}/{environment}/settings":          {env + "/settings"},

		"/{org}/-/settings/integrations":                            {forges},
		"/{org}/-/settings/integrations/new":                        {forges + "/new?kind=github-app", forges + "/new?kind=git"},
		"/{org}/-/settings/integrations/{integration}":              {forge},
		"/{org}/-/settings/integrations/{integration}/events":       {forge + "/events"},
		"/{org}/-/settings/integrations/{integration}/repositories": {forge + "/repositories"},

		"/{org}/-/settings/integrations/github-app":                    {forges + "/github-app"},
		"/{org}/-/settings/integrations/github-app/created":            {forges + "/github-app/created"},
		"/{org}/-/settings/integrations/github-app/apps/{integration}": {forges + "/github-app/apps/" + w.app(t)},
	}
	// These routes are no pages, or only a restored server has them.
	other := []string{
		"/", "/{org}/{project}/{stack}/git", "/{org}/{project}/{stack}/previews/{update}", "/{org}/{project}/{stack}/resource", "/{org}/-/settings/integrations/github-app/installed",
		"/-/login/with/{provider}", "/-/login/with/{provider}/return", "/user/settings/connect/{provider}", "/{org}/-/restore",
	}
	var all []string
	for _, route := range console.New(console.Deps{}).Routes() {
		if route.Method != http.MethodGet || slices.Contains(other, route.Pattern) || route.Raw {
			continue
		}
		if len(pages[route.Pattern]) == 0 {
			t.Errorf("the test opens no page of the route %s", route.Pattern)
		}
		all = append(all, pages[route.Pattern]...)
	}
	w.inTabs(t, all, func(tb *tab, path string) { tb.visit(path) })
	tb := newTab(t, w.Server.URL)
	signIn(tb, w.Server.Token)
	tb.ignore("404")
	tb.visit("/" + w.org + "/box/nothing")
}

// inTabs does something with each path, in as many tabs at the same time as the machine has cores.
func (w *world) inTabs(t *testing.T, paths []string, do func(tb *tab, path string)) {
	t.Helper()
	queue := make(chan string, len(paths))
	for _, path := range paths {
		queue <- path
	}
	close(queue)
	t.Run("tabs", func(t *testing.T) {
		for n := range min(runtime.GOMAXPROCS(0), maxTabs) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				tb := newTab(t, w.Server.URL)
				tb.name = "TestPages"
				signIn(tb, w.Server.Token)
				for path := range queue {
					do(tb, path)
				}
			})
		}
	})
}

// maxTabs bounds the tabs of [world.inTabs].
const maxTabs = 4

// visit opens a page, and checks it in both color schemes and on a phone.
func (tb *tab) visit(path string) {
	tb.t.Helper()
	tb.scheme("light", desktop)
	tb.open(path)
	tb.wait(path+" is loaded", "document.readyState === 'complete' && document.querySelector('main')")
	name := strings.Trim(path, "/")
	tb.axe(path + " light")
	tb.broken(path)
	tb.shot(name + "-light")

	// The elements are the same in the other scheme, so that only their colors can be wrong.
	tb.scheme("dark", desktop)
	tb.rules(path+" dark", colorRules)
	tb.shot(name + "-dark")

	tb.scheme("light", narrow)
	tb.fits(path)
	tb.broken(path + " on a phone")
	tb.scheme("light", phone)
	tb.axe(path + " phone")
	tb.shot(name + "-light-phone")
	tb.check()
}

// broken fails the test for words that the page breaks, except long ones, for which a line of a phone is too short.
func (tb *tab) broken(where string) {
	tb.t.Helper()
	words := evaluate[[]string](tb, `(() => {
		const out = [], walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), range = document.createRange();
		while (walker.nextNode() && out.length < 5) {
			const node = walker.currentNode;
			if (!node.parentElement.checkVisibility() || node.parentElement.closest("pre, .log, textarea, .hide")) continue;
			for (const m of node.data.matchAll(/(?<!\S)(\*\/\d+|[\p{L}\p{N}*,.:;']{2,24})(?!\S)/gu)) {
				range.setStart(node, m.index);
				range.setEnd(node, m.index + m[0].length);
				if (new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size > 1) out.push(m[0] + " in " + node.parentElement.outerHTML.slice(0, 160));
			}
		}
		return out;
	})()`)
	for _, w := range words {
		tb.t.Errorf("%s breaks the word %s", where, w)
	}
}

// The widths of windows.
const desktop, phone, narrow = 1280, 390, 320

// widest names the elements that are wider than the window.
func widest(tb *tab) string {
	return evaluate[string](tb, `[...document.querySelectorAll("main *, header *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join("\n")`)
}
