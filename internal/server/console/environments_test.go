package console_test

import (
	"net/http"
	"os"
	"regexp"
	"testing"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
)

func TestMain(m *testing.M) {
	if !evaluator.Serve() {
		os.Exit(m.Run())
	}
}

const (
	environmentBase = "/{org}/-/environments"
	environmentPage = environmentBase + "/{project}/{environment}"
)

// The routes of environments are in separate columns, because the service decides about each environment.
func init() {
	matrixRoutes["list environments"] = []string{"GET " + environmentBase}
	matrixRoutes["create environments"] = []string{"GET " + environmentBase + "/new", "POST " + environmentBase}
	matrixRoutes["open"] = []string{
		"GET " + environmentPage, "GET " + environmentPage + "/revisions", "GET " + environmentPage + "/revisions/compare", "GET " + environmentPage + "/users", "GET " + environmentPage + "/settings",
		"POST " + environmentPage + "/settings/clone", "GET " + environmentPage + "/values", "POST " + environmentPage + "/values", "POST " + environmentPage + "/values/reveal",
	}
	matrixRoutes["change"] = []string{
		"GET " + environmentPage + "/edit", "POST " + environmentPage + "/edit", "POST " + environmentPage + "/edit/check", "POST " + environmentPage + "/edit/complete",
		"POST " + environmentPage + "/revisions/rollback", "POST " + environmentPage + "/revisions/retract", "POST " + environmentPage + "/revisions/tags", "POST " + environmentPage + "/settings/tags",
	}
	matrixRoutes["administer the environment"] = []string{
		"POST " + environmentPage + "/settings/protection", "POST " + environmentPage + "/settings/access", "POST " + environmentPage + "/settings/grants",
		"POST " + environmentPage + "/settings/delete",
	}
	recentRoutes = append(recentRoutes, "POST "+environmentPage+"/settings/access", "POST "+environmentPage+"/settings/grants", "POST "+environmentPage+"/settings/delete")
	notAudited["nothing is stored"] = append(notAudited["nothing is stored"], "POST "+environmentPage+"/edit/check", "POST "+environmentPage+"/edit/complete")
}

var (
	baseInput   = regexp.MustCompile(`name="base" value="&#34;([^&]*)&#34;"`)
	sealedInput = regexp.MustCompile(`name="sealed" value="([^"]*)"`)
)

// changeEnvironments creates, changes, opens and deletes environments.
func (a *auditor) changeEnvironments() {
	a.t.Helper()
	must.OK(a.t, evaluator.Install())
	a.API(http.MethodPost, "/api/orgs/acme/teams/pulumi", map[string]string{"name": "openers"}, nil)
	const prod = " app prod"
	a.change(environmentBase, "project", "app", "name", "prod")
	for _, definition := range []string{"values:\n  a: {fn::secret: s3cret}\n", "values:\n  b: {fn::secret: s3cret}\n"} {
		base := baseInput.FindStringSubmatch(a.browser.Get("/acme/-/environments/app/prod/edit").Body)
		if base == nil {
			a.t.Fatal("the editor has no form")
		}
		a.change(environmentPage+"/edit"+prod, "definition", definition, "base", base[1])
	}
	sealed := sealedInput.FindStringSubmatch(a.change(environmentPage + "/values" + prod).Body)
	if sealed == nil {
		a.t.Fatal("the opened environment has no secret")
	}
	a.change(environmentPage+"/edit"+prod, "definition", "values:\n  c: 1\n", "base", "*")
	a.change(environmentPage+"/revisions/tags"+prod, "tag", "stable", "number", "2")
	a.change(environmentPage+"/revisions/rollback"+prod, "version", "2", "newest", "4")
	a.change(environmentPage+"/revisions/retract"+prod, "version", "3", "reason", "leaked")
	a.change(environmentPage+"/settings/tags"+prod, "tag", "team", "content", "core")
	a.change(environmentPage+"/settings/protection"+prod, "protected", "on")
	a.change(environmentPage+"/settings/access"+prod, "team", "openers", "permission", "write")
	a.change(environmentPage+"/settings/grants"+prod, "kind", "project", "to", "web")
	a.change(environmentPage+"/settings/clone"+prod, "project", "app", "name", "copy")
	a.change(environmentPage+"/settings/delete app copy", "confirm", "app/copy")
	a.reveal(environmentPage+"/values/reveal", sealed[1])
}

// reveal shows a secret, which is counted in the entry about the opening; without it, the secret must not be shown.
func (a *auditor) reveal(route, sealed string) {
	a.t.Helper()
	a.made["POST "+route] = true
	form := map[string][]string{"sealed": {sealed}}
	const path = "/acme/-/environments/app/prod/values/reveal"
	allow := storetest.RefuseInserts(a.t, a.DB(), "audit_entries")
	if p := a.browser.Post(path, form); p.Status < http.StatusInternalServerError || p.Contains("s3cret") {
		a.t.Errorf("a secret although the audit log refuses entries: status %d: %s", p.Status, plain(p.Body))
	}
	allow()
	if p := a.browser.Post(path, form); p.Status != http.StatusOK || !p.Contains("s3cret") {
		a.t.Errorf("a secret: status %d: %s", p.Status, plain(p.Body))
	}
}
