package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/lab"
)

// TestFaultSecretsStayHidden plants secrets wherever a user can put one, has a
// job print what it can see of them, and then looks for them in everything that
// server, agent and runner have written, and in what the API answers.
func TestFaultSecretsStayHidden(t *testing.T) {
	ctx := t.Context()
	w := testWorld(t, "")
	git, err := lab.StartGitServer(ctx, filepath.Join(w.dir, "private"), lab.GitOptions{Username: "builder", Password: "git-password-5151"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = git.Close() })
	repo, _, err := git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": yamlProgram})
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.startAgent(ctx, "process", map[string]string{"env_forward_allowlist": "CLOUD_KEY"}, "CLOUD_KEY=forwarded-key-6262")
	if err != nil {
		t.Fatal(err)
	}
	s := w.newStack(ctx, t, "box", "dev", "", nil)
	patch := map[string]any{
		"operationContext": map[string]any{
			"environmentVariables": map[string]any{"API_TOKEN": map[string]string{"secret": "settings-token-7373"}},
		},
		"sourceContext": map[string]any{"git": map[string]any{
			"repoUrl": repo.URL, "branch": "main",
			"gitAuth": map[string]any{"basicAuth": map[string]any{
				"userName": map[string]string{"secret": "builder"}, "password": map[string]string{"secret": "git-password-5151"},
			}},
		}},
	}
	if err := w.server.Call(ctx, http.MethodPost, s.path("settings"), patch, nil); err != nil {
		t.Fatal(err)
	}
	d := s.deploy(ctx, t, "update", repo.URL,
		`echo "$API_TOKEN and $CLOUD_KEY"; printf %s "$API_TOKEN" | base64; printf 'x%s' "$CLOUD_KEY" | base64`,
		`env; cat /proc/$PPID/cmdline | tr '\0' ' '`, `echo "$PULUMI_ACCESS_TOKEN"`)
	d = s.finish(ctx, t, d)
	log := s.log(ctx, t, d)
	if d.Status != "succeeded" {
		t.Fatalf("%+v\n%s", d, log)
	}
	if n := strings.Count(log, "[secret]"); n < 5 {
		t.Errorf("only %d secrets were masked, so the job did not show them:\n%s", n, log)
	}

	secrets := []string{"git-password-5151", "forwarded-key-6262", "settings-token-7373", w.pool.token}
	for _, secret := range slices.Clone(secrets) {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(secret))[:len(secret)*4/3-1])
	}
	look := func(where string, content []byte) {
		for _, secret := range secrets {
			if bytes.Contains(content, []byte(secret)) {
				t.Errorf("%s holds the secret %q", where, secret)
			}
		}
	}
	look("the log", []byte(log))
	look("the agent's log", mustRead(t, agent.LogFile))
	look("the server's log", mustRead(t, w.server.LogFile))
	for _, path := range []string{s.path("settings"), s.path(d.ID)} {
		var answer json.RawMessage
		if err := w.server.Call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			t.Fatal(err)
		}
		look(path, answer)
	}
	if err := agent.Process.Stop(syscall.SIGTERM, 15*time.Second); err != nil { // nothing is being removed while we look
		t.Fatal(err)
	}
	for _, dir := range []string{w.server.DataDir, filepath.Dir(agent.LogFile)} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			look(path, content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]os.FileMode{"admin-token": 0o600, "master-key": 0o600} {
		info, err := os.Stat(filepath.Join(w.server.DataDir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want it to be readable by its owner only", name, info, err)
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
