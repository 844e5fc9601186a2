package plain

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/vcs"
)

// TestPostReceive pushes with real git to a repository with the hook that is shipped.
func TestPostReceive(t *testing.T) {
	for _, name := range []string{"git", "perl", "curl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a-secret-of-the-hook-0123456789ab"
	var mu sync.Mutex
	var got []vcs.Event
	ids := map[string]bool{}
	answer, status := `{"accepted":1}`, http.StatusAccepted
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		d := vcs.Delivery{Header: map[string]string{"x-generic-vcs-signature": r.Header.Get("X-Generic-VCS-Signature")}, Body: body}
		if err := (Forge{}).Verify(d, [][]byte{[]byte(secret)}); err != nil || r.Header.Get("X-Generic-VCS-Integration-ID") != "int-1" {
			t.Errorf("%v, headers %v", err, r.Header)
		}
		parsed, err := Forge{}.Parse(d)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || len(parsed.Events) != 1 || ids[parsed.ID] {
			t.Errorf("%s: %+v, %v", body, parsed, err)
			return
		}
		ids[parsed.ID] = true
		got = append(got, parsed.Events[0])
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer+"\n")
	}))
	defer server.Close()

	dir := t.TempDir()
	bare, clone, secretFile := filepath.Join(dir, "app.git"), filepath.Join(dir, "clone"), filepath.Join(dir, "secret")
	if err := os.WriteFile(secretFile, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = in
		cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "REMOTE_USER=ada")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git(dir, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	for name, value := range map[string]string{"url": server.URL, "integration": "int-1", "secretFile": secretFile, "repoUrl": "https://git.example.com/team/app.git"} {
		git(bare, "config", "workflow."+name, value)
	}
	hook, err := os.ReadFile(filepath.Join(root, "examples", "git", "post-receive"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bare, "hooks", "post-receive"), hook, 0o755); err != nil {
		t.Fatal(err)
	}
	git(dir, "clone", "--quiet", bare, clone)
	git(clone, "config", "user.name", "Root")
	git(clone, "config", "user.email", "root@example.invalid")
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(clone, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		git(clone, "add", "--all")
		git(clone, "commit", "--quiet", "-m", "Add "+name)
		return git(clone, "rev-parse", "HEAD")
	}
	says := "workflow: reported "
	// push pushes, and returns the only event.
	push := func(args ...string) vcs.Event {
		t.Helper()
		mu.Lock()
		got = nil
		mu.Unlock()
		out := git(clone, append([]string{"push", "--force", "origin"}, args...)...)
		mu.Lock()
		defer mu.Unlock()
		if len(got) != 1 || !strings.Contains(out, says) || got[0].Repo.ID != "https://git.example.com/team/app" || got[0].Sender.Name != "ada" {
			t.Fatalf("events %+v\n%s", got, out)
		}
		return got[0]
	}
	first := write("a", "1")
	if e := push("main"); e.Kind != vcs.KindPush || e.Ref != "refs/heads/main" || e.Before != "" || e.After != first || e.Complete || strings.TrimSpace(e.Message) != "Add a" {
		t.Errorf("new branch: %+v", e)
	}
	second := write("infra/ä \"quoted\" $(x)", "1")
	if e := push("main"); e.Before != first || e.After != second || !e.Complete || !slices.Equal(e.Files, []string{"infra/ä \"quoted\" $(x)"}) {
		t.Errorf("push: %+v", e)
	}
	git(clone, "reset", "--quiet", "--hard", first)
	if e := push("main"); e.Before != second || e.After != first || e.Complete {
		t.Errorf("force push: %+v", e)
	}
	git(clone, "tag", "-a", "-m", "Release", "v1.0.0")
	if e := push("v1.0.0"); e.Kind != vcs.KindTag || e.Ref != "refs/tags/v1.0.0" || e.After != first {
		t.Errorf("row 38: annotated tag: %+v", e)
	}
	if e := push(":refs/tags/v1.0.0"); !e.Deleted {
		t.Errorf("deleted tag: %+v", e)
	}
	// The user sees what the server made of it.
	for _, tt := range []struct {
		status       int
		answer, says string
	}{
		{http.StatusAccepted, `{"accepted":0,"ignored":"repository-replaced","detail":"another\u001b repository"}`, "workflow: reported refs/heads/main; ignored: repository-replaced: another  repository"},
		{http.StatusUnauthorized, `{"code":401,"message":"Unauthorized: the signature is wrong"}`, "workflow: refs/heads/main not reported: status 401: Unauthorized: the signature is wrong"},
		{http.StatusForbidden, "<html>\n", "workflow: refs/heads/main not reported: status 403"},
	} {
		mu.Lock()
		answer, status, says = tt.answer, tt.status, tt.says
		mu.Unlock()
		write("b", tt.says)
		push("main")
	}
	// A receiver that fails does not fail the push.
	server.Close()
	write("b", "1")
	if out := git(clone, "push", "--force", "origin", "main"); !strings.Contains(out, "main not reported: curl could not reach") {
		t.Errorf("without a receiver: %s", out)
	}
}
