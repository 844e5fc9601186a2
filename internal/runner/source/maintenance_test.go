package source_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/workflow"
)

// TestFetchStartsNoMaintenance checks that git starts no maintenance of the checkout. Newer versions do so
// in the background, where it changes files below .git while the steps of the job run.
func TestFetchStartsNoMaintenance(t *testing.T) {
	f := newFixture(t, lab.GitOptions{})
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	script := fmt.Sprintf("#!/bin/sh\nGIT_TRACE2=%s exec %s \"$@\"\n", trace, git)
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if _, err := f.fetch(t.Context(), t, workflow.GitSource{Branch: "main"}); err != nil {
		t.Fatalf("%v\n%s", err, f.log.String())
	}
	text, err := os.ReadFile(trace)
	if err != nil || !strings.Contains(string(text), "fetch") {
		t.Fatalf("git was not traced: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "child_start") && strings.Contains(line, "maintenance") {
			t.Errorf("git starts maintenance: %s", line)
		}
	}
}
