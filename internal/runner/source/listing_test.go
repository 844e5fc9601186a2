package source

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestListing splits the output of ls-files at every place.
func TestListing(t *testing.T) {
	const hash = "100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 0\t"
	var text strings.Builder
	for _, file := range []string{".github/workflows/ci", "a b/c", "a.b", "a/Node_Modules/x\ty/z", "a/b", "é"} {
		text.WriteString(hash + file + "\x00")
	}
	want := map[string][]string{
		"": {"a.b", "é"}, ".github": nil, ".github/workflows": {"ci"}, "a b": {"c"},
		"a": {"b"}, "a/Node_Modules": nil, "a/Node_Modules/x\ty": {"z"},
	}
	for at := range text.Len() {
		l := &listing{files: map[string][]string{"": nil}}
		for _, part := range []string{text.String()[:at], text.String()[at:]} {
			if _, err := l.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		l.addNames()
		if !maps.EqualFunc(l.files, want, slices.Equal) || !slices.Equal(l.dependencies, []string{"node_modules"}) || l.submodules {
			t.Fatalf("split at %d: %q, dependencies %q, submodules %t", at, l.files, l.dependencies, l.submodules)
		}
	}
}
