package source

import (
	"slices"
	"strings"
	"testing"
)

func TestDifference(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{"", "a\nb\n", "+a|+b"},
		{"a\nb\n", "", "-a|-b"},
		{"a\nb\nc\nd\ne\nf\ng\n", "a\nb\nc\nX\ne\nf\ng\n", "… b c-d+X e f"},
		{"a\nb\nc\n", "a\nc\nd\n", " a-b c+d"},
		{"1\na\na\na\na\na\na\n2\n", "3\na\na\na\na\na\na\n4\n", "-1+3 a a… a a-2+4"},
	} {
		got := strings.Join(differing(c.before, c.after), "")
		if want := strings.ReplaceAll(c.want, "|", ""); got != strings.TrimPrefix(want, "…") {
			t.Errorf("%q to %q: %q, not %q", c.before, c.after, got, want)
		}
	}
	long := strings.Repeat("line\n", 5000)
	if got := differing(long+"x\n", strings.Repeat("other\n", 5000)); len(got) != maxShown+1 || !slices.Contains(got, "…") {
		t.Errorf("the difference of long texts has %d lines", len(got))
	}
}
