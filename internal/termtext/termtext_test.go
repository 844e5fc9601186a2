package termtext_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/termtext"
)

func TestText(t *testing.T) {
	for _, tt := range []struct{ name, in, plain, coloured string }{
		{"text", "a plain\tline, größer", "a plain\tline, größer", "a plain\tline, größer"},
		{"colour", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[m", "red true", "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[m"},
		{"cursor and erase", "\x1b[2A\x1b[2K\x1b[1Gfine", "fine", "fine"},
		{"private m", "\x1b[>4;1mx\x1b[?1mx", "xx", "xx"},
		{"window title", "\x1b]0;pwned\x07x", "x", "x"},
		{"clipboard", "\x1b]52;c;cm0gLXJmIC8=\x1b\\x", "x", "x"},
		{"unfinished string hides nothing", "\x1b]52;all the rest", "52;all the rest", "52;all the rest"},
		{"unfinished sequence hides nothing", "\x1b[12", "12", "12"},
		{"sequence cut by a control", "\x1b[1\x1b[2Jx", "1x", "1x"},
		{"device control", "\x1bP+q544e\x1b\\x", "x", "x"},
		{"reset", "\x1bcx", "x", "x"},
		{"character set", "a\x1b(B\x1b[mx\x1b(", "ax(", "a\x1b[mx("},
		{"escape at the end", "x\x1b", "x", "x"},
		{"C1 in UTF-8", "a\u009b2Jb", "a2Jb", "a2Jb"},
		{"C1 as a byte", "a\x9b2Jb", "a\ufffd2Jb", "a\ufffd2Jb"},
		{"overwriting", "[other] forged\r", "[other] forged", "[other] forged\r"},
		{"backspace, bell, line feed", "abc\b\b\a\nx", "abcx", "abcx"},
		{"direction", "user\u202e\u2066// only\u2069", "user// only", "user// only"},
	} {
		if got := string(termtext.Plain(nil, []byte(tt.in))); got != tt.plain {
			t.Errorf("%s: Plain: %q, want %q", tt.name, got, tt.plain)
		}
		if got := string(termtext.Coloured(nil, []byte(tt.in))); got != tt.coloured {
			t.Errorf("%s: Coloured: %q, want %q", tt.name, got, tt.coloured)
		}
	}
}

func TestOneLine(t *testing.T) {
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{" two\r\n\tlines \n", 0, "two lines"},
		{"\x1b[31mred\x1b[0m\x00 \u202ex\u200b", 0, "red x"},
		{"a\xffb\u00a0c", 0, "ab c"},
		{"exactly", 7, "exactly"},
		{"too long", 7, "too…"},
		{"größer", 6, "gr…"},
		{"größer", 2, "…"},
	} {
		got := termtext.OneLine(tt.in, tt.limit)
		if got != tt.want {
			t.Errorf("OneLine(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
		if again := termtext.OneLine(got, max(tt.limit, len("…"))); tt.limit >= len("…") && again != got {
			t.Errorf("OneLine is not stable: %q, %q", got, again)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("\x1b[31mx\x1b]0;t\x07\r\xff\u009b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		plain := string(termtext.Plain(nil, text))
		if !utf8.ValidString(plain) || strings.ContainsFunc(plain, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			t.Errorf("Plain kept a control character: %q", plain)
		}
		coloured := termtext.Coloured(nil, text)
		if again := termtext.Coloured(nil, coloured); string(again) != string(coloured) {
			t.Errorf("Coloured is not stable: %q, %q", coloured, again)
		}
		if without := string(termtext.Plain(nil, coloured)); strings.ContainsRune(without, 0x1b) {
			t.Errorf("an escape sequence remains: %q", without)
		}
	})
}
