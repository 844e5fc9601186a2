package github

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
)

func TestToken(t *testing.T) {
	forgetest.Run(t, new(Forge), forgetest.Words{
		vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
		vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failure",
	}, forgetest.GitHubToken)
}

func TestApp(t *testing.T) {
	forgetest.Run(t, new(Forge), forgetest.Words{
		vcs.ReportPending: "queued", vcs.ReportRunning: "in_progress", vcs.ReportAction: "completed action_required",
		vcs.ReportSucceeded: "completed success", vcs.ReportNeutral: "completed neutral", vcs.ReportFailed: "completed failure",
	}, forgetest.GitHubApp)
}

// TestInstallationTokens checks that the server's own token is reused by all clients, while each job
// gets its own token for one repository.
func TestInstallationTokens(t *testing.T) {
	w, _ := forgetest.GitHubApp(t).(*forgetest.GitHubSite)
	f := new(Forge)
	for range 3 {
		c, err := f.Connect(w.Connection())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Find(t.Context(), w.Name()); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.Scopes) != 1 || w.Scopes[0] != nil {
		t.Errorf("requests for tokens: %v", w.Scopes)
	}
	c, err := f.Connect(w.Connection())
	if err != nil {
		t.Fatal(err)
	}
	repo, err := c.Find(t.Context(), w.Name())
	if err != nil {
		t.Fatal(err)
	}
	var passwords []string
	for range 2 {
		credential, err := c.CloneAuth(t.Context(), repo.RepoID)
		if err != nil {
			t.Fatal(err)
		}
		passwords = append(passwords, credential.Password)
		if time.Until(credential.Expires) < 50*time.Minute || credential.Environment["GITHUB_TOKEN"] != credential.Password || credential.Environment["GH_HOST"] == "" {
			t.Errorf("expires %s, with %d variables", credential.Expires, len(credential.Environment))
		}
	}
	if passwords[0] == passwords[1] || passwords[0] == forgetest.Token {
		t.Error("jobs share a token")
	}
	want := map[string]any{"repository_ids": []any{4711.0}, "permissions": map[string]any{"contents": "read", "metadata": "read"}}
	if diff := cmp.Diff(want, w.Scopes[len(w.Scopes)-1]); diff != "" {
		t.Error(diff)
	}
	connection := w.Connection()
	connection.App.WholeInstallation = true
	if c, err = f.Connect(connection); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CloneAuth(t.Context(), repo.RepoID); err != nil || w.Scopes[len(w.Scopes)-1] != nil {
		t.Errorf("scope %v, %v", w.Scopes[len(w.Scopes)-1], err)
	}
}

func TestConnectApp(t *testing.T) {
	valid := forgetest.GitHubApp(t).Connection()
	for name, change := range map[string]func(a *vcs.App){
		"no key": func(a *vcs.App) { a.PrivateKey = "" },
		"no PEM": func(a *vcs.App) { a.PrivateKey = "secret-text" },
		"no RSA": func(a *vcs.App) { a.PrivateKey = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" },
		"no id":  func(a *vcs.App) { a.ID = "" },
	} {
		c, app := valid, *valid.App
		change(&app)
		c.App = &app
		if _, err := new(Forge).Connect(c); err == nil || strings.Contains(err.Error(), "secret-text") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnchangedPulls checks that a poll without news costs one conditional request.
func TestUnchangedPulls(t *testing.T) {
	w := forgetest.GitHubToken(t)
	w.Commit(t, "feature", map[string]string{"x": "1"})
	w.OpenPull(t, forgetest.NewPull{Source: "feature"})
	connected, err := new(Forge).Connect(w.Connection())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := connected.(vcs.Pulls)
	repo := vcs.RepoID{Name: w.Name()}
	var cursor vcs.Cursor
	for i, want := range []int{1, 1, 0, 0} { // the second list also contains closed ones, and has a tag of its own
		var pulls []vcs.Pull
		if pulls, cursor, err = c.Pulls(t.Context(), repo, cursor); err != nil || len(pulls) != want {
			t.Errorf("%d: %d pull requests, cursor %q, %v", i, len(pulls), cursor, err)
		}
	}
}
