package vcs_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
)

func TestFilter(t *testing.T) {
	for _, tt := range []struct {
		patterns string // separated by spaces
		name     string
		want     bool
	}{
		{"", "anything", true},
		{"infra/**", "infra/a/b", true},
		{"infra/**", "infra", true},
		{"infra/**", "other/infra/a", false},
		{"migrations/*", "migrations/a/x", false},
		{"**/{apps,libs}/**", "x/apps/y", true},
		{"**", ".github/workflows/x.yaml", true},
		{"*.yaml", ".hidden.yaml", true},
		{"Infra/**", "infra/a", false},
		{"!docs/** infra/** docs/keep", "docs/keep", false},
		{"!docs/**", "docs/x", false},
		{"!docs/**", "src/x", true},
		{"a/[b", "a/[b", false},
	} {
		if got := vcs.Filter(strings.Fields(tt.patterns)).Match(tt.name); got != tt.want {
			t.Errorf("%q selects %q: %v", tt.patterns, tt.name, got)
		}
	}
}

func TestCheckFilter(t *testing.T) {
	for _, good := range []string{"infra/**", "!infra/docs/**", "**/{a,b}/*.go", "v*", "a", "release/v[0-9]*", `a\*b`} {
		if err := vcs.CheckFilter([]string{good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, hint := range map[string]string{
		"":                       "empty",
		"!":                      "empty",
		"/infra/**":              `write "infra/**"`,
		"!/infra/**":             `write "infra/**"`,
		"./infra/**":             `write "infra/**"`,
		"infra/":                 `write "infra/**"`,
		"a/[b":                   "not a valid glob",
		"{a":                     "not a valid glob",
		strings.Repeat("a", 600): "longer",
	} {
		if err := vcs.CheckFilter([]string{"ok", bad}); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%.20q: got %v, want %s", bad, err, hint)
		}
	}
	if err := vcs.CheckFilter(make([]string, 201)); err == nil {
		t.Error("accepted 201 patterns")
	}
}

func TestReasonsHaveTexts(t *testing.T) {
	for _, r := range vcs.Reasons() {
		if text := r.Text(); !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q", r, text)
		}
	}
}

func TestCommit(t *testing.T) {
	for in, want := range map[string]string{
		strings.Repeat("0", 40): "", strings.Repeat("0", 64): "", "": "", " " + strings.ToUpper("abcdef") + "\n": "abcdef", one: one,
	} {
		if got := vcs.Commit(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("infra/**", "infra/a")
	f.Add("!{a,b}/[c-d]", "a/c")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		filter := vcs.Filter{pattern}
		if vcs.CheckFilter(filter) != nil || strings.HasPrefix(pattern, "!!") {
			return
		}
		if got, excludes := filter.Match(name), strings.HasPrefix(pattern, "!"); excludes && got == (vcs.Filter{pattern[1:]}).Match(name) {
			t.Errorf("%q and its opposite agree about %q", pattern, name)
		}
	})
}
