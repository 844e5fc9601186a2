package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestEveryTestHasATier looks for tests of internal/e2e that no tier would run.
func TestEveryTestHasATier(t *testing.T) {
	files, err := filepath.Glob("../../e2e/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range test.FindAllSubmatch(text, -1) {
			tiers := 0
			for _, pattern := range []string{engineTests, initTests, faultTests, clientTests, packageTests} {
				if regexp.MustCompile(pattern).Match(found[1]) {
					tiers++
				}
			}
			if tiers != 1 {
				t.Errorf("%s in %s is in %d tiers", found[1], file, tiers)
			}
		}
	}
}
