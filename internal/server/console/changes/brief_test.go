package changes

import (
	"fmt"
	"strings"
	"testing"

	"workflowagent/internal/server/stacks/changes"
)

// TestBrief checks the texts of an update's changes.
func TestBrief(t *testing.T) {
	short, long := Brief(map[string]int64{"delete": 1, "create": 12, "same": 9, "import": 2, "replace": 3})
	if short != "+12 ±3 −1 =2" || long != "12 created, 3 replaced, 1 deleted, 2 imported" {
		t.Errorf("%q, %q", short, long)
	}
	if short, long = Brief(map[string]int64{"same": 9}); short != "no changes" || long != "no resource changed" {
		t.Errorf("%q, %q", short, long)
	}
}

// TestReplacements counts the steps of a replacement once.
func TestReplacements(t *testing.T) {
	for want, counts := range map[string]map[string]int{
		"1 create, 2 replace of 8": {"create": 1, "replace": 2, "create-replacement": 2, "delete-replaced": 2, "same": 5},
		"3 replace of 4":           {"create-replacement": 3, "delete-replaced": 2, "same": 1},
		"1 future of 1":            {"future": 1},
	} {
		var parts []string
		list, all := Totals(changes.Tree{Totals: counts})
		for _, total := range list {
			parts = append(parts, fmt.Sprint(total.Count, " ", total.Op))
		}
		if got := fmt.Sprintf("%s of %d", strings.Join(parts, ", "), all); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
