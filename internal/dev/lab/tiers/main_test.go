package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryTestHasATier looks for tests of internal/dev/e2e that no tier would run.
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

func TestMissingRaceDetectorIsAFailure(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	t.Setenv("CGO_ENABLED", "1")
	reason := raceMissing(t.Context())
	if !strings.Contains(reason, "no-such-compiler") {
		t.Errorf("without a C compiler: %q", reason)
	}
	t.Setenv("CC", "true")
	t.Setenv("CGO_ENABLED", "0")
	if reason := raceMissing(t.Context()); !strings.Contains(reason, "CGO_ENABLED") {
		t.Errorf("without cgo: %q", reason)
	}
	t.Setenv("CGO_ENABLED", "1")
	if reason := raceMissing(t.Context()); reason != "" {
		t.Errorf("with all it needs: %q", reason)
	}
	if err := conclude(nil, []string{raceDetector}, true); err == nil || !strings.Contains(err.Error(), raceDetector) {
		t.Errorf("required and missing: %v", err)
	}
	if err := conclude(nil, []string{raceDetector}, false); err != nil {
		t.Errorf("not required: %v", err)
	}
}
