package forges_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

const (
	list  = "/acme/-/settings/integrations"
	stack = "/acme/web/prod"
)

var (
	copied = regexp.MustCompile(`<copy-text class="cmd"><span tabindex="0">([^<]*)</span>`)
	linked = regexp.MustCompile(`href="` + list + `/([0-9a-f-]{36})"`)
	tags   = regexp.MustCompile(`<[^>]*>`)
)

// plain returns the text of a page.
func plain(p consoletest.Page) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(p.Body, " "))), " ")
}

func get(t *testing.T, b *consoletest.Browser, path string) consoletest.Page {
	t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, p.Status, plain(p))
	}
	return p
}

// TestUnpolledServer connects a git server without a credential: the server polls it only on request,
// and the pages say so.
func TestUnpolledServer(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	for _, events := range []string{"", "poll"} {
		form := url.Values{"kind": {"git"}, "name": {"git " + events}, "base": {"https://git.example.com/team"}, "repositories": {"app"}, "events": {events}}
		made := b.Post(list, form)
		id := linked.FindStringSubmatch(made.Body)
		if made.Status != http.StatusOK || id == nil {
			t.Fatalf("events %q: status %d: %s", events, made.Status, plain(made))
		}
		for _, page := range []consoletest.Page{made, get(t, b, list+"/"+id[1])} {
			if polled := page.Contains("A webhook is not necessary"); polled != (events == "poll") || page.Contains("does not poll this git server") == polled {
				t.Errorf("events %q: the page is %s", events, plain(page))
			}
		}
	}
}

// secrets are the values of the forms that no later page may contain.
var secrets = []string{"tok-hidden-1", "pass-hidden-2", strings.Repeat("hook-hidden-3", 4)}

// key is an SSH key that exists only for this test.
const key = `-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQyNTUxOQAAACDQ
-----END OPENSSH PRIVATE KEY-----`

// forms are complete forms of each kind.
var forms = map[string]url.Values{
	"github":       {"owner": {"acme"}, "token": {secrets[0]}},
	"gitlab":       {"owner": {"acme/infra"}, "project": {"42"}, "token": {secrets[0]}},
	"gitea":        {"base": {"https://git.example.com"}, "token": {secrets[0]}, "repositories": {"acme/web\nacme/api"}},
	"bitbucket":    {"owner": {"acme"}, "token": {secrets[0]}},
	"azure-devops": {"owner": {"acme"}, "project": {"web"}, "token": {secrets[0]}},
	"git":          {"base": {"https://git.example.com/team"}, "user": {"reader"}, "token": {secrets[1]}, "repositories": {"app"}, "events": {"poll"}},
}

