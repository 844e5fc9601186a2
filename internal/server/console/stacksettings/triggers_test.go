package stacksettings_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"testing"
)

// TestTriggers changes what pushes and pull requests deploy, and keeps what the form does not show.
func TestTriggers(t *testing.T) {
	s, b := newServer(t)
	if p := get(t, b, base); !p.Contains("Connect a git host") {
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
	if p := get(t, b, base); !p.Contains(`value="github/`+made.ID+`"`, `<option value="github/" selected>`, `value="acme/web"`) {
		t.Errorf("the form: %s", p.Body)
	}
	// What stays the same is not written.
	form := url.Values{"branch": {"main"}, "forge": {"github/"}, "forge-repository": {"acme/web"}, "folder": {"infra"}}
	reviewed(t, store(t, b, form), map[string]string{"Folder": "the root of the repository → infra"})
	if set := read(); set.GitHub == nil || set.GitHub.DeployPullRequest != 7 || set.VCS != nil {
		t.Errorf("after an unrelated change: %+v", set)
	}
	form = url.Values{
		"branch": {"main"}, "folder": {"infra"}, "forge": {"github/" + made.ID}, "forge-repository": {"acme/api.git"}, "deployTags": {"on"}, "deployCommits": {"on"},
		"pullRequestTemplate": {"on"}, "paths": {"infra/**\n\n!docs/**"}, "tagFilters": {"v*"}, "reviewStackLabels": {"review"}, "reviewStackTTL": {"72h"},
	}
	reviewed(t, store(t, b, form), map[string]string{
		"Trigger: repository": "acme/web → acme/api", "Trigger: integration": "none → " + made.ID, "Trigger: paths": "none → infra/**\n!docs/**",
		"Trigger: tags": "none → v*", "Deploy commits on the branch": "no → yes", "Deploy tags": "no → yes", "Make a review stack for each pull request": "no → yes",
		"Labels for review stacks": "none → review", "Destroy review stacks after": "none → 72h",
	})
	want := triggers{
		Provider: "github", Repository: "acme/api", InstallationID: made.ID, ReviewStackTTL: "72h", DeployCommits: true, DeployTags: true, PullRequestTemplate: true,
		Paths: []string{"infra/**", "!docs/**"}, TagFilters: []string{"v*"}, ReviewStackLabels: []string{"review"},
	}
	if set := read(); set.GitHub != nil || set.VCS == nil || !reflect.DeepEqual(*set.VCS, want) || set.SourceContext.Git["branch"] != "main" || set.SourceContext.Git["repoDir"] != "infra" {
		t.Errorf("the settings are %+v, want the triggers %+v", set, want)
	}
	if review := b.Post(base, form); !review.Contains("Nothing changes.") {
		t.Errorf("the same form again: %s", review.Body)
	}
	for field, value := range map[string]string{"forge-repository": "", "reviewStackTTL": "soon"} {
		wrong := maps.Clone(form)
		wrong[field] = []string{value}
		if p := b.Post(base, wrong); p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%s = %q: status %d", field, value, p.Status)
		}
	}
	delete(form, "forge")
	if store(t, b, form); read().VCS != nil {
		t.Errorf("without triggers: %+v", read())
	}
	// Another repository of the integration needs an administrator of the stack.
	writer := s.SignInWith(s.AddUser("writer", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 102}, nil)
	review := writer.Post(base, url.Values{"branch": {"main"}, "forge": {"github/" + made.ID}, "forge-repository": {"acme/web"}, "deployCommits": {"on"}})
	patch, at := patchField.FindStringSubmatch(review.Body), version.FindStringSubmatch(review.Body)
	if patch == nil || at == nil {
		t.Fatalf("review: status %d: %s", review.Status, review.Body)
	}
	if p := writer.Post(base+"/save", url.Values{"patch": {html.UnescapeString(patch[1])}, "version": {at[1]}}); p.Status != http.StatusUnprocessableEntity || !p.Contains("another repository of an integration") {
		t.Errorf("a user who may not choose the repository: status %d", p.Status)
	}
}
