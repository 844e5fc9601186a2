package redact

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// writes records each write by itself, because readers of a log decode each by itself.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}

// TestCharactersStayWhole writes text byte by byte, as the pipe of a slow or fast program can deliver it.
func TestCharactersStayWhole(t *testing.T) {
	set := New(Secret{Name: "A", Value: "größere-😀-secret"})
	const text = "größer 😀 und größere-😀-secret, ✔✔✔"
	for _, tt := range []struct{ name, text, want string }{
		{"characters", text + "\n", "größer 😀 und " + Marker + ", ✔✔✔\n"},
		{"cut off at the end", text + "\xe2\x9c", "größer 😀 und " + Marker + ", ✔✔✔\xe2\x9c"},
		{"no characters", "\xff\xe2(\x80\xf0\x9f\x98x\n", "\xff\xe2(\x80\xf0\x9f\x98x\n"},
	} {
		for size := 1; size < 5; size++ {
			var out writes
			w := set.Writer(&out)
			for at := 0; at < len(tt.text); at += size {
				if _, err := w.Write([]byte(tt.text[at:min(at+size, len(tt.text))])); err != nil {
					t.Fatal(err)
				}
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			whole := len(out)
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(out, ""); got != tt.want {
				t.Errorf("%s, %d bytes at once: got %q, want %q", tt.name, size, got, tt.want)
			}
			for _, part := range out[:whole] {
				if utf8.ValidString(tt.want) && !utf8.ValidString(part) {
					t.Errorf("%s, %d bytes at once: %q was written by itself", tt.name, size, part)
				}
			}
		}
	}
}
