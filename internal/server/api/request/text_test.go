package request

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"unicode/utf8"
)

// escapedNUL matches text up to a NUL escape whose backslash is not itself escaped.
var escapedNUL = regexp.MustCompile(`(?s)^(?:[^\\]|\\.)*\\u0000`)

func FuzzCheckText(f *testing.F) {
	for _, s := range []string{
		"", `{"a":"b"}`, `"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `\\u000\u0000`, `\`, "a\x00", "\xff", "ä€😀", "€\xe2\x82",
		"\xed\xa0\x80", "\xf4\x90\x80\x80", "\n\\u0000",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bad := bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data)
		for kind, want := range map[textKind]bool{textAny: false, textDocument: bad, textColumns: bad || escapedNUL.Match(data)} {
			err := checkText(data, kind)
			if (err != nil) != want || err != nil && !errors.Is(err, errNUL) && !errors.Is(err, errNotUTF8) {
				t.Errorf("%q, kind %d: %v, want an error: %t", data, kind, err, want)
			}
		}
	})
}
