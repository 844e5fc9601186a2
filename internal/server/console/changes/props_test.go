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
		{Path: "text", Kind: diff.Update, Lines: lines(" same", "-old", "+new", " end")},
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
		20: `~zone a|b; +rule |{ "port": 22 }; −text old|; + |new; −gone x|; 2 more properties`,
		3:  `~zone a|b; +rule |{ "port": 22 }; 4 more properties`,
	} {
		if got := said(most); got != want {
			t.Errorf("%d lines: %s, want %s", most, got, want)
		}
	}
}
