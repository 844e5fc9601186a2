package assets

import (
	"bytes"
	"strings"
	"testing"
)

// TestSizes keeps the console small. The sizes are those of the files, before compression.
func TestSizes(t *testing.T) {
	sizes := map[string]int{}
	for name, f := range load().files {
		switch {
		case name == "console.css":
			sizes["style sheet"] += len(f.plain)
		case strings.HasPrefix(name, "js/"):
			sizes["scripts"] += len(f.plain)
		case name == "icons/icons.svg":
			sizes["icons"] += len(f.plain)
		}
	}
	for name, most := range map[string]int{"style sheet": 64 << 10, "scripts": 85 << 10, "icons": 10 << 10} {
		if size := sizes[name]; size == 0 || size > most {
			t.Errorf("%s: %d bytes, want at most %d", name, size, most)
		}
	}
}

// TestTexts checks that no text in the scripts has several lines, which would lose their indentation.
func TestTexts(t *testing.T) {
	for name, f := range load().files {
		if !strings.HasPrefix(name, "js/") {
			continue
		}
		for line := range bytes.Lines(f.plain) {
			if bytes.Count(line, []byte("`"))%2 != 0 {
				t.Errorf("%s: a text continues after %q", name, line)
			}
		}
	}
}

func TestSqueeze(t *testing.T) {
	css := `/* a comment; "quoted" */
.a > .b, .c:not(.d, .e) { color: var(--x); margin: calc(-1 * var(--s2)) 0; }
@media (max-width: 800px) {
  .f { content: "/ ;  }" / ""; } /* it's over */
}
`
	want := `.a>.b,.c:not(.d,.e){color:var(--x);margin:calc(-1 * var(--s2)) 0}@media (max-width:800px){.f{content:"/ ;  }" / ""}}`
	if got := squeeze([]byte(css)); string(bytes.TrimSpace(got)) != want {
		t.Errorf("the style sheet is\n%s\nwant\n%s", got, want)
	}
}
