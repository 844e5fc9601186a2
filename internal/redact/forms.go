package redact

import (
	"encoding/base64"
	"encoding/hex"
	"iter"
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
			if len(line) <= maxQuoted && !isPlain(line) {
				all = append(all, quoted(line)...)
			}
		}
	}
	return all
}

// maxQuoted is the length up to which a secret is looked for in every quoting and
// escape. A longer one is a file: it is looked for in those that programs use for
// whole files, and line by line in all of them. This bounds the memory of a [Set].
const maxQuoted = 16 << 10

// maxNeedle is the length above which a form is looked for in pieces. It bounds what
// is compared with each byte of the text, and what a [Writer] holds back.
const maxNeedle = 512

// pieces returns what is looked for instead of a form: nothing if it is too short,
// and parts of it if it is long. They overlap, so that their markers become one, and
// by so much that a part that is cut off after its first byte is masked to its end.
func pieces(form string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(form) > maxNeedle {
			if !yield(form[:maxNeedle]) {
				return
			}
			// The last one is as long as the others, for a short one occurs by chance.
			form = form[min(maxNeedle-MinLength+1, len(form)-maxNeedle):]
		}
		if len(form) >= MinLength {
			yield(form)
		}
	}
}

// encodings returns s itself and in all encodings.
func encodings(s string) []string {
	all := []string{s, hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	all = append(all, base64Forms(s)...)
	if len(s) > maxQuoted {
		form := percentEncode(s, unreserved)
		return append(all, form, lowerEscapes(form), strings.ReplaceAll(form, "%20", "+"),
			strconv.Quote(s), strconv.QuoteToASCII(s), jsonText(s, false), jsonText(s, true))
	}
	all = append(all, encodedBase64(s)...)
	if isPlain(s) {
		return all
	}
	all = append(all, urlForms(s)...)
	return append(all, quoted(s)...)
}

// isPlain reports whether s is left alone by all that quotes or escapes text, as
// most tokens are.
func isPlain(s string) bool {
	for _, c := range []byte(s) {
		if !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// What the programs leave as it is when they escape text for a URL, besides
// letters and digits.
const (
	unreserved = "-_.~"                       // RFC 3986; Go's QueryEscape, Python's quote_plus, curl
	component  = "-_.!~*'()"                  // JavaScript's encodeURIComponent
	wholeURI   = component + ";/?:@&=+$,#"    // JavaScript's encodeURI
	withSlash  = unreserved + "/"             // Python's quote
	htmlForm   = "-_.*"                       // HTML forms, Java's URLEncoder
	goPath     = unreserved + "$&+:=@"        // Go's PathEscape
	goUser     = unreserved + "$&+,;="        // Go's user names and passwords
	oldEscape  = "@*_+-./"                    // JavaScript's escape, of ASCII
	rubyForm   = unreserved + "*"             // Ruby's CGI.escape of old
	uriPath    = unreserved + "!$&'()*+,;=:@" // all that RFC 3986 allows in an element of a path
)

// urlForms returns s escaped for the parts of a URL, with both cases of hex digits,
// and once more, as a URL that is a parameter of another has it.
func urlForms(s string) []string {
	var all []string
	for _, safe := range []string{unreserved, component, wholeURI, withSlash, htmlForm, goPath, goUser, oldEscape, rubyForm, uriPath} {
		form := percentEncode(s, safe)
		all = append(all, form, lowerEscapes(form))
		if strings.Contains(form, "%20") {
			plus := strings.ReplaceAll(form, "%20", "+")
			all = append(all, plus, lowerEscapes(plus))
		}
	}
	for _, safe := range []string{unreserved, component} {
		form := percentEncode(s, safe)
		all = append(all, strings.ReplaceAll(form, "%", "%25"), strings.ReplaceAll(lowerEscapes(form), "%", "%25"))
	}
	return all
}

// percentEncode escapes all but letters, digits and what is safe.
func percentEncode(s, safe string) string {
	var b strings.Builder
	b.Grow(3 * len(s))
	for _, c := range []byte(s) {
		if isAlphanumeric(c) || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
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
			all = append(all, base64Core(enc, s, offset))
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

// base64Core returns the characters that s alone decides when it begins at an offset
// in a group of three bytes.
func base64Core(enc *base64.Encoding, s string, offset int) string {
	raw := make([]byte, offset, offset+len(s))
	raw = append(raw, s...)
	text := enc.WithPadding(base64.NoPadding).EncodeToString(raw)
	// Bits before 8*offset and after 8*len(raw) belong to the neighbours.
	return text[(8*offset+5)/6 : 8*len(raw)/6]
}

// encodedBase64 returns the base64 encoding of s in a second encoding: base64 again,
// with which scripts get around masking, as a parameter of a URL, and in JSON.
func encodedBase64(s string) []string {
	once := base64.StdEncoding.EncodeToString([]byte(s))
	twice := base64.RawStdEncoding.EncodeToString([]byte(once))
	all := []string{twice, base64Core(base64.StdEncoding, base64Core(base64.StdEncoding, s, 0), 0)}
	if once = strings.TrimRight(once, "="); strings.ContainsAny(once, "+/") {
		form := percentEncode(once, "")
		all = append(all, form, lowerEscapes(form), slashes(once), dotNet(once))
	}
	return all
}