// TestKinds connects each kind of git host by its form. No page but the answer contains the secret of
// the webhook, and none contains the credential.
func TestKinds(t *testing.T) {
	s := consoletest.New(t)
	b := s.SignIn()
	if p := get(t, b, list); !strings.Contains(plain(p), "connected to no git host") {
		t.Errorf("the empty list: %s", plain(p))
	}
	if p := b.Get(list + "/new?kind=sourceforge"); p.Status != http.StatusNotFound {
		t.Errorf("an unknown kind: status %d", p.Status)
	}
	for kind, form := range forms {
		page := get(t, b, list+"/new?kind="+kind)
		if !page.Contains(`name="name"`, `name="repositories"`) || page.Contains(`name="forks"`) != (kind != "git") {
			t.Errorf("%s: the form is %s", kind, plain(page))
		}
		for name := range form {
			missing := url.Values{"kind": {kind}}
			for other, values := range form {
				if other != name {
					missing[other] = values
				}
			}
			optional := kind == "git" && name != "base" || name == "repositories"
			if p := b.Post(list, missing); !optional && (p.Status != http.StatusUnprocessableEntity || !strings.Contains(plain(p), "is missing.")) {
				t.Errorf("%s without %s: status %d: %s", kind, name, p.Status, plain(p))
			}
		}
		form := url.Values{"kind": {kind}, "name": {"the " + kind}}
		maps.Copy(form, forms[kind])
		made := b.Post(list, form)
		shown := copied.FindAllStringSubmatch(made.Body, -1)
		if made.Status != http.StatusOK || len(shown) < 2 || !strings.HasPrefix(shown[0][1], s.URL+"/workflow/") || len(shown[1][1]) < 32 {
			t.Fatalf("%s: status %d: %s", kind, made.Status, plain(made))
		}
		secret := shown[1][1]
		all := linked.FindAllStringSubmatch(get(t, b, list).Body, -1)
		var one consoletest.Page
		for _, m := range all {
			if p := get(t, b, list+"/"+m[1]); p.Contains(shown[0][1], "the "+kind) {
				one = p
			}
		}
		if one.Body == "" {
			t.Fatalf("%s: no page of the list shows the integration", kind)
		}
		for _, hidden := range append(slices.Clone(secrets), secret) {
			if one.Contains(hidden) || hidden != secret && made.Contains(hidden) {
				t.Errorf("%s: a page shows the secret %s", kind, hidden)
			}
		}
	}
	app := url.Values{
		"kind": {"github-app"}, "name": {"app"}, "owner": {"acme"}, "app": {"1"}, "installation": {"2"}, "key": {"no key"}, "hook-secret": {secrets[2]},
	}
	if p := b.Post(list, app); p.Status != http.StatusUnprocessableEntity || p.Contains(secrets[2]) {
		t.Errorf("an App with a wrong key: status %d: %s", p.Status, plain(p))
	}
	for field, value := range map[string]string{"project": "forty-two", "base": "ftp://git.example.com", "ca": "no certificate"} {
		form := url.Values{"kind": {"gitlab"}, "name": {"wrong"}, field: {value}}
		for name, values := range forms["gitlab"] {
			if name != field {
				form[name] = values
			}
		}
		if p := b.Post(list, form); p.Status != http.StatusUnprocessableEntity || !p.Contains(html.EscapeString(value)) {
			t.Errorf("%s = %q: status %d: %s", field, value, p.Status, plain(p))
		}
	}
	if p := b.Post(list, url.Values{"kind": {"git"}, "base": {"git@git.example.com:team"}, "ssh-key": {key}, "repositories": {"app"}}); p.Contains("OPENSSH") {
		t.Errorf("a page shows the SSH key: %s", plain(p))
	}
}

// site is a server that is connected to a fake of Gitea by the console's forms.
type site struct {
	t *testing.T
	*consoletest.Server
	browser *consoletest.Browser
	forge   forgetest.World
	id      string // of the integration
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, Server: consoletest.With(t, map[string]string{"forge_poll": "1s"}, "forge-events", "forge-polls"), forge: forgetest.Gitea(t)}
	s.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": "prod"}, nil)
	s.forge.Commit(t, "main", map[string]string{"Pulumi.yaml": "name: web"})
	s.browser = s.SignIn()
	p := s.browser.Post(list, url.Values{
		"kind": {"gitea"}, "name": {"forge"}, "base": {s.forge.Connection().BaseURL}, "token": {forgetest.Token}, "repositories": {s.forge.Name()}, "forks": {"approve"},
	})
	if p.Status != http.StatusOK {
		t.Fatalf("connecting: status %d: %s", p.Status, plain(p))
	}
	s.id = linked.FindStringSubmatch(p.Body)[1]
	return s
}

func (s *site) one(more ...string) string {
	return strings.Join(append([]string{list, s.id}, more...), "/")
}

// watch makes the stack watch the repository of the fake, by the form of its settings.
func (s *site) watch() {
	s.t.Helper()
	forms := map[string]url.Values{
		"":         {"branch": {"main"}},
		"triggers": {"forge": {"custom/" + s.id}, "forge-repository": {s.forge.Name()}, "deployCommits": {"on"}, "previewPullRequests": {"on"}},
	}
	for _, part := range slices.Sorted(maps.Keys(forms)) {
		form := forms[part]
		review := s.browser.Post(strings.TrimSuffix(stack+"/settings/"+part, "/"), form)
		value := func(name string) string {
			found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(review.Body)
			if found == nil {
				s.t.Fatalf("review: status %d: %s", review.Status, plain(review))
			}
			return html.UnescapeString(found[1])
		}
		if p := s.browser.Post(stack+"/settings/save", url.Values{"part": {part}, "patch": {value("patch")}, "version": {value("version")}}); p.Status != http.StatusSeeOther {
			s.t.Fatalf("saving: status %d: %s", p.Status, plain(p))
		}
	}
}

