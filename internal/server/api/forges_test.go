package api_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/forgetest"
	gitlab "workflowagent/internal/dev/lab"
	"workflowagent/internal/server/store"
)

const integrationsPath = "/api/console/orgs/acme/integrations"

// integration is the description of an integration.
type integration struct {
	ID, Name, BaseURL, WebhookURL, WebhookSecret, VCSType, Flavor string
	HasCredentials, Valid                                         bool
	Repositories                                                  []struct{ Name string }
}

// gitSite is a plain git server with a repository that a stack watches.
type gitSite struct {
	*fixture
	repo *gitlab.Repo
	head string
	made integration
}

func newGitSite(t *testing.T, settings string) *gitSite {
	t.Helper()
	f := newFixture(t, options{})
	server, err := gitlab.StartGitServer(t.Context(), t.TempDir(), gitlab.GitOptions{Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := &gitSite{fixture: f}
	if s.repo, s.head, err = server.NewRepo(t.Context(), "team/infra", map[string]string{"Pulumi.yaml": "name: proj\nruntime: yaml\n"}); err != nil {
		t.Fatal(err)
	}
	f.do("POST", integrationsPath+"/custom", map[string]any{
		"name": "lab", "baseUrl": server.URL, "environment": "", "credentials": map[string]any{"username": "git", "password": map[string]any{"secret": "secret"}},
	}).want(http.StatusCreated, &s.made)
	f.do("POST", integrationsPath+"/custom/"+s.made.ID+"/repos", map[string]any{"name": strings.TrimPrefix(s.repo.URL, server.URL+"/")}).want(http.StatusNoContent, nil)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "dev"}).want(http.StatusOK, nil)
	f.do("PUT", "/api/stacks/acme/proj/dev/deployments/settings", map[string]any{
		"sourceContext": map[string]any{"git": map[string]any{"branch": "main"}},
		"vcs":           json.RawMessage(`{"provider":"custom","repository":"team/infra",` + settings + `}`),
	}).want(http.StatusOK, nil)
	return s
}

// send sends a delivery as a hook of git does.
func (s *gitSite) deliver(secret string, body map[string]any) answer {
	s.t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(data)
	return s.send(call{Method: "POST", Path: "/workflow/generic-vcs", Body: data, Auth: "none", Header: map[string]string{
		"X-Generic-VCS-Integration-ID": s.made.ID, "X-Generic-VCS-Signature": "v1=" + hex.EncodeToString(mac.Sum(nil)), "Content-Type": "application/json",
	}})
}

// run runs background work until done returns true.
func (s *gitSite) run(done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.events.Run(ctx) }()
	go func() { ended <- s.events.Poll(ctx) }()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			s.t.Fatal("the expected event did not happen")
		}
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	}
}

type vcsEvent struct {
	Kind, Subject, Reason, Source string
	Done                          bool
	Decisions                     []struct {
		Action, Reason, Text, Commit string
		Version                      int64
	}
}

func (s *gitSite) vcsEvents() []vcsEvent {
	s.t.Helper()
	var got struct{ Events []vcsEvent }
	s.do("GET", "/api/stacks/acme/proj/dev/vcs/events", nil).want(http.StatusOK, &got)
	return got.Events
}

// polled waits until the first poll has recorded the refs.
func (s *gitSite) polled() {
	s.t.Helper()
	s.run(func() bool {
		recorded := false
		err := s.db.Read(s.t.Context(), func(tx *store.Tx) error {
			repos, err := tx.Repos(s.made.ID)
			recorded = len(repos) == 1 && !repos[0].PolledAt.IsZero()
			return err
		})
		if err != nil {
			s.t.Fatal(err)
		}
		return recorded
	})
}

