package harness

import (
	"context"
	"os"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// Read returns the content of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	return data
}

// Write creates or overwrites a file.
func Write(t testing.TB, path string, data []byte, mode os.FileMode) {
	t.Helper()
	must.OK(t, os.WriteFile(path, data, mode))
}

// Repo creates a repository with [YamlProgram].
func (w *Site) Repo(ctx context.Context, t testing.TB) *lab.Repo {
	t.Helper()
	repo, _, err := w.Git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": YamlProgram})
	must.OK(t, err)
	return repo
}