// eventually waits until a page contains texts.
func (s *site) eventually(path string, texts ...string) consoletest.Page {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		p := get(s.t, s.browser, path)
		text := plain(p)
		if !slices.ContainsFunc(texts, func(want string) bool { return !strings.Contains(text, want) }) {
			return p
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not contain %q: %s", path, texts, text)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-s.t.Context().Done():
			s.t.Fatal(s.t.Context().Err())
		}
	}
}

// TestPushToDeploy sets up push to deploy with the console only: a push deploys the stack, the pages
// explain it, and the commit of a fork runs once it is approved.
func TestPushToDeploy(t *testing.T) {
	s := newSite(t)
	if p := get(t, s.browser, stack+"/settings/triggers"); !strings.Contains(plain(p), "watches no repository") || !p.Contains(`name="forge-repository"`) {
		t.Errorf("before: %s", plain(p))
	}
	if p := get(t, s.browser, s.one("repositories")+"?repository="+url.QueryEscape(s.forge.Name())); !strings.Contains(plain(p), "Branches of "+s.forge.Name()+" 1 main") {
		t.Errorf("the branches: %s", plain(p))
	}
	s.watch()
	s.eventually(stack+"/settings/triggers", "The branch is main", "Last poll", "No event has concerned the stack yet")
	s.eventually(s.one(), s.forge.Name()+" web/prod")

	commit := s.forge.Commit(t, "main", map[string]string{"main.go": "package main"})
	pushed := []string{"branch main", commit[:8], "found by a poll", "update #1", vcs.ReasonPushed.Text()}
	s.eventually(stack+"/settings/triggers", pushed...)
	s.eventually(s.one("events"), append(pushed, "web/prod")...)
	s.eventually("/acme/-/deployments?status=queued&initiator=git-push", "#1", "started by a push")
	if p := get(t, s.browser, "/acme/-/deployments?status=queued&initiator=git-tag"); strings.Contains(plain(p), "#1") {
		t.Errorf("the filter does not apply: %s", plain(p))
	}

	fork := s.forge.Commit(t, "feature", map[string]string{"fork.go": "package main"})
	number := strconv.Itoa(s.forge.OpenPull(t, forgetest.NewPull{Source: "feature", Fork: true}))
	p := s.eventually(stack+"/settings/triggers", "Waiting for approval", "#"+number+" ", "Change <b>feature</b>", fork[:8]+" Approve", vcs.ReasonFork.Text())
	if p.Contains("<b>feature") {
		t.Errorf("the title is markup: %s", p.Body)
	}
	reader := s.SignInWith(s.AddUser("reader", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}, nil)
	if p := get(t, reader, stack+"/settings/triggers"); !strings.Contains(plain(p), "Waiting for approval") || p.Contains("triggers/approve", list) {
		t.Errorf("a reader sees %s", p.Body)
	}
	for name, form := range map[string]url.Values{
		"The newest commit of pull request": {"number": {number}, "commit": {commit}},
		"has no pull request":               {"number": {"4711"}, "commit": {fork}},
		"Choose a pull request":             {"number": {"x"}, "commit": {fork}},
	} {
		if p := s.browser.Post(stack+"/settings/triggers/approve", form); p.Status != http.StatusUnprocessableEntity || !strings.Contains(plain(p), name) {
			t.Errorf("approving %v: status %d: %s", form, p.Status, plain(p))
		}
	}
	if p := s.browser.Post(stack+"/settings/triggers/approve", url.Values{"number": {number}, "commit": {fork}}); p.Status != http.StatusSeeOther {
		t.Fatalf("approving: status %d: %s", p.Status, plain(p))
	}
	p = s.eventually(stack+"/settings/triggers", "· approved", "requested on this server", "preview #2")
	if strings.Contains(plain(p), "Waiting for approval") {
		t.Errorf("after the approval: %s", plain(p))
	}
	var pulls struct {
		Pulls []struct{ Approved, NeedsApproval bool }
	}
	s.API(http.MethodGet, "/api/stacks"+stack+"/vcs/pulls", nil, &pulls)
	if len(pulls.Pulls) != 1 || !pulls.Pulls[0].Approved || pulls.Pulls[0].NeedsApproval {
		t.Errorf("the API returns %+v", pulls)
	}

	// The pull request leads to its review stack, for those who may see it.
	s.Stack("web", "pr-1")
	link := `href="/acme/web/pr-1">pr-1</a>`
	if p := get(t, s.browser, stack+"/settings/triggers"); p.Contains(link) {
		t.Error("another stack is taken for a review stack")
	}
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		template, err := tx.StackByName("acme", "web", "prod")
		must.OK(t, err)
		made, err := tx.StackByName("acme", "web", "pr-1")
		must.OK(t, err)
		watch, err := tx.Watch(template.ID)
		must.OK(t, err)
		pull, err := strconv.ParseInt(number, 10, 64)
		must.OK(t, err)
		return tx.InsertReviewStack(store.ReviewStack{
			ID: "review", OrgID: made.OrgID, IntegrationID: watch.IntegrationID, RepoID: watch.RepoID, Pull: pull, TemplateID: template.ID,
			Project: "web", Name: "pr-1", StackID: made.ID, Wanted: true, CommitID: fork, TryAt: time.Now().Add(time.Hour), CreatedAt: time.Now(),
		})
	}))
	if p := get(t, s.browser, stack+"/settings/triggers"); !p.Contains(link) {
		t.Errorf("the review stack is not linked: %s", plain(p))
	}
	s.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
	s.API(http.MethodPut, "/api/stacks"+stack+"/collaborators/reader", map[string]any{"permission": 101}, nil)
	if p := get(t, reader, stack+"/settings/triggers"); p.Contains("pr-1") {
		t.Error("a reader of the template alone sees the review stack")
	}
}

