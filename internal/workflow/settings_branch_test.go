package workflow

import (
	"strings"
	"testing"
)

// TestCheckBranch refuses the names that git check-ref-format --branch refuses, and those that git gives another meaning.
func TestCheckBranch(t *testing.T) {
	for _, name := range []string{"main", "feature/x", "ä", "main@", "@/a", "foo./bar", "v1.0", "refs/heads/main", "refs/tags/v1", "refs/pull/7/head", "FETCH_HEAD", "odd-ü#!$&'()%2f"} {
		if err := CheckBranch(name); err != nil {
			t.Errorf("%s is refused: %v", name, err)
		}
	}
	for name, says := range map[string]string{
		"": "it is empty", "-x": "starts with a dash", "refs/heads/-x": "another meaning", "@": "another meaning", "refs/heads/@": "another meaning", "HEAD": "another meaning", "refs/heads/HEAD": "another meaning",
		"a b": "contains a space", "a\tb": "control character", "a..b": `contains ".."`, "a@{b": `contains "@{"`, "a//b": `contains "//"`, "/a": "begins or ends with a slash", "a/": "begins or ends with a slash",
		"refs/heads/": "begins or ends with a slash", "foo.": "ends with a dot", ".a": "begins with a dot", "a/.b": "begins with a dot", "a.lock": "ends with .lock", "a/b.lock/c": "ends with .lock",
		"a~b": `contains "~"`, "a^": `contains "^"`, "a:b": `contains ":"`, "a?": `contains "?"`, "a*": `contains "*"`, "a[b": `contains "["`, `a\b`: `contains "\\"`, strings.Repeat("a", 1001): "longer than 1000 bytes",
	} {
		if err := CheckBranch(name); err == nil || !strings.Contains(err.Error(), "cannot be a branch: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want a sentence with %q", name, err, says)
		}
	}
}
