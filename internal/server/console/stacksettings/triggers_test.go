package stacksettings_test

import (
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// TestTriggers changes what pushes and pull requests deploy, and keeps what the form does not show.
func TestTriggers(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base+"/triggers"); !p.Contains("Connect a git host") {
		t.Error("without an integration, the page does not say how to connect one")
	}
	var made struct{ ID string }
	s.API(http.MethodPost, "/api/console/orgs/acme/integrations/github", m{"name": "forge", "owner": "acme", "accessToken": "none"}, &made)
	s.API(http.MethodPost, "/api/stacks/acme/web/prod/deployments/settings", m{
		"sourceContext": m{"git": m{"branch": "main"}}, "gitHub": m{"repository": "acme/web", "deployPullRequest": 7},
	}, nil)
	type triggers struct {
		Provider, Repository, InstallationID, ReviewStackTTL                string
		DeployCommits, PreviewPullRequests, DeployTags, PullRequestTemplate bool
		DeployPullRequest                                                   int
		Paths, TagFilters, ReviewStackLabels                                []string
	}
	type settings struct {
		GitHub, VCS   *triggers
		SourceContext struct{ Git m }
	}
	read := func() (set settings) {
		t.Helper()
		s.API(http.MethodGet, "/api/stacks/acme/web/prod/deployments/settings", nil, &set)
		return set
	}
	if p := get(t, b, base+"/triggers"); !p.Contains(`value="github/`+made.ID+`"`, `<option value="github/" selected>`, `value="acme/web"`) {
		t.Errorf("the form: %s", p.Body)
	}
	// What stays the same is not written.
	form := url.Values{"branch": {"main"}, "folder": {"infra"}}
	reviewed(t, store(t, b, form), map[string]string{"Folder": "the root of the repository → infra"})
	if set := read(); set.GitHub == nil || set.GitHub.DeployPullRequest != 7 || set.VCS != nil {
		t.Errorf("after an unrelated change: %+v", set)
	}
	form = url.Values{
		"forge": {"github/" + made.ID}, "forge-repository": {"acme/api.git"}, "deployTags": {"on"}, "deployCommits": {"on"},
		"pullRequestTemplate": {"on"}, "paths": {"infra/**\n\n!docs/**"}, "tagFilters": {"v*"}, "reviewStackLabels": {"review"}, "reviewStackTTL": {"72h"},
	}
	reviewed(t, storeAt(t, b, "triggers", form), map[string]string{
		"Watched repository": "acme/web → acme/api", "Integration": "none → " + made.ID, "Paths": "none → infra/**\n!docs/**",
		"Tags": "none → v*", "Deploy commits on the branch": "no → yes", "Deploy tags": "no → yes", "Make a review stack for each pull request": "no → yes",
		"Labels for review stacks": "none → review", "Destroy review stacks after": "none → 72h",
	})
	want := triggers{
		Provider: "github", Repository: "acme/api", InstallationID: made.ID, ReviewStackTTL: "72h", DeployCommits: true, DeployTags: true, PullRequestTemplate: true,
		Paths: []string{"infra/**", "!docs/**"}, TagFilters: []string{"v*"}, ReviewStackLabels: []string{"review"},
	}
	if set := read(); set.GitHub != nil || set.VCS == nil || !reflect.DeepEqual(*set.VCS, want) || set.SourceContext.Git["branch"] != "main" || set.SourceContext.Git["repoDir"] != "infra" {
		t.Errorf("the settings are %+v, want the triggers %+v", set, want)
	}
	if review := b.Post(base+"/triggers", form); review.Contains("<dialog") || !review.Contains("Nothing changes") {
		t.Errorf("the same form again: %s", review.Body)
	}
	for field, value := range map[string]string{"forge-repository": "", "reviewStackTTL": "soon"} {
		wrong := maps.Clone(form)
		wrong[field] = []string{value}
		p := b.Post(base+"/triggers", wrong)
		if p.Status != http.StatusUnprocessableEntity || !p.Contains("1 to correct", `aria-describedby="`+field+`-problem`, "!docs/**") || strings.Count(p.Body, `aria-invalid="true"`) != 1 {
			t.Errorf("%s = %q: status %d: %s", field, value, p.Status, p.Body)
		}
	}
	delete(form, "forge")
	if storeAt(t, b, "triggers", form); read().VCS != nil {
		t.Errorf("without triggers: %+v", read())
	}
	// Another repository of the integration needs an administrator of the stack.
	writer := s.SignInWith(s.AddUser("writer", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 102}, nil)
	review := writer.Post(base+"/triggers", url.Values{"forge": {"github/" + made.ID}, "forge-repository": {"acme/web"}, "deployCommits": {"on"}})
	form = saved(review, "triggers")
	if form.Get("patch") == "" || form.Get("version") == "" {
		t.Fatalf("review: status %d: %s", review.Status, review.Body)
	}
	if p := writer.Post(base+"/save", form); p.Status != http.StatusUnprocessableEntity || !p.Contains("another repository of an integration", `value="acme/web"`) {
		t.Errorf("a user who may not choose the repository: status %d", p.Status)
	}
}
