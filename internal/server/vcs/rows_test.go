package vcs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"workflowagent/internal/dev/lab"
)

// rowCount is the number of cases in the design's table: what each event means under which settings.
const rowCount = 95

var (
	// rowNames matches the names of rows in tests: "row 7", "rows 19, 20", "TestRow71And72Labels".
	rowNames = regexp.MustCompile(`(?i)\brows? ((?:\d+(?:, | and )?)+)|\bTestRow((?:\d+(?:And)?)+)`)
	digits   = regexp.MustCompile(`\d+`)
)

// TestRowsAreNamed checks that tests name every row of the table.
func TestRowsAreNamed(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	named := map[int]bool{}
	for _, dir := range []string{"internal/server", "internal/dev/forgetest", "internal/dev/e2e/forge", "internal/dev/e2e/clients"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, ".txtar") && !strings.Contains(path, "forgetest") {
				return err
			}
			content, err := os.ReadFile(path)
			for _, m := range rowNames.FindAllSubmatch(content, -1) {
				for _, n := range digits.FindAll(append(m[1], m[2]...), -1) {
					row, _ := strconv.Atoi(string(n)) // 0 is no row
					named[row] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for row := 1; row <= rowCount; row++ {
		if !named[row] {
			t.Errorf("no test names row %d", row)
		}
	}
}
