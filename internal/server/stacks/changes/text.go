package changes

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"workflowagent/internal/termtext"
)

// Parts returns the type and the name in a URN, or the whole text as name if it is not a URN.
func Parts(urn string) (kind, name string) {
	parts := strings.SplitN(urn, "::", 4)
	if len(parts) < 4 || !strings.HasPrefix(urn, "urn:pulumi:") {
		return "", urn
	}
	kind = parts[2]
	if at := strings.LastIndexByte(kind, '$'); at >= 0 {
		kind = kind[at+1:]
	}
	return kind, parts[3]
}

// escapes are the color marks of the engine and terminal sequences.
var escapes = regexp.MustCompile(`<\{%[^%]{0,40}%\}>|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?`)

// Plain removes colors and control characters from text.
func Plain(text string) string {
	text = escapes.ReplaceAllString(text, "")
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || c >= ' ' && c != 0x7f && (c < 0x80 || c > 0x9f) && !termtext.Bidirectional(c) {
			return c
		}
		return -1
	}, text)
}

// cut returns a copy of at most n bytes of text.
func cut(text string, n int) string {
	if len(text) <= n {
		return strings.Clone(text)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// spans are sets of numbers with few gaps.
type spans [][2]int64

// add adds n, and reports whether it is new.
func (s *spans) add(n int64) bool {
	at, found := slices.BinarySearchFunc(*s, n, func(span [2]int64, n int64) int {
		switch {
		case span[1] < n:
			return -1
		case span[0] > n:
			return 1
		default:
			return 0
		}
	})
	if found {
		return false
	}
	left, right := at > 0 && (*s)[at-1][1] == n-1, at < len(*s) && (*s)[at][0] == n+1
	switch {
	case left && right:
		(*s)[at-1][1] = (*s)[at][1]
		*s = slices.Delete(*s, at, at+1)
	case left:
		(*s)[at-1][1] = n
	case right:
		(*s)[at][0] = n
	default:
		*s = slices.Insert(*s, at, [2]int64{n, n})
	}
	return true
}
