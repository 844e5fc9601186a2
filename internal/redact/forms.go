package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
)

// forms returns the shapes in which tools print a secret: as it is, in the usual
// encodings, and line by line. Some of them may be shorter than [MinLength] or equal.
func forms(secret string) []string {
	// Programs read a file with a key and print it without the newline at its end.
	trimmed := strings.TrimSpace(secret)
	all := encodings(secret)
	if trimmed != secret {
		all = append(all, encodings(trimmed)...)
	}
	if !strings.ContainsAny(trimmed, "\r\n") {
		return all
	}
	// Lines end differently on a terminal than in a file.
	unix := strings.ReplaceAll(trimmed, "\r\n", "\n")
	all = append(all, unix, strings.ReplaceAll(unix, "\n", "\r\n"))
	// A secret of several lines is printed with each line indented, prefixed or
	// interleaved with other output, so each line is a secret by itself.
	for line := range strings.FieldsFuncSeq(trimmed, func(r rune) bool { return r == '\r' || r == '\n' }) {
		if line = strings.TrimSpace(line); len(line) >= MinLength {
			all = append(all, line)
			all = append(all, quoted(line)...)
		}
	}
	return all
}

// encodings returns s itself and in all encodings.
func encodings(s string) []string {
	all := []string{s, hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	all = append(all, base64Forms(s)...)
	all = append(all, urlForms(s)...)
	return append(all, quoted(s)...)
}

// quoted returns s as it stands between the quotes of JSON, Go and shell strings.
func quoted(s string) []string {
	var all []string
	inner := func(q string) { all = append(all, q[1:len(q)-1]) }
	inner(strconv.Quote(s))
	inner(strconv.QuoteToASCII(s))
	if b, err := json.Marshal(s); err == nil {
		inner(string(b))
	}
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) == nil {
		inner(strings.TrimSuffix(plain.String(), "\n"))
	}
	// How "set -x" and printf %q style tools print a single quote.
	return append(all, strings.ReplaceAll(s, `'`, `'\''`))
}

// urlForms returns s escaped for the parts of a URL, with both cases of hex digits.
func urlForms(s string) []string {
	query := url.QueryEscape(s)
	user := strings.TrimPrefix(url.UserPassword("", s).String(), ":")
	var all []string
	for _, form := range []string{query, url.PathEscape(s), user, strings.ReplaceAll(query, "+", "%20")} {
		all = append(all, form, lowerEscapes(form))
	}
	return all
}

// lowerEscapes turns %2F into %2f. Only escapes have a percent sign in an escaped text.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// base64Forms returns the characters that stand for s in the base64 encoding of
// any text that contains it. Those depend on where in a group of three bytes s
// begins; the characters at both ends that also depend on its neighbours are left off.
func base64Forms(s string) []string {
	var all []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for offset := range 3 {
			raw := make([]byte, offset, offset+len(s))
			raw = append(raw, s...)
			text := enc.WithPadding(base64.NoPadding).EncodeToString(raw)
			// Bits before 8*offset and after 8*len(raw) belong to the neighbours.
			first, last := (8*offset+5)/6, 8*len(raw)/6
			all = append(all, text[first:last])
		}
		// The encoding of s alone is one unit with its last character and its padding.
		alone := enc.EncodeToString([]byte(s))
		all = append(all, alone, strings.TrimRight(alone, "="))
		// Command line tools wrap long output at 76 columns, PEM at 64.
		for _, width := range []int{64, 76} {
			for rest := alone; len(alone) > width && len(rest) > 0; {
				n := min(width, len(rest))
				all = append(all, rest[:n])
				rest = rest[n:]
			}
		}
	}
	return all
}
