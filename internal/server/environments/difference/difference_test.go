package difference_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"workflowagent/internal/server/environments/difference"
)

// text returns the lines of a difference as one text.
func text(list []difference.Line) string {
	var b strings.Builder
	for _, l := range list {
		fmt.Fprintf(&b, "%c%d,%d %s\n", l.Op, l.Old, l.New, l.Text)
	}
	return b.String()
}

func TestLines(t *testing.T) {
	for _, tt := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\n", "a", " 1,1 a\n"},
		{"", "a\nb\n", "+0,1 a\n+0,2 b\n"},
		{"a\nb\n", "", "-1,0 a\n-2,0 b\n"},
		{"a\nb\nc\n", "a\nx\nc\n", " 1,1 a\n-2,0 b\n+0,2 x\n 3,3 c\n"},
		{"a\nb\nc\nd\n", "b\nc\nx\nd\ne\n", "-1,0 a\n 2,1 b\n 3,2 c\n+0,3 x\n 4,4 d\n+0,5 e\n"},
		{"a\na\n", "a\n", " 1,1 a\n-2,0 a\n"},
	} {
		if got := text(difference.Lines(tt.before, tt.after)); got != tt.want {
			t.Errorf("%q to %q:\n%swant\n%s", tt.before, tt.after, got, tt.want)
		}
	}
}

// TestRebuilds checks that the lines of a difference are those of both texts in their order, with the fewest changes.
func TestRebuilds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	of := func() string {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteString(string(rune('a'+random.IntN(4))) + "\n")
		}
		return b.String()
	}
	for range 2000 {
		before, after := of(), of()
		list := difference.Lines(before, after)
		var a, b strings.Builder
		edits := 0
		for _, l := range list {
			if l.Op != difference.Added {
				a.WriteString(l.Text + "\n")
			}
			if l.Op != difference.Removed {
				b.WriteString(l.Text + "\n")
			}
			if l.Op != difference.Same {
				edits++
			}
		}
		if a.String() != before || b.String() != after {
			t.Fatalf("%q to %q: %q and %q", before, after, a.String(), b.String())
		}
		if want := fewest(before, after); edits != want {
			t.Fatalf("%q to %q: %d changes, want %d:\n%s", before, after, edits, want, text(list))
		}
	}
}

// fewest is the smallest number of removed and added lines, by the longest common sequence.
func fewest(before, after string) int {
	a, b := strings.Fields(before), strings.Fields(after)
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			diagonal = above
		}
	}
	return len(a) + len(b) - 2*row[len(b)]
}

// TestTooDifferent compares large texts without a common line in bounded time.
func TestTooDifferent(t *testing.T) {
	var a, b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&a, "%d\n", i)
		fmt.Fprintf(&b, "%d\n", -i-1)
	}
	list := difference.Lines("first\n"+a.String(), "first\n"+b.String())
	if len(list) != 200_001 || list[0].Op != difference.Same || list[1].Op != difference.Removed || list[200_000].New != 100_001 {
		t.Errorf("%d lines, from %+v to %+v", len(list), list[:2], list[len(list)-1])
	}
}

func TestAround(t *testing.T) {
	lines := func(n int, changed ...int) string {
		var b strings.Builder
		for i := range n {
			word := "same"
			for _, c := range changed {
				if c == i {
					word = "changed"
				}
			}
			fmt.Fprintf(&b, "%d %s\n", i, word)
		}
		return b.String()
	}
	list := difference.Lines(lines(30), lines(30, 5, 8, 20))
	parts := difference.Around(list, 2)
	if len(parts) != 2 || parts[0][0].Old != 4 || parts[0][len(parts[0])-1].Old != 11 || parts[1][0].Old != 19 || parts[1][len(parts[1])-1].Old != 23 {
		for _, p := range parts {
			t.Errorf("a part:\n%s", text(p))
		}
	}
	if parts := difference.Around(difference.Lines("a", "a"), 3); parts != nil {
		t.Errorf("equal texts have the parts %v", parts)
	}
}
