package redact

import (
	"encoding/base64"
	"encoding/hex"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// forms returns the forms in which tools print a secret: unchanged, in the usual encodings, and
// line by line. It yields them in batches, so that a secret of many lines needs little memory. A
// batch can include duplicates, and forms shorter than [MinLength].
func forms(secret string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		// Programs print a key file without its final newline.
		trimmed := strings.TrimSpace(secret)
		if !yield(encodings(secret)) || trimmed != secret && !yield(encodings(trimmed)) {
			return
		}
		if !strings.ContainsAny(trimmed, "\r\n") {
			return
		}
		// Line endings differ between a terminal and a file.
		unix := strings.ReplaceAll(trimmed, "\r\n", "\n")
		if !yield([]string{unix, strings.ReplaceAll(unix, "\n", "\r\n")}) {
			return
		}
		// Each line is a secret too, because tools can indent, prefix or interleave lines.
		seen := map[string]struct{}{}
		for line := range strings.FieldsFuncSeq(trimmed, func(r rune) bool { return r == '\r' || r == '\n' }) {
			if line = strings.TrimSpace(line); len(line) < MinLength {
				continue
			}
			if _, known := seen[line]; known {
				continue
			}
			seen[line] = struct{}{}
			batch := []string{line}
			if len(line) <= maxQuoted && !isPlain(line) {
				batch = append(batch, quoted(line)...)
			}
			if !yield(batch) {
				return
			}
		}
	}
}

// maxQuoted is the length up to which a secret is searched for in every quoting and escaping, which
// limits the memory of a [Set]. A longer secret is probably a file: the whole file is searched for
// in the encodings of files, and each of its lines in all encodings.
const maxQuoted = 16 << 10

// maxNeedle is the length above which a form is searched for in pieces. It limits the number of
// bytes that are compared with the text at each position, and the amount of text that a [Writer]
// holds back.
const maxNeedle = 256

// pieces returns the needles for a form: none if the form is too short, and overlapping parts if it
// is long. The overlap merges the markers of adjacent parts. It is large enough to mask a secret to
// its end if the secret is cut off one byte after the end of a part.
func pieces(form string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(form) > maxNeedle {
			if !yield(form[:maxNeedle]) {
				return
			}
			// The last piece has full length, because short text occurs by chance.
			form = form[min(maxNeedle-MinLength+1, len(form)-maxNeedle):]
		}
		if len(form) >= MinLength {
			yield(form)
		}
	}
}

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

// isPlain reports whether no quoting or escaping changes s, which is true of most tokens.
func isPlain(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return !isAlphanumeric(c) && c != '-' && c != '_' && c != '.' })
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// The characters besides letters and digits that various programs do not escape in a URL.
const (
	unreserved = "-_.~"                       // RFC 3986; Go's QueryEscape, Python's quote_plus, curl
	component  = "-_.!~*'()"                  // JavaScript's encodeURIComponent
	wholeURI   = component + ";/?:@&=+$,#"    // JavaScript's encodeURI
	withSlash  = unreserved + "/"             // Python's quote
	htmlForm   = "-_.*"                       // HTML forms, Java's URLEncoder
	goPath     = unreserved + "$&+:=@"        // Go's PathEscape
	goUser     = unreserved + "$&+,;="        // Go's user names and passwords
	oldEscape  = "@*_+-./"                    // JavaScript's escape, for ASCII
	rubyForm   = unreserved + "*"             // Ruby's CGI.escape, older versions
	uriPath    = unreserved + "!$&'()*+,;=:@" // all that RFC 3986 allows in a path segment
)

// urlForms returns s escaped for the parts of a URL, with both cases of hex digits. It also returns
// s escaped twice, as in a URL that is a parameter of another URL.
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

// lowerEscapes returns s with escapes such as %2F in lower case. In escaped text, only escapes
// contain a percent sign.
func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], strings.ToLower(string(b[i+1:i+3])))
		}
	}
	return string(b)
}

// base64Forms returns the characters that represent s in the base64 encoding of any text that
// contains s. There is one form per offset of s in a group of three bytes. A form omits the
// characters at both ends that depend on neighbouring bytes as well.
func base64Forms(s string) []string {
	var all []string
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		for offset := range 3 {
			all = append(all, base64Core(enc, s, offset))
		}
		// If s is encoded alone, its form includes the last character and padding.
		alone := enc.EncodeToString([]byte(s))
		all = append(all, alone, strings.TrimRight(alone, "="))
		// Command-line tools wrap at 76 columns, PEM at 64.
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

// base64Core returns the characters that depend only on s, for an offset in a group of three bytes.
func base64Core(enc *base64.Encoding, s string, offset int) string {
	raw := make([]byte, offset, offset+len(s))
	raw = append(raw, s...)
	text := enc.WithPadding(base64.NoPadding).EncodeToString(raw)
	// Bits before 8*offset and after 8*len(raw) belong to neighbouring bytes.
	return text[(8*offset+5)/6 : 8*len(raw)/6]
}

// encodedBase64 returns the base64 encoding of s, encoded again: in base64, which scripts use to
// bypass masking, as a URL parameter, and in JSON.
func encodedBase64(s string) []string {
	once := base64.StdEncoding.EncodeToString([]byte(s))
	twice := base64.RawStdEncoding.EncodeToString([]byte(once))
	all := []string{twice, base64Core(base64.StdEncoding, base64Core(base64.StdEncoding, s, 0), 0)}
	if once = strings.TrimRight(once, "="); strings.ContainsAny(once, "+/") {
		form := percentEncode(once, "")
		all = append(all, form, lowerEscapes(form), slashes(once), dotNet.text(once))
	}
	return all
}
