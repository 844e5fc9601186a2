package forgetest

import (
	"os"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// RealWorld is a repository of a real Gitea, whose owner is the account Deployer.
type RealWorld interface {
	World
	// CommitOnly adds a commit to a branch of the clone, which it does not push.
	CommitOnly(t *testing.T, branch string, files map[string]string) string
	// PushFork pushes a branch of the clone to the fork of a pull request.
	PushFork(t *testing.T, number int, branch string)
	// DeleteBranch deletes a branch.
	DeleteBranch(t *testing.T, branch string)
	// Retarget changes the base of a pull request.
	Retarget(t *testing.T, number int, base string)
	// AddHook registers a webhook as an owner does by hand.
	AddHook(t *testing.T, address, secret string)
	// DeleteHooks deletes all webhooks.
	DeleteHooks(t *testing.T)
	// TestHook makes the forge send a test delivery to each webhook.
	TestHook(t *testing.T)
}

// StartGitea starts a real Gitea, which is built first if the machine has none: that takes minutes,
// so the tests must be asked for.
func StartGitea(t *testing.T) *lab.Gitea {
	t.Helper()
	if os.Getenv("WORKFLOW_GITEA") == "" {
		t.Skip("a real Gitea takes minutes to build: run make gitea")
	}
	dir := must.Get(os.MkdirTemp("", "gitea"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := must.Get(lab.StartGitea(t.Context(), dir, os.Stderr))(t)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// GiteaUsers creates the accounts on a real Gitea, and returns their tokens.
func GiteaUsers(t *testing.T, server *lab.Gitea) map[string]string {
	t.Helper()
	tokens := map[string]string{}
	for _, name := range []string{Deployer, Writer, Reader} {
		token := must.Get(server.NewUser(t.Context(), name, false, "all"))(t)
		tokens[name] = token
	}
	return tokens
}
