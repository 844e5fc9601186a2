package changes

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/stacks/changes/diff"
)

// TestFirstLines shows the lines that differ, and counts the properties for which there is no room.
func TestFirstLines(t *testing.T) {
	lines := func(text ...string) (list []diff.Line) {
		for _, l := range text {
			list = append(list, diff.Line{Kind: map[byte]diff.Kind{'+': diff.Add, '-': diff.Delete, ' ': ""}[l[0]], Text: l[1:]})
		}
		return list
	}
	d := diff.Diff{More: 2, Changes: []diff.Change{
		{Path: "zone", Kind: diff.Update, Replace: true, Old: "a", New: "b"},
		{Path: "rule", Kind: diff.Add, Lines: lines("+{", `+  "port": 22`, "+}")},
		{Path: "text", Kind: diff.Update, Lines: lines(" same", "-old", "-gone", "+new", " end", "-last")},
		{Path: "gone", Kind: diff.Delete, Old: "x"},
	}}
	said := func(most int) string {
		list, more := firstLines(d, most)
		var out []string
		for _, l := range list {
			out = append(out, fmt.Sprintf("%s%s %s|%s", l.mark(), l.Path, l.Old, l.New))
		}
		return fmt.Sprint(strings.Join(out, "; "), "; ", moreProperties(more))
	}
	for most, want := range map[int]string{
		20: `~zone a|b; +rule |{ "port": 22 }; ~text old|new; − gone|; − last|; −gone x|; 2 more properties`,
		3:  `~zone a|b; +rule |{ "port": 22 }; 4 more properties`,
	} {
		if got := said(most); got != want {
			t.Errorf("%d lines: %s, want %s", most, got, want)
		}
	}
}

// TestBriefValues shows texts without quotes unless they could be another value, and the size of objects and lists.
func TestBriefValues(t *testing.T) {
	for value, want := range map[string]string{
		`"eu-west-1"`: "eu-west-1", `"22"`: `"22"`, `"true"`: `"true"`, `""`: `""`, `" a"`: `" a"`, `"none"`: `"none"`, `"[secret]"`: `"[secret]"`, `"a\tb"`: `"a\tb"`,
		`{ "a": 1, "b": [] }`: "{…} 2 properties", `{ "a": 1 }`: `{ "a": 1 }`, `[1, 2, 3]`: "[…] 3 values", `[1]`: `[1]`, "[secret]": "[secret]", "7": "7", `{ "a": …`: `{ "a": …`,
	} {
		if got := (line{Path: "p"}).brief(value); got != want {
			t.Errorf("%s is shown as %s, want %s", value, got, want)
		}
	}
	if got := (line{}).brief(`"a"`); got != `"a"` {
		t.Errorf("a part of a value is shown as %s", got)
	}
}
