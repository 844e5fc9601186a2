package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// FromPage returns the commands after a mark in docs/installation.md as a script that stops at the
// first failure, with values replaced in its lines NAME=VALUE. In the script, sudo is a no-op for
// root.
func FromPage(t *testing.T, mark string, values map[string]string) string {
	t.Helper()
	root := must.Get(lab.Root())(t)
	page := must.Get(os.ReadFile(filepath.Join(root, "docs", "installation.md")))(t)
	_, after, found := strings.Cut(string(page), "<!-- test: "+mark+" -->\n```sh\n")
	commands, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatalf("docs/installation.md has no commands after the mark %q", mark)
	}
	for name, value := range values {
		commands = regexp.MustCompile(`(?m)^`+name+`=.*$`).ReplaceAllLiteralString(commands, name+"="+value)
	}
	return "set -e\nsudo() { \"$@\"; }\n" + commands
}
