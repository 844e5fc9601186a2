package source_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// TestFetchOtherHashes checks that repositories with SHA-256 hashes are checked out like others.
func TestFetchOtherHashes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lab.GitOptions{SHA256: true})
	_, lib := f.repository(t, "group/lib", blob("file", "lib"))
	f.hostileBranch(t, "main", blob("Pulumi.yaml", "name: x\nruntime: yaml\n"), gitmodules("lib", "../lib.git"), gitlink("lib", lib))
	f.git(t, "tag", "v1", "main")
	commit := f.git(t, "rev-parse", "main")

	for name, src := range map[string]workflow.GitSource{
		"default branch": {},
		"branch":         {Branch: "main"},
		"commit":         {Commit: commit},
		"short commit":   {Commit: commit[:9]},
		"tag":            {Branch: "refs/tags/v1"},
		"history":        {Branch: "main", Depth: workflow.WholeHistory, Tags: true},
	} {
		got, err := f.fetch(t.Context(), t, src)
		if err != nil || got.Commit != commit {
			t.Errorf("%s: Fetch returned %v, %v, want %s\n%s", name, got, err, commit, f.log.String())
		}
	}
	got, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main", Submodules: true, RepoDir: "lib"})
	if err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	if text := readIn(t, got.ProgramDir, "file"); text != "lib" {
		t.Errorf("the submodule's file has %q", text)
	}

	// A hash of this length does not exist in other repositories.
	other := newFixture(t, lab.GitOptions{})
	want := "commit " + commit + " does not exist in the repository"
	if _, err := other.fetch(t.Context(), t, workflow.GitSource{Commit: commit}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Fetch returned %v, want %q", err, want)
	}
}
