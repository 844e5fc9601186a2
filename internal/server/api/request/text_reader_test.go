package request

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// escapedNUL finds an escaped NUL whose backslash is not escaped itself.
var escapedNUL = regexp.MustCompile(`^(?:[^\\]|\\[^u]|\\u[^0]|\\u0[^0]|\\u00[^0]|\\u000[^0])*\\u0000`)

// FuzzTextReader compares the result for pieces with the result for the whole.
func FuzzTextReader(f *testing.F) {
	for _, s := range []string{"", `{"a":"b"}`, `"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `\\u000\u0000`, "a\x00", "\xff", "ä€😀", "€\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := error(nil)
		switch {
		case bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data):
			want = errNotUTF8
		case escapedNUL.Match(data):
			want = errNUL
		}
		for name, r := range map[string]io.Reader{
			"whole": bytes.NewReader(data), "bytes": iotest.OneByteReader(bytes.NewReader(data)), "halves": iotest.HalfReader(bytes.NewReader(data)),
			"end with data": iotest.DataErrReader(bytes.NewReader(data)),
		} {
			got, err := io.ReadAll(&textReader{r: r, escapes: true})
			if (err != nil) != (want != nil) || err != nil && !errors.Is(err, errNUL) && !errors.Is(err, errNotUTF8) {
				t.Errorf("%s: %q is read with %v, want %v", name, data, err, want)
			}
			if err == nil && !bytes.Equal(got, data) {
				t.Errorf("%s: %q is read as %q", name, data, got)
			}
		}
	})
}