func TestPushToDeployOverHTTP(t *testing.T) {
	s := newGitSite(t, `"deployCommits":true,"deployTags":true,"paths":["infra/**"]`)
	s.polled()
	commit := func() string {
		t.Helper()
		hash, err := s.repo.Commit(t.Context(), "main", "Change", map[string]string{"infra/x": time.Now().String()})
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	head := commit()
	s.deliver(s.made.WebhookSecret, map[string]any{"event": "push", "commit": head, "before": s.head, "branch": "main", "repoUrl": s.repo.URL, "sender": "alice", "changedFiles": []string{"infra/x"}}).want(http.StatusAccepted, nil)
	s.run(func() bool { return len(s.vcsEvents()) == 1 })
	got := s.vcsEvents()[0]
	if got.Source != "webhook" || len(got.Decisions) != 1 || got.Decisions[0].Action != "update" || got.Decisions[0].Commit != head || got.Decisions[0].Version != 1 {
		t.Errorf("got %+v", got)
	}
	// Row 90: the files of the delivery count. The poll finds that nothing is left to do.
	docs := commit()
	s.deliver(s.made.WebhookSecret, map[string]any{"event": "push", "commit": docs, "before": head, "branch": "main", "repoUrl": s.repo.URL, "changedFiles": []string{"docs/x"}}).want(http.StatusAccepted, nil)
	s.run(func() bool { return len(s.vcsEvents()) == 2 })
	if got := s.vcsEvents()[0]; got.Decisions[0].Reason != "no-path-matched" || got.Decisions[0].Text == "" {
		t.Errorf("got %+v", got)
	}
	// Row 93: the delivery is lost, and the poll finds the push. Its files are unknown.
	lost := commit()
	s.run(func() bool { return len(s.vcsEvents()) == 3 })
	if got := s.vcsEvents()[0]; got.Source != "poll" || got.Decisions[0].Commit != lost {
		t.Errorf("got %+v", got)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", s.repo.Dir(), "tag", "v1", lost).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.run(func() bool { return len(s.vcsEvents()) == 4 })
	if got := s.vcsEvents()[0]; got.Kind != "tag" || got.Decisions[0].Commit != lost || got.Decisions[0].Reason != "tagged" {
		t.Errorf("got %+v", got)
	}
}

// TestDeliveries contains the rows about deliveries that cause nothing.
func TestDeliveries(t *testing.T) {
	s := newGitSite(t, `"deployCommits":true`)
	s.polled()
	push := func() map[string]any {
		return map[string]any{"event": "push", "commit": strings.Repeat("a", 40), "branch": "main", "repoUrl": s.repo.URL}
	}
	with := func(name string, value any) map[string]any {
		body := push()
		body[name] = value
		return body
	}
	for name, tt := range map[string]struct {
		secret string
		body   map[string]any
		status int
	}{
		"row 91: pull request":       {s.made.WebhookSecret, with("event", "pull_request"), http.StatusAccepted},
		"row 91: unknown repository": {s.made.WebhookSecret, with("repoUrl", "https://git.example/other"), http.StatusAccepted},
		"row 92: wrong signature":    {"wrong", push(), http.StatusUnauthorized},
		"row 92: empty secret":       {"", push(), http.StatusUnauthorized},
		"row 93: over the limit":     {s.made.WebhookSecret, with("message", strings.Repeat("x", 2<<20)), http.StatusRequestEntityTooLarge},
		"row 94: null":               {s.made.WebhookSecret, map[string]any{"event": nil, "repoUrl": nil, "changedFiles": nil}, http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.deliver(tt.secret, tt.body)
			a.t = t
			a.want(tt.status, nil)
			if strings.Contains(string(a.Body), `"accepted":1`) {
				t.Errorf("accepted: %s", a.Body)
			}
		})
	}
	s.send(call{Method: "POST", Path: "/workflow/gitea/" + s.made.ID, Body: push(), Auth: "none"}).want(http.StatusUnauthorized, nil)
	s.send(call{Method: "POST", Path: "/workflow/generic-vcs", Body: push(), Auth: "none"}).want(http.StatusUnauthorized, nil)
	if got := s.vcsEvents(); len(got) != 0 {
		t.Errorf("events %+v", got)
	}
}

// TestForgedDeliveries checks that deliveries of strangers keep no authentic one out: all of them come
// from the same address, as behind a proxy.
func TestForgedDeliveries(t *testing.T) {
	s := newGitSite(t, `"deployCommits":true`)
	other := map[string]any{"event": "other", "repoUrl": s.repo.URL}
	for range 200 { // to integrations that do not exist
		s.send(call{Method: "POST", Path: "/workflow/generic-vcs", Body: other, Auth: "none", Header: map[string]string{"X-Generic-VCS-Integration-ID": "x"}}).want(http.StatusUnauthorized, nil)
	}
	limited := false
	for range 200 { // to this one
		a := s.deliver("wrong", other)
		if limited = limited || a.Status == http.StatusTooManyRequests; a.Status == http.StatusTooManyRequests && a.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	if !limited {
		t.Error("wrong deliveries to one integration are never limited")
	}
	s.deliver(s.made.WebhookSecret, other).want(http.StatusAccepted, nil)
}

func TestIntegrations(t *testing.T) {
	s := newGitSite(t, `"deployCommits":true`)
	one := integrationsPath + "/custom/" + s.made.ID
	if len(s.made.WebhookSecret) < 40 || s.made.WebhookURL != "http://server.test/workflow/generic-vcs" || s.made.VCSType != "git" || !s.made.HasCredentials {
		t.Errorf("created %+v", s.made)
	}
	var got integration
	s.do("GET", one, nil).want(http.StatusOK, &got)
	if got.WebhookSecret != "" || len(got.Repositories) != 1 {
		t.Errorf("read %+v", got)
	}
	for _, path := range []string{integrationsPath, integrationsPath + "/custom", one, one + "/repos", one + "/events", "/api/stacks/acme/proj/dev/deployments/settings"} {
		a := s.do("GET", path, nil)
		a.want(http.StatusOK, nil)
		if strings.Contains(string(a.Body), s.made.WebhookSecret) || strings.Contains(string(a.Body), `secret"}`) {
			t.Errorf("%s shows a secret: %s", path, a.Body)
		}
	}
	var branches struct{ Branches []struct{ Name string } }
	s.do("GET", one+"/repos/team%2Finfra/branches", nil).want(http.StatusOK, &branches)
	if len(branches.Branches) != 1 || branches.Branches[0].Name != "main" {
		t.Errorf("branches %+v", branches)
	}
	for name, tt := range map[string]struct {
		method, path string
		body         any
		status       int
	}{
		"the same name again":          {"POST", integrationsPath + "/custom", map[string]any{"name": "lab", "baseUrl": "https://git.example", "environment": ""}, http.StatusConflict},
		"the same repository again":    {"POST", one + "/repos", map[string]any{"name": got.Repositories[0].Name}, http.StatusConflict},
		"an unknown repository":        {"DELETE", one + "/repos", map[string]any{"name": "x/y"}, http.StatusNotFound},
		"no address":                   {"POST", integrationsPath + "/custom", map[string]any{"name": "x"}, http.StatusBadRequest},
		"plain http":                   {"POST", integrationsPath + "/custom", map[string]any{"name": "x", "flavor": "gitea", "baseUrl": "http://git.example"}, http.StatusBadRequest},
		"an unknown flavor":            {"PATCH", one, map[string]any{"flavor": "svn"}, http.StatusBadRequest},
		"an unknown rule for forks":    {"PATCH", one, map[string]any{"forkPullRequests": "allow"}, http.StatusBadRequest},
		"an unknown pool":              {"PATCH", one, map[string]any{"previewAgentPool": "none"}, http.StatusBadRequest},
		"another provider's path":      {"GET", integrationsPath + "/gitlab/" + s.made.ID, nil, http.StatusNotFound},
		"GitHub without a credential":  {"POST", integrationsPath + "/github", map[string]any{}, http.StatusBadRequest},
		"a provider that is not built": {"POST", integrationsPath + "/nope", map[string]any{}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.do(tt.method, tt.path, tt.body)
			a.t = t
			a.want(tt.status, nil)
		})
	}
	// A rotated secret overlaps with the previous one, unless it is regenerated.
	var rotated integration
	s.do("PATCH", one, map[string]any{"rotateWebhookSecret": true}).want(http.StatusOK, &rotated)
	other := map[string]any{"event": "other", "repoUrl": s.repo.URL}
	s.deliver(s.made.WebhookSecret, other).want(http.StatusAccepted, nil)
	s.deliver(rotated.WebhookSecret, other).want(http.StatusAccepted, nil)
	var regenerated integration
	s.do("PATCH", one, map[string]any{"regenerateWebhookSecret": true}).want(http.StatusOK, &regenerated)
	s.deliver(rotated.WebhookSecret, other).want(http.StatusUnauthorized, nil)
	s.deliver(regenerated.WebhookSecret, other).want(http.StatusAccepted, nil)

	// A stack can use only listed repositories, and only its administrators choose them.
	settings := func(repository string) map[string]any {
		return map[string]any{"vcs": map[string]any{"provider": "custom", "repository": repository, "deployCommits": true}}
	}
	a := s.do("POST", "/api/stacks/acme/proj/dev/deployments/settings", settings("other/repo"))
	a.want(http.StatusBadRequest, nil)
	s.do("DELETE", one+"/repos", map[string]any{"name": got.Repositories[0].Name}).want(http.StatusNoContent, nil)
	if err := s.db.Read(t.Context(), func(tx *store.Tx) error {
		all, err := tx.WatchesOfIntegration(s.made.ID)
		if len(all) != 0 {
			t.Error("the stack still watches a repository that is no longer listed")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.do("DELETE", one, nil).want(http.StatusNoContent, nil)
	s.do("GET", one, nil).want(http.StatusNotFound, nil)
	s.deliver(regenerated.WebhookSecret, other).want(http.StatusUnauthorized, nil)
	var entries []store.AuditEntry
	if err := s.db.Read(t.Context(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName("acme")
		if err == nil {
			entries, err = tx.AuditEntries(store.AuditFilter{OrgID: o.ID, Limit: 50})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range entries {
		seen[e.Action]++
		if strings.Contains(e.Detail, s.made.WebhookSecret) {
			t.Errorf("the audit log contains a secret: %s", e.Detail)
		}
	}
	if seen["integration.created"] != 1 || seen["integration.changed"] < 4 || seen["integration.deleted"] != 1 {
		t.Errorf("audit log: %v", seen)
	}
}

// TestIntegrationsOfForges reads one integration of each provider, and lists its repositories and
// their branches.
func TestIntegrationsOfForges(t *testing.T) {
	f := newFixture(t, options{})
	for path, world := range map[string]forgetest.World{
		"github": nil, "github-enterprise": forgetest.GitHubToken(t), "gitlab": forgetest.GitLab(t),
		"bitbucket": forgetest.Bitbucket(t), "azure-devops": forgetest.Azure(t),
	} {
		body := map[string]any{"name": path, "accessToken": "token"}
		if world != nil {
			c := world.Connection()
			body["baseUrl"], body["apiUrl"], body["accessToken"], body["owner"] = c.BaseURL, c.APIURL, c.Credential.Password, c.Owner
			body["workspaceSlug"], body["organizationName"], body["projectId"] = c.Owner, c.Owner, c.Project
		}
		var made, got integration
		f.do("POST", integrationsPath+"/"+path, body).want(http.StatusCreated, &made)
		one := integrationsPath + "/" + path + "/" + made.ID
		f.do("GET", one, nil).want(http.StatusOK, &got)
		if got.ID != made.ID || got.Name != path || got.WebhookSecret != "" {
			t.Errorf("%s: read %+v", path, got)
		}
		var list struct{ Integrations []integration }
		f.do("GET", integrationsPath+"/"+path, nil).want(http.StatusOK, &list)
		if len(list.Integrations) != 1 || list.Integrations[0].ID != made.ID {
			t.Errorf("%s: the list has %+v", path, list.Integrations)
		}
		if world == nil { // github.com
			continue
		}
		var repos struct{ Repos []struct{ ID, Name string } }
		f.do("GET", one+"/repos", nil).want(http.StatusOK, &repos)
		if len(repos.Repos) != 1 {
			t.Fatalf("%s: repositories %+v", path, repos)
		}
		var branches struct{ Branches []struct{ Name string } }
		f.do("GET", one+"/repos/"+url.PathEscape(repos.Repos[0].ID)+"/branches", nil).want(http.StatusOK, &branches)
		if len(branches.Branches) != 1 || branches.Branches[0].Name != "main" {
			t.Errorf("%s: branches %+v", path, branches)
		}
	}
}

// TestTriggerSettings contains the rows about settings.
func TestTriggerSettings(t *testing.T) {
	s := newGitSite(t, `"deployCommits":true`)
	const path = "/api/stacks/acme/proj/dev/deployments/settings"
	var got map[string]map[string]any
	put := func(body string) answer { return s.do("PUT", path, json.RawMessage(body)) }
	put(`{"gitHub":{"repository":"o/r","previewPullRequests":true,"deployPullRequest":5}}`).want(http.StatusOK, nil)
	a := s.do("GET", path, nil)
	if a.want(http.StatusOK, nil); strings.Contains(string(a.Body), "deployPullRequest") {
		t.Errorf("row 84: %s", a.Body)
	}
	put(`{"gitHub":{"repository":"o/r","deployPullRequest":5}}`).want(http.StatusOK, nil)
	if a := s.do("GET", path, nil); !strings.Contains(string(a.Body), `"deployPullRequest":5`) {
		t.Errorf("row 85: %s", a.Body)
	}
	put(`{"gitHub":{"repository":"o/r"},"vcs":{"provider":"custom","repository":"team/infra","deployCommits":true}}`).want(http.StatusOK, nil)
	a = s.do("GET", path, nil)
	if err := json.Unmarshal(a.Body, &got); err == nil && got["gitHub"] != nil || !strings.Contains(string(a.Body), "team/infra") {
		t.Errorf("row 86: %s", a.Body)
	}
	var second integration
	s.do("POST", integrationsPath+"/custom", map[string]any{"name": "second", "baseUrl": "https://git.example", "repositories": []map[string]any{{"name": "team/infra"}}}).want(http.StatusCreated, &second)
	const ambiguous = `{"vcs":{"provider":"custom","repository":"team/infra","deployCommits":true%s}}`
	if a := put(strings.ReplaceAll(ambiguous, "%s", "")); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "vcs.installationId") {
		t.Errorf("row 87: %d %s", a.Status, a.Body)
	}
	put(strings.ReplaceAll(ambiguous, "%s", `,"installationId":"`+second.ID+`"`)).want(http.StatusOK, nil)
	for pattern, hint := range map[string]string{"/infra/**": `write \"infra/**\"`, "infra/": `write \"infra/**\"`, "a/[": "not a valid glob"} {
		a := put(`{"vcs":{"provider":"custom","repository":"team/infra","paths":["` + pattern + `"]}}`)
		if a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), hint) {
			t.Errorf("%s: %d %s", pattern, a.Status, a.Body)
		}
	}
}
