package clients

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestClientsDecideAboutDrift finds a file that was changed outside of Pulumi with the stock CLI in deployments, puts it
// back, finds it again, and accepts what is there. The console shows what the CLI found.
func TestClientsDecideAboutDrift(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := harness.StartSite(t, "")
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	file := filepath.Join(t.TempDir(), "made")
	repo, _, err := w.Git.NewRepo(ctx, "drift", map[string]string{
		"Pulumi.yaml": "name: drift\nruntime: yaml\nresources:\n  greeting: { type: \"lab:File\", properties: { path: \"" + file + "\", content: declared } }\n",
	})
	must.OK(t, err)
	st := w.NewStack(ctx, t, "drift", "dev", "", nil)
	run := func(operation, status string) {
		t.Helper()
		d := st.Deploy(ctx, t, operation, repo.URL)
		if end := st.Finish(ctx, t, d); end.Status != status {
			t.Fatalf("%s: %s (%s), want %s:\n%s", operation, end.Status, end.Message, status, st.Log(ctx, t, d))
		}
	}
	browser := consoletest.At(t, w.Server.URL, w.Server.Token).SignIn()
	tags, spaces := regexp.MustCompile(`<[^>]*>`), regexp.MustCompile(`\s+`)
	says := func(when string, wants ...string) {
		t.Helper()
		text := html.UnescapeString(spaces.ReplaceAllString(tags.ReplaceAllString(browser.Get("/"+st.Name+"/drift").Body, " "), " "))
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s, the page does not say %q: %s", when, want, text)
			}
		}
	}
	stored := func() string {
		t.Helper()
		var state struct {
			Deployment struct {
				Resources []struct {
					Type    string
					Outputs struct{ Content string }
				}
			}
		}
		must.OK(t, w.Server.Call(ctx, http.MethodGet, "/api/stacks/"+st.Name+"/export", nil, &state))
		for _, r := range state.Deployment.Resources {
			if r.Type == "lab:index:File" {
				return r.Outputs.Content
			}
		}
		return ""
	}

	run("update", "succeeded")
	must.OK(t, os.WriteFile(file, []byte("by hand"), 0o600))
	run("detect-drift", "failed")
	says("after drift was found", "1 resource was changed outside Pulumi.", "greeting lab:index:File Putting back updates it in place.", `~ content declared → by hand`)
	run("remediate-drift", "succeeded")
	says("after it was put back", "No drift An update has put back what is declared")
	if got := string(harness.Read(t, file)); got != "declared" || stored() != got {
		t.Errorf("after it was put back, the file contains %q, and the state %q", got, stored())
	}

	must.OK(t, os.WriteFile(file, []byte("accepted"), 0o600))
	run("detect-drift", "failed")
	run("refresh", "succeeded")
	says("after it was accepted", "No drift A refresh has written what was found to the state")
	if got := string(harness.Read(t, file)); got != "accepted" || stored() != got {
		t.Errorf("after it was accepted, the file contains %q, and the state %q", got, stored())
	}
}
