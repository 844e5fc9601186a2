package service

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

// TestPages checks that a test of this package runs each command block of the pages about the server's
// packages. The tests that do so need a machine.
func TestPages(t *testing.T) {
	root := must.Get(lab.Root())(t)
	var tests strings.Builder
	for _, file := range must.Get(filepath.Glob("*_test.go"))(t) {
		tests.Write(must.Get(os.ReadFile(file))(t))
	}
	block := regexp.MustCompile("(?m)^(?:<!-- test: (.*) -->\n)?```sh$")
	for _, page := range []string{"server-install.md", "server-upgrade.md"} {
		text := string(harness.Read(t, filepath.Join(root, "docs", page)))
		for _, found := range block.FindAllStringSubmatch(text, -1) {
			if mark := found[1]; mark == "" || !strings.Contains(tests.String(), `"`+page+`", "`+mark+`"`) {
				t.Errorf("docs/%s: no test runs the commands with the mark %q", page, mark)
			}
		}
	}
}
