// Package termtext makes text from untrusted programs safe for a terminal: a job's output must not
// move the cursor, change the window title, write to the clipboard, or imitate other lines.
package termtext

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain appends text to dst without control characters, except tabs.
func Plain(dst, text []byte) []byte { return appendText(dst, text, false) }

// Coloured appends text to dst without control characters, except tabs, colour sequences and
// carriage returns. Deployments print these characters, which affect only their own line.
func Coloured(dst, text []byte) []byte { return appendText(dst, text, true) }

// OneLine returns untrusted text as one printable line of at most limit bytes. A limit of 0 means
// no limit. White space becomes single spaces, and unprintable characters are removed.
func OneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(Plain(nil, []byte(text))))
	text = strings.Join(strings.Fields(text), " ")
	if limit > 0 && len(text) > limit {
		text = strings.TrimSpace(strings.ToValidUTF8(text[:max(0, limit-len("…"))], "")) + "…"
	}
	return text
}

// LastLine returns the last line of untrusted text, as [OneLine] does.
func LastLine(text string, limit int) string {
	text = strings.TrimSpace(text)
	return OneLine(text[strings.LastIndexByte(text, '\n')+1:], limit)
}

func appendText(dst, text []byte, coloured bool) []byte {
	for len(text) > 0 {
		n := plainPrefix(text)
		dst, text = append(dst, text[:n]...), text[n:]
		if len(text) == 0 {
			break
		}
		if text[0] == escape {
			n, isColour := sequence(text)
			if isColour && coloured {
				dst = append(dst, text[:n]...)
			}
			text = text[n:]
			continue
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = utf8.AppendRune(dst, utf8.RuneError) // a single byte can also be a control character
		case r == '\r' && coloured, !control(r):
			dst = append(dst, text[:size]...)
		}
		text = text[size:]
	}
	return dst
}

const (
	escape = 0x1b
	bell   = 0x07
)

// plainPrefix returns the number of bytes at the start of text that are printable ASCII or tabs.
func plainPrefix(text []byte) int {
	for i, c := range text {
		if c < ' ' && c != '\t' || c >= 0x7f {
			return i
		}
	}
	return len(text)
}

// control reports whether a terminal might interpret r instead of displaying it.
func control(r rune) bool {
	switch {
	case r == '\t':
		return false
	case r < ' ', r >= 0x7f && r <= 0x9f:
		return true
	}
	return Bidirectional(r)
}

// Bidirectional reports whether r changes the direction of the text around it, which can make text look like other text.
func Bidirectional(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// sequence returns the length of the escape sequence at the start of text, and reports whether the
// sequence sets colours. For an incomplete sequence, it returns only the length of the introducer,
// so that no text is hidden.
func sequence(text []byte) (n int, colour bool) {
	if len(text) < 2 {
		return 1, false
	}
	switch text[1] {
	case '[':
		for i, c := range text[2:] {
			switch {
			case c >= 0x40 && c <= 0x7e:
				n = i + 3
				return n, c == 'm' && bytes.Trim(text[2:n-1], "0123456789;:") == nil
			case c < 0x20 || c > 0x7e:
				return 2, false
			}
		}
		return 2, false
	case ']', 'P', 'X', '^', '_': // strings, terminated by BEL or by ESC and a backslash
		for i := 2; i < len(text); i++ {
			switch {
			case text[i] == bell:
				return i + 1, false
			case text[i] == escape && i+1 < len(text) && text[i+1] == '\\':
				return i + 2, false
			}
		}
		return 2, false
	}
	for i, c := range text[1:] { // such as ESC ( B, which tput prints
		switch {
		case c < 0x20 || c > 0x7e:
			return 1, false
		case c > 0x2f:
			return i + 2, false
		}
	}
	return 1, false
}
