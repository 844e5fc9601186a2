package stacksettings_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/consoletest"
)

var (
	effectiveTable = regexp.MustCompile(`(?s)What a deployment uses</h2>.*?<dl class="kv">(.*?)</dl>`)
	effectiveRow   = regexp.MustCompile(`(?s)<dt>(.*?)</dt>\s*<dd><span class="cut"[^>]*>(.*?)</span>\s*<span class="badge">(.*?)</span></dd>`)
)

// effective returns the values that the page lists for a reader, with their origins.
func effective(t *testing.T, b *consoletest.Browser) map[string]string {
	t.Helper()
	table := effectiveTable.FindStringSubmatch(get(t, b, base).Body)
	if table == nil {
		t.Fatal("the page does not list what a deployment uses")
	}
	list := map[string]string{}
	for _, row := range effectiveRow.FindAllStringSubmatch(table[1], -1) {
		list[row[1]] = html.UnescapeString(row[2] + ", from " + row[3])
	}
	return list
}

// TestEffectiveSettings checks the origin of each value that a deployment uses: defaults, then what
// the organization and the stack set, and defaults again after the stack's values are removed.
func TestEffectiveSettings(t *testing.T) {
	s, b := newServer(t)
	reader := s.SignInWith(s.AddUser("reader", "member"))
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultStackPermission": 101}, nil)
	const byDefault = ", from the server's default"
	defaults := map[string]string{
		"Pool":                          "none: deployments wait until a pool is chosen, from the organization",
		"Repository":                    "none: the image must contain the program" + byDefault,
		"Branch":                        "the repository's default branch" + byDefault,
		"Folder":                        "the root of the repository" + byDefault,
		"Image":                         "the agent's default image" + byDefault,
		"Commands before the operation": "none" + byDefault,
	}
	check := func(when string, changed map[string]string) {
		t.Helper()
		want := maps.Clone(defaults)
		maps.Copy(want, changed)
		maps.DeleteFunc(want, func(_, value string) bool { return value == "" }) // a setting that is not listed
		if diff := cmp.Diff(want, effective(t, reader)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("without settings", nil)

	pools := map[string]string{}
	for _, name := range []string{"eu", "us"} {
		var made struct{ ID string }
		s.API(http.MethodPost, "/api/orgs/acme/agent-pools", m{"name": name}, &made)
		pools[name] = made.ID
	}
	s.API(http.MethodPatch, "/api/orgs/acme", m{"setDefaultAgentPoolID": pools["eu"]}, nil)
	defaults["Pool"] = "eu, from the organization"
	check("with a default pool", nil)

	form := url.Values{
		"repository": {"https://git.example.com/web.git"}, "branch": {"main"}, "folder": {"infra"}, "commands": {"make\n" + hostile},
		"image": {"pulumi/pulumi:3"}, "pool": {pools["us"]},
	}
	store(t, b, form)
	const own = ", from this stack"
	changed := map[string]string{
		"Pool": "us" + own, "Repository": "https://git.example.com/web.git" + own, "Branch": "main" + own, "Folder": "infra" + own,
		"Image": "pulumi/pulumi:3" + own, "Commands before the operation": "make; " + hostile + own,
	}
	check("after a save", changed)

	// A fixed commit replaces the branch.
	commit := strings.Repeat("a", 40)
	form.Del("branch")
	form.Set("commit", commit)
	store(t, b, form)
	changed["Branch"], changed["Commit"] = "", commit+own
	check("with a commit", changed)

	// The other values fall back to the defaults.
	store(t, b, url.Values{"repository": form["repository"], "branch": {"main"}})
	check("after the removal", map[string]string{"Repository": changed["Repository"], "Branch": "main" + own})
}
