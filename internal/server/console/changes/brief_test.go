package changes

import "testing"

// TestBrief checks the texts of an update's changes.
func TestBrief(t *testing.T) {
	short, long := Brief(map[string]int64{"delete": 1, "create": 12, "same": 9, "import": 2, "replace": 3})
	if short != "+12 +-3 -1 =2" || long != "12 created, 3 replaced, 1 deleted, 2 imported" {
		t.Errorf("%q, %q", short, long)
	}
	if short, long = Brief(map[string]int64{"same": 9}); short != "no changes" || long != "no resource changed" {
		t.Errorf("%q, %q", short, long)
	}
}
