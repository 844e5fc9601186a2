package request

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// PostgreSQL rejects text that contains NUL or is not UTF-8. SQLite accepts such text, but both
// databases must behave alike for clients. This package therefore rejects it when it decodes
// requests; [store.ErrInvalid] is the fallback.
//
//   - Paths and queries: both NUL and invalid UTF-8 are rejected.
//   - JSON bodies that are not UTF-8 are rejected, as JSON requires.
//   - An escaped NUL is legal JSON. It is rejected where members of the body become
//     columns of text ([Decode]), and passes where the body is stored as JSON or as
//     bytes ([DecodeDocument], [DecodeBatch]): programs, events, reports of jobs, states
//     and journals.
//   - A lone surrogate (\ud800) passes: decoding replaces it with U+FFFD, and JSON that
//     is stored undecoded contains it as ASCII.
//   - Logs of jobs are bytes and not checked.
//   - Headers that are stored pass through [PlainText].

// RefuseNonText is middleware that rejects requests whose path or query contains a NUL or is not
// UTF-8.
func RefuseNonText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkURL(r.URL); err != nil {
			web.WriteError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkURL(u *url.URL) error {
	if !IsText(u.Path) {
		return fault.Invalid("the path contains a NUL or is not UTF-8")
	}
	for name, values := range u.Query() {
		for _, v := range append(values, name) {
			if !IsText(v) {
				return fault.Invalid("the query contains a NUL or is not UTF-8")
			}
		}
	}
	return nil
}

// IsText reports whether every database accepts a string as text.
func IsText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

var (
	errNotUTF8 = fault.Invalid("the body is not UTF-8")
	errNUL     = fault.Invalid("the body contains a NUL character")
)

type textKind int

const (
	textAny      textKind = iota // bytes, not checked
	textDocument                 // JSON that is stored unchanged
	textColumns                  // columns of text
)

func checkText(data []byte, kind textKind) error {
	switch {
	case kind == textAny:
		return nil
	case bytes.IndexByte(data, 0) >= 0, kind == textColumns && hasEscapedNUL(data):
		return errNUL
	case !utf8.Valid(data):
		return errNotUTF8
	}
	return nil
}

// hasEscapedNUL reports whether JSON contains a NUL escape whose backslash is not itself escaped.
func hasEscapedNUL(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		data = data[i:]
		if bytes.HasPrefix(data, []byte(`\u0000`)) {
			return true
		}
		data = data[min(2, len(data)):]
	}
}

const maxPlainText = 256

// PlainText returns text that is safe to show to users: short, printable and valid UTF-8.
func PlainText(s string) string {
	s = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, ""))
	if len(s) > maxPlainText {
		s = strings.ToValidUTF8(s[:maxPlainText], "")
	}
	return s
}
