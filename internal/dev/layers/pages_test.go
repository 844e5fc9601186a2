package layers

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// namedTest matches the name of a test in a page, such as `TestArchives`, or the common prefix of
// several tests, such as `TestDiskFull…`.
var namedTest = regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z]\w*)(…?)`)

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestPagesNameExistingTests checks that every test that a page names as evidence exists.
func TestPagesNameExistingTests(t *testing.T) {
	t.Parallel()
	tests := testFunctions(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("finding the pages: %v, %d found", err, len(pages))
	}
	named := 0
	for _, page := range pages {
		text := must.Get(os.ReadFile(page))(t)
		for _, match := range namedTest.FindAllStringSubmatch(string(text), -1) {
			named++
			if !declared(tests, match[1], match[2] != "") {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), match[0])
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test: the pattern of this test is wrong")
	}
}

func declared(tests map[string]bool, name string, prefix bool) bool {
	if !prefix {
		return tests[name]
	}
	for test := range tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}

func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, match := range testFunction.FindAllStringSubmatch(string(source), -1) {
				tests[match[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tests
}
