package redact

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf16"
)

// TestInvisibleBytesWithinSecrets writes a secret with bytes in between that a reader does not see.
func TestInvisibleBytesWithinSecrets(t *testing.T) {
	const secret = "tok-4f8e2b7716aa9d"
	set := New(Secret{Name: "TOKEN", Value: secret}, Secret{Name: "other", Value: "31mred"})
	wide := func(order [2]int) string { // UTF-16
		var out []byte
		for _, unit := range utf16.Encode([]rune(secret)) {
			pair := [2]byte{byte(unit), byte(unit >> 8)}
			out = append(out, pair[order[0]], pair[order[1]])
		}
		return string(out)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"UTF-16, little end first": {"a " + wide([2]int{0, 1}) + "\n", "a " + Marker + "\x00\n"},
		"UTF-16, big end first":    {"a " + wide([2]int{1, 0}) + "\n", "a \x00" + Marker + "\n"},
		"the match of a search":    {"key=tok-4\x1b[01;31m\x1b[Kf8e\x1b[m\x1b[K2b7716aa9d end\n", "key=" + Marker + " end\n"},
		"colours around it":        {"\x1b[31m" + secret + "\x1b[0m\n", "\x1b[31m" + Marker + "\x1b[0m\n"},
		"tput":                     {"tok-4f8e2b\x1b(B\x1b[m7716aa9d\n", Marker + "\n"},
		"a link":                   {"\x1b]8;;https://x/?t=" + secret + "\x1b\\text\n", "\x1b]8;;https://x/?t=" + Marker + "\x1b\\text\n"},
		"no secret":                {"a\x1b[31mred\x00\x1b[0m b\x1b[\n", "a\x1b[31mred\x00\x1b[0m b\x1b[\n"},
		"cut off":                  {"a tok-4f\x1b[3", "a " + Marker + "\x1b[3"},
		"an endless sequence":      {"\x1b[" + strings.Repeat("1", 100) + "tok-\x1b[1m4f8e2b7716aa9d", "\x1b[" + strings.Repeat("1", 100) + Marker},
	} {
		for _, cuts := range [][]byte{nil, {0}, {2}, {8, 0, 1}} {
			if got := mask(t, set, tt.text, cuts); got != tt.want {
				t.Errorf("%s, cuts %v: got %q, want %q", name, cuts, got, tt.want)
			}
		}
		if !set.Has([]byte(tt.text)) != (tt.text == tt.want) {
			t.Errorf("%s: Has returned the opposite", name)
		}
	}
	// Whatever the text, neither the cuts nor the parts of sequences matter.
	parts := []string{"tok", "-4f8e2b7716", "aa9d", "31mred", "\x1b", "[", "\x1b[3", "1m", "\x1b(", "B", "\x00", "\n", "\r", "x", "é", "\xc3", strings.Repeat(";", 30)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var text strings.Builder
		for range random.IntN(25) {
			text.WriteString(parts[random.IntN(len(parts))])
		}
		want := reference(set.needlesForTest(), text.String())
		cuts := []byte{byte(random.IntN(9)), byte(random.IntN(9))}
		if got := mask(t, set, text.String(), cuts); got != want {
			t.Fatalf("%q with cuts %v: got %q, want %q", text.String(), cuts, got, want)
		}
	}
}

// TestHeldInvisibleBytesAreBounded writes invisible bytes within what can be a secret.
func TestHeldInvisibleBytesAreBounded(t *testing.T) {
	var out writes
	w := New(Secret{"a", "hunter22"}).Writer(&out)
	for _, text := range append([]string{"hunt"}, strings.Split(strings.Repeat(strings.Repeat("\x00", 1000)+" ", 100), " ")...) {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if len(w.held) > 5*maxHeld {
			t.Fatalf("%d bytes are held back", len(w.held))
		}
	}
	if err := w.Close(); err != nil || !strings.HasPrefix(strings.Join(out, ""), "hunt\x00") {
		t.Errorf("Close: %v, out %.20q", err, out)
	}
}
