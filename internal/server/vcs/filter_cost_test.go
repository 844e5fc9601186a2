package vcs_test

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
)

// Whoever may change a stack's settings chooses the patterns, and whoever may push the names. A database
// takes no other write while they are compared.
func TestFiltersAreCheapToCompare(t *testing.T) {
	for n := 1; n < 100; n++ {
		bomb := strings.Repeat("{a,a}", n) + "b"
		refused := vcs.CheckFilter([]string{bomb}) != nil
		if want := n > 8; refused != want {
			t.Fatalf("%d braces: refused %v", n, refused)
		}
		// Settings of before can contain it.
		if got := (vcs.Filter{bomb}).Match(strings.Repeat("a", n)); got != refused {
			t.Errorf("%d braces: included %v", n, got)
		}
		if got := (vcs.Filter{"!" + bomb}).Match(strings.Repeat("a", n)); !got {
			t.Errorf("%d braces: excluded", n)
		}
	}
	for glob, want := range map[string]bool{
		"{{a,b},{c,{d,e}}}/**.{ts,tsx,js}": true, `\{a,b\}`: true, "[{,]{a,b}": true,
		"{" + strings.Repeat("a,", 200) + "a}": true, strings.Repeat("{a,[},]}", 9): false,
		strings.Repeat("{", 60) + "a,a" + strings.Repeat("}", 60): true,
		strings.Repeat("{{a,b},{a,b}}", 5):                        false,
	} {
		if err := vcs.CheckFilter([]string{glob}); (err == nil) != want {
			t.Errorf("%q: %v", glob, err)
		}
	}
}

func TestManyNamesAreNotCompared(t *testing.T) {
	var long vcs.Filter
	for i := range 200 {
		long = append(long, fmt.Sprintf("*%0500d", i+1))
	}
	tag := strings.Repeat("0", 900)
	many := make([]string, 100)
	for i := range many {
		many[i] = strings.Repeat("0", 200)
	}
	w := vcs.Watch{DeployCommits: true, Branch: "main", Paths: long, DeployTags: true, TagFilters: long}
	push := vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", After: one}
	for _, tt := range []struct {
		name  string
		event vcs.Event
		files vcs.Files
		want  vcs.Action
	}{
		{"few files", push, vcs.Files{Names: []string{"0"}, Known: true}, vcs.ActionNone},
		{"many files", push, vcs.Files{Names: append(many, strings.Repeat("0", 4096)), Known: true}, vcs.ActionUpdate},
		{"short tag", vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/0", After: one}, vcs.Files{}, vcs.ActionNone},
		{"long tag", vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/" + tag, After: one}, vcs.Files{}, vcs.ActionUpdate},
	} {
		if d := vcs.MatchRef(tt.event, w, tt.files, false); d.Action != tt.want {
			t.Errorf("%s: got %+v", tt.name, d)
		}
	}
	if vcs.CheapTags([]vcs.Filter{long}, many) || !vcs.CheapTags([]vcs.Filter{{"v*"}}, many) {
		t.Error("the time for tags is not bounded")
	}
}

// What was compared before a transaction is not compared in it.
func TestComparedFiles(t *testing.T) {
	w := vcs.Watch{DeployCommits: true, Branch: "main", Paths: []string{"infra/**"}}
	push := vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", After: one}
	files := vcs.Files{Names: []string{"x"}, Known: true}.Compared(t.Context(), []vcs.Watch{w})
	files.Names[0] = "infra/x"
	if d := vcs.MatchRef(push, w, files, false); d.Action != vcs.ActionNone {
		t.Errorf("compared again: %+v", d)
	}
	w.Paths = []string{"infra/*"} // changed since
	if d := vcs.MatchRef(push, w, files, false); d.Action != vcs.ActionUpdate {
		t.Errorf("got %+v", d)
	}
}
