package request

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// PostgreSQL accepts as text neither NUL nor bytes that are not UTF-8. SQLite accepts both, but
// clients must not notice which database the server uses. Such text is refused here, where requests
// are decoded; [store.ErrInvalid] is the fallback.
//
//   - Paths and queries name things: both are refused.
//   - JSON bodies that are not UTF-8 are refused, as JSON requires.
//   - An escaped NUL is legal JSON. It is refused where members of the body become
//     columns of text ([Decode]), and passes where the body is kept as JSON or as
//     bytes ([DecodeDocument], [DecodeBatch]): programs, events, reports of jobs.
//   - A lone surrogate (\ud800) passes: decoding replaces it by U+FFFD, and JSON that
//     is kept undecoded holds it as ASCII.
//   - States are kept as bytes and not checked.
//   - Headers that are kept pass through [PlainText].

// RefuseNonText refuses requests whose path or query is not text.
func RefuseNonText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsText(r.URL.Path) {
			web.WriteError(w, r, fault.Invalid("Bad Request: the path holds a NUL or is not UTF-8"))
			return
		}
		for name, values := range r.URL.Query() {
			for _, v := range append(values, name) {
				if !IsText(v) {
					web.WriteError(w, r, fault.Invalid("Bad Request: the query holds a NUL or is not UTF-8"))
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// IsText reports whether every database accepts a string as text.
func IsText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

var (
	errNotUTF8 = fault.Invalid("Bad Request: the body is not UTF-8")
	errNUL     = fault.Invalid("Bad Request: the body holds a NUL character, which text must not")
)

type textKind int

const (
	textAny      textKind = iota // bytes, not checked
	textDocument                 // JSON that is stored unchanged
	textColumns                  // columns of text
)

func checkText(data []byte, kind textKind) error {
	if kind == textAny {
		return nil
	}
	t := textReader{escapes: kind == textColumns}
	if err := t.check(data); err != nil {
		return err
	}
	if t.nPart > 0 {
		return errNotUTF8
	}
	return nil
}

// textReader reads a JSON body and fails where it is not text.
type textReader struct {
	r       io.Reader
	escapes bool // refuse an escaped NUL too

	matched int                   // how much of nulEscape the last bytes matched
	part    [utf8.UTFMax]byte     // an incomplete character at the end of the last piece
	nPart   int                   // its length
	joined  [2 * utf8.UTFMax]byte // that character and the bytes after it
}

const nulEscape = `\u0000`

// Read implements [io.Reader].
func (t *textReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if bad := t.check(p[:n]); bad != nil {
		return 0, bad
	}
	if err == io.EOF && t.nPart > 0 {
		return n, errNotUTF8
	}
	return n, err
}

func (t *textReader) check(p []byte) error {
	if bytes.IndexByte(p, 0) >= 0 {
		return errNUL
	}
	if t.escapes && t.findEscape(p) {
		return errNUL
	}
	if !t.validUTF8(p) {
		return errNotUTF8
	}
	return nil
}

// findEscape finds an escaped NUL, which may have begun in an earlier piece.
func (t *textReader) findEscape(p []byte) bool {
	for i := 0; i < len(p); i++ {
		if t.matched == 0 {
			next := bytes.IndexByte(p[i:], '\\')
			if next < 0 {
				return false
			}
			i += next
			t.matched = 1
			continue
		}
		if p[i] != nulEscape[t.matched] {
			t.matched = 0 // the backslash escaped another character
			continue
		}
		if t.matched++; t.matched == len(nulEscape) {
			return true
		}
	}
	return false
}

// validUTF8 reports whether the body is UTF-8 up to the end of p, where a character may be
// incomplete.
func (t *textReader) validUTF8(p []byte) bool {
	if t.nPart > 0 {
		k := copy(t.joined[:], t.part[:t.nPart])
		took := copy(t.joined[k:k+utf8.UTFMax], p)
		joined := t.joined[:k+took]
		if !utf8.FullRune(joined) {
			t.nPart = copy(t.part[:], joined)
			return true
		}
		c, size := utf8.DecodeRune(joined)
		if c == utf8.RuneError && size == 1 {
			return false
		}
		p = p[size-t.nPart:]
		t.nPart = 0
	}
	// The last character begins at most three bytes before the end.
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				t.nPart = copy(t.part[:], p[i:])
				p = p[:i]
			}
			break
		}
	}
	return utf8.Valid(p)
}

const maxPlainText = 256

// PlainText bounds and cleans text that is shown to users.
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
