package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestSSHServerServesCommits(t *testing.T) {
	t.Parallel()
	if reason, ok := SSHAvailable(); !ok {
		t.Skip(reason)
	}
	repo, commit, err := startGitServer(t, GitOptions{}).NewRepo(t.Context(), "demo", map[string]string{"a": "b"})
	must.OK(t, err)
	server := must.Get(StartSSHServer(t.Context(), t.TempDir(), ""))(t)
	t.Cleanup(server.Close)

	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	hosts, key := write("known_hosts", server.KnownHosts), write("key", server.PrivateKey)
	client := func(key string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(gitEnv(), "GIT_SSH_COMMAND=ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes"+
			" -o UserKnownHostsFile="+hosts+" -o StrictHostKeyChecking=yes -i "+key)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	url := server.RepoURL(repo)
	if out, err := client(key, "git", "ls-remote", url, "refs/heads/main"); err != nil || !strings.HasPrefix(out, commit) {
		t.Errorf("listing the repository: %v\n%s", err, out)
	}
	clone := filepath.Join(dir, "clone")
	if out, err := client(key, "git", "clone", "--quiet", "--depth=1", url, clone); err != nil {
		t.Errorf("cloning the repository: %v\n%s", err, out)
	}
	if out, err := client(key, "git", "-C", clone, "push", "--quiet", "origin", "HEAD:refs/heads/evil"); err == nil {
		t.Errorf("a push was accepted:\n%s", out)
	}
	other := filepath.Join(dir, "other")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other).CombinedOutput(); err != nil {
		t.Fatalf("creating a key: %v\n%s", err, out)
	}
	if out, err := client(other, "git", "ls-remote", url); err == nil {
		t.Errorf("a key that is not the server's was accepted:\n%s", out)
	}
}