// TestChange changes and removes an integration.
func TestChange(t *testing.T) {
	s := newSite(t)
	form := url.Values{"name": {"renamed"}, "base": {s.forge.Connection().BaseURL}, "repositories": {s.forge.Name() + "\nacme/other"}, "bots": {"none"}, "no-comments": {"on"}}
	if p := s.browser.Post(s.one("edit"), form); p.Status != http.StatusSeeOther {
		t.Fatalf("changing: status %d: %s", p.Status, plain(p))
	}
	var all struct{ Integrations []map[string]any }
	read := func() map[string]any {
		t.Helper()
		s.API(http.MethodGet, "/api/console/orgs/acme/integrations/custom", nil, &all)
		if len(all.Integrations) != 1 {
			t.Fatalf("the integrations are %v", all.Integrations)
		}
		return all.Integrations[0]
	}
	i := read()
	if i["name"] != "renamed" || i["hasCredentials"] != true || i["flavor"] != "gitea" || i["disablePRComments"] != true || i["botPullRequests"] != "none" || i["forkPullRequests"] != nil {
		t.Errorf("the integration is %v", i)
	}
	if p := get(t, s.browser, s.one()); !p.Contains("acme/other", `value="renamed"`) {
		t.Errorf("the page: %s", plain(p))
	}
	if p := s.browser.Post(s.one("edit"), url.Values{"name": {"x"}, "base": {""}}); p.Status != http.StatusUnprocessableEntity || read()["name"] != "renamed" {
		t.Errorf("an invalid change: status %d", p.Status)
	}
	first := copied.FindAllStringSubmatch(s.browser.Post(s.one("rotate"), url.Values{}).Body, -1)
	second := copied.FindAllStringSubmatch(s.browser.Post(s.one("rotate"), url.Values{"revoke": {"on"}}).Body, -1)
	if len(first) != 2 || len(second) != 2 || first[1][1] == second[1][1] || first[0][1] != second[0][1] {
		t.Errorf("the new secrets are %q and %q", first, second)
	}
	s.watch()
	if p := s.browser.Post(s.one("delete"), nil); p.Status != http.StatusSeeOther {
		t.Fatalf("deleting: status %d: %s", p.Status, plain(p))
	}
	if p := s.browser.Get(s.one()); p.Status != http.StatusNotFound {
		t.Errorf("a deleted integration: status %d", p.Status)
	}
	get(t, s.browser, stack+"/settings") // still names the integration
	if p := get(t, s.browser, stack+"/settings/triggers"); !strings.Contains(plain(p), "watches no repository") {
		t.Errorf("after the deletion: %s", plain(p))
	}
}
