package attempts

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Unix(1_000_000_020, 0)

func TestCounter(t *testing.T) {
	const limit = 10
	c := New(limit)
	for range limit / 2 {
		if !c.Allowed("192.0.2.1", start) || !c.Fail("192.0.2.1", 2, start) {
			t.Fatal("limited too early")
		}
	}
	for key, want := range map[string]bool{"192.0.2.1": false, "192.0.2.2": true} {
		if c.Allowed(key, start) != want || c.Fail(key, 1, start) != want {
			t.Errorf("%s is not allowed = %t", key, want)
		}
	}
	if !c.Fail("192.0.2.1", 1, start.Add(time.Minute)) {
		t.Error("the limit lasts longer than the minute")
	}
}

func TestSource(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::ffff:1", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1%eth1", true},
		{"", "@", true},
	} {
		if same := Source(tt.a) == Source(tt.b); same != tt.same {
			t.Errorf("%s and %s have the same source: %t", tt.a, tt.b, same)
		}
	}
}

// TestMemory checks that many keys use a bounded memory, and are still limited together.
func TestMemory(t *testing.T) {
	c := New(1)
	refused := 0
	for i := range 3 * maxKeys {
		if !c.Fail(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 1, start) {
			refused++
		}
	}
	if len(c.counts) > maxKeys+1 || refused != 2*maxKeys-1 {
		t.Errorf("%d keys are remembered, and %d attempts refused", len(c.counts), refused)
	}
}
