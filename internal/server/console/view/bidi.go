package view

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"workflowagent/internal/termtext"
)

// VisibleControls replaces bidirectional controls in the texts of HTML by U+FFFD, because they can make a text look like
// another one. What users edit remains as it is.
func VisibleControls(html []byte) []byte {
	var out []byte
	copied := 0
	tag, field := false, false
	for i := range len(html) {
		switch c := html[i]; {
		case c == '<':
			tag = true
			field = bytes.HasPrefix(html[i:], []byte("<textarea")) || field && !bytes.HasPrefix(html[i:], []byte("</textarea"))
		case c == '>':
			tag = false
		case c == 0xe2 && !tag && !field: // the first byte of each control
			if r, size := utf8.DecodeRune(html[i:]); termtext.Bidirectional(r) {
				out = append(append(out, html[copied:i]...), string(utf8.RuneError)...)
				copied = i + size
			}
		}
	}
	return append(out, html[copied:]...)
}

// Visible replaces bidirectional controls in the text of an attribute, such as a title, by U+FFFD.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if termtext.Bidirectional(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}
