package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"workflowagent/internal/dev/must"
)

// TestEveryPackageHasATier checks that every package of internal/dev/e2e has a tier, and that all
// tests of an engine are in packages that the engine tier runs.
func TestEveryPackageHasATier(t *testing.T) {
	dirs, err := filepath.Glob("../../e2e/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%d directories, %v", len(dirs), err)
	}
	names := map[string]bool{"harness": true, "forge": true} // make gitea runs forge
	for _, tier := range tiers() {
		names[tier.name] = true
	}
	engineTest := regexp.MustCompile(`(?m)^func TestEngine`)
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if !names[name] {
			t.Errorf("no tier runs internal/dev/e2e/%s", name)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			if engineTest.Match(text) && name != "engine" && name != "clients" && name != "faults" {
				t.Errorf("%s has tests of an engine, which the engine tier does not run", file)
			}
		}
	}
}

func TestMissingRaceDetectorIsAFailure(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	reason := raceMissing(t.Context())
	if !strings.Contains(reason, "no-such-compiler") {
		t.Errorf("without a C compiler: %q", reason)
	}
	t.Setenv("CC", "true")
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

func TestChoose(t *testing.T) {
	all, err := choose(tiers(), "")
	if err != nil || len(all) != len(tiers()) {
		t.Errorf("without a list: %d tiers, %v", len(all), err)
	}
	some, err := choose(tiers(), "unit,cluster")
	var names []string
	for _, tier := range some {
		names = append(names, tier.name)
	}
	if err != nil || strings.Join(names, " ") != "cluster unit" {
		t.Errorf("with a list of two: %q, %v", names, err)
	}
	if _, err := choose(tiers(), "unit,nope"); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("with an unknown tier: %v", err)
	}
}

func TestTiersRunInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := make(chan string, 3)
		end := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
		go inTurn([]tier{{name: "a"}, {name: "b"}, {name: "c"}}, 2, func(t tier) {
			started <- t.name
			<-end[t.name]
		})
		synctest.Wait()
		if n := len(started); n != 2 {
			t.Fatalf("%d tiers have started, want 2", n)
		}
		two := []string{<-started, <-started}
		slices.Sort(two)
		if strings.Join(two, "") != "ab" {
			t.Errorf("the first tiers are %q, want a and b", two)
		}
		close(end["b"])
		synctest.Wait()
		if len(started) != 1 || <-started != "c" {
			t.Error("the third tier does not follow the second")
		}
		close(end["a"])
		close(end["c"])
	})
}

func TestCauses(t *testing.T) {
	out := "ok  \ta\t1s\n--- FAIL: TestOne (3.00s)\n    --- FAIL: TestOne/part (1.00s)\n        x_test.go:1: text\nFAIL\nFAIL\tb\t2s\n"
	want := []string{"unit: --- FAIL: TestOne (3.00s)", "unit: --- FAIL: TestOne/part (1.00s)", "unit: FAIL\tb\t2s"}
	if got := causes("unit", out); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
