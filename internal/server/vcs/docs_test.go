package vcs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
)

// TestReasonsAreDocumented compares the last table of docs/git.md with the reasons.
func TestReasonsAreDocumented(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "git.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| reason | meaning |\n|---|---|\n")
	var want strings.Builder
	for _, r := range Reasons() {
		fmt.Fprintf(&want, "| `%s` | %s |\n", r, r.Text())
	}
	if !found || table != want.String() {
		t.Errorf("docs/git.md has the table\n%s\nwant\n%s", table, want.String())
	}
}
