package workflow

import (
	"regexp"
	"strings"
	"testing"
)

// TestNamesAreCheckedAsDescribed checks that the hand-written checks accept exactly the strings
// that these expressions match.
func TestNamesAreCheckedAsDescribed(t *testing.T) {
	texts := []string{
		"", "a", "Z9", "_x", "/bin/bash", "-c", ".x", "a b", "a=b", "a\nb", "a\x7f", "é", "aé", "\xff", "a\xff",
		"registry.example.com:5000/team/image@sha256:0123456789abcdef", "@x", "sh+-./_", "a!b", "!", "ABC\x00",
		"0123456", "012345", "abcdefg", "0123456789abcdefABCDEF", "+abc",
	}
	for _, n := range []int{63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513} {
		texts = append(texts, strings.Repeat("a", n), strings.Repeat("é", n))
	}
	for _, tt := range []struct {
		name, pattern string
		check         func(string) bool
	}{
		{"variable", `^[^=\x00-\x1f\x7f]{1,256}$`, isEnvName},
		{"shell", `^[A-Za-z0-9_/][A-Za-z0-9_./+-]{0,127}$`, isShellName},
		{"image", `^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}$`, isImageRef},
		{"commit", `^[0-9a-fA-F]{7,64}$`, func(s string) bool { return CheckCommit(s) == nil }},
	} {
		pattern := regexp.MustCompile(tt.pattern)
		for _, text := range texts {
			if got, want := tt.check(text), pattern.MatchString(text); got != want {
				t.Errorf("%s %q: got %v, want %v", tt.name, text, got, want)
			}
		}
	}
}
