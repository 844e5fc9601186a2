package vcs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
)

// TestReasonsAreDocumented compares the last list of docs/git.md with the reasons.
func TestReasonsAreDocumented(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "git.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(page), "These are the reasons:\n\n")
	var want strings.Builder
	for _, r := range Reasons() {
		fmt.Fprintf(&want, "* `%s`: %s\n", r, r.Text())
	}
	if !found || list != want.String() {
		t.Errorf("docs/git.md has the list\n%s\nwant\n%s", list, want.String())
	}
}
