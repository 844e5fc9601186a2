package browser

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// longEnvironment is a name whose middle lists leave out.
const longEnvironment = "a-long-name-of-an-environment-for-production"

// revise replaces the definition of an environment, which makes a revision.
func revise(t *testing.T, w *harness.Site, name, definition string) {
	t.Helper()
	url := w.Server.URL + "/api/esc/environments/" + w.Server.Organization + "/lab/" + name
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPatch, url, strings.NewReader(definition)))(t)
	req.Header.Set("Authorization", "token "+w.Server.Token)
	res := must.Get(http.DefaultClient.Do(req))(t)
	must.OK(t, res.Body.Close())
	if res.StatusCode != http.StatusOK {
		t.Fatalf("changing the environment %s: status %d", name, res.StatusCode)
	}
}

// environments creates two environments, of which one imports the other, with revisions, tags and hostile texts, and returns
// the path of their pages.
func environments(t *testing.T, w *harness.Site) string {
	t.Helper()
	org := w.Server.Organization
	for _, name := range []string{"base", longEnvironment} {
		must.OK(t, w.Server.Call(t.Context(), http.MethodPost, "/api/esc/environments/"+org, map[string]string{"project": "lab", "name": name}, nil))
	}
	revise(t, w, "base", "values:\n  note: '"+strings.ReplaceAll(hostile, "'", "''")+"'\n")
	revise(t, w, longEnvironment, "imports:\n- lab/base\nvalues:\n  environmentVariables:\n    REGION: eu\n")
	revise(t, w, longEnvironment, "imports:\n- lab/base\nvalues:\n  password:\n    fn::secret: hidden\n  "+strings.Repeat("long", 40)+": 1\n")
	prod := "/api/esc/environments/" + org + "/lab/" + longEnvironment
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, prod+"/tags", map[string]string{"name": "team", "value": hostile}, nil))
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, prod+"/versions/tags", map[string]any{"name": "stable", "revision": 2}, nil))
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, prod+"/versions/1/retract", map[string]any{"replacement": 2, "reason": hostile}, nil))
	return "/" + org + "/-/environments"
}

// TestEnvironments creates an environment, rolls another one back, clones it and deletes the clone.
func TestEnvironments(t *testing.T) {
	w := harness.StartSite(t, "")
	list := environments(t, w)
	tb := newTab(t, w.Server.URL)
	signIn(tb, w.Server.Token)
	tb.open(list + "?sort=changed")
	tb.click(".bar .primary")
	tb.wait("the form is open", loaded+"document.querySelector('#project')")
	tb.fill("#project", "lab")
	tb.fill("#name", "fresh")
	tb.click("form .primary")
	tb.wait("the environment exists", loaded+"document.querySelector('.obj h1').title === 'lab/fresh'")

	prod := list + "/lab/" + longEnvironment
	tb.open(prod + "/revisions/compare?from=2&to=3")
	tb.see("fn::secret:")
	tb.see("ciphertext: [secret]")
	tb.open(prod + "?version=stable")
	tb.click("[popovertarget=roll-back]")
	tb.wait("the question is open", "document.querySelector('#roll-back:popover-open')")
	tb.axe("roll back")
	tb.click("#roll-back .danger")
	tb.wait("the newest revision has the definition", loaded+"document.querySelector('#said').innerText.includes('Revision 4 has the definition of revision 2.') && document.querySelector('.lines').innerText.includes('REGION: eu')")

	tb.open(prod + "/settings")
	tb.fill("form[action$='/clone'] #name", "copy")
	tb.click("form[action$='/clone'] .btn")
	tb.wait("the clone is open", loaded+"document.querySelector('.obj h1').title === 'lab/copy' && document.querySelector('.lines').innerText.includes('REGION: eu')")
	tb.open(list + "/lab/copy/settings")
	tb.fill("#confirm", "lab/copy")
	tb.click("form[action$='/delete'] .btn")
	tb.wait("the clone is deleted", loaded+"document.querySelector('#said').innerText.includes('Deleted lab/copy.') && document.querySelector('.l-env') && !document.querySelector('.l-env').innerText.includes('copy')")
	tb.check()
}
