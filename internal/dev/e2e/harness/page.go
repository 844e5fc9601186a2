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

// Block returns the code block after a mark in a page of docs/.
func Block(t *testing.T, page, mark string) string {
	t.Helper()
	root := must.Get(lab.Root())(t)
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", page)))(t)
	_, after, found := strings.Cut(string(text), "<!-- test: "+mark+" -->\n```")
	_, after, begun := strings.Cut(after, "\n")
	block, _, closed := strings.Cut(after, "```")
	if !found || !begun || !closed {
		t.Fatalf("docs/%s has no code block after the mark %q", page, mark)
	}
	return block
}

// CodeBlock is a code block of a page.
type CodeBlock struct{ Language, Text string }

var fence = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")

// Blocks returns all code blocks of a page of docs/, without the indentation of those in lists.
func Blocks(t *testing.T, page string) []CodeBlock {
	t.Helper()
	root := must.Get(lab.Root())(t)
	text := must.Get(os.ReadFile(filepath.Join(root, "docs", page)))(t)
	var blocks []CodeBlock
	for _, match := range fence.FindAllStringSubmatch(string(text), -1) {
		lines := strings.ReplaceAll("\n"+match[3], "\n"+match[1], "\n")
		blocks = append(blocks, CodeBlock{match[2], lines[1:]})
	}
	return blocks
}

// FromPage is [Script] for docs/installation.md.
func FromPage(t *testing.T, mark string, values map[string]string) string {
	t.Helper()
	return Script(t, "installation.md", mark, values)
}

// Script returns the commands after a mark in a page of docs/ as a script that stops at the first failure,
// with values replaced in its lines NAME=VALUE. In the script, sudo does nothing but set variables.
func Script(t *testing.T, page, mark string, values map[string]string) string {
	t.Helper()
	commands := Block(t, page, mark)
	for name, value := range values {
		commands = regexp.MustCompile(`(?m)^`+name+`=.*$`).ReplaceAllLiteralString(commands, name+"="+value)
	}
	return "set -e\nsudo() { env \"$@\"; }\n" + commands
}
