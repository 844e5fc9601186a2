package redact

import (
	"bytes"
	"strings"
)

const escape = 0x1b

// maxSequence limits the length of an escape sequence, in bytes. Those for colours are shorter.
const maxSequence = 40

// invisible returns the number of bytes at the start of text that a reader of the log does not see
// or that tools put anywhere: a line break, a zero, as in UTF-16, or an escape sequence, as around what
// a search has found. The number is 0 if text begins otherwise.
func invisible(text []byte) int {
	switch text[0] {
	case '\n', '\r', 0:
		return 1
	case escape:
		n, _ := sequence(text)
		return n
	}
	return 0
}

// sequence returns the length of the escape sequence at the start of text, for example of one that sets a
// colour. Of others, such as links, it returns the length of the first byte. It decides about each byte
// without those after it, so that the result does not depend on how the text arrives. complete is not set
// if more text can belong to the sequence.
func sequence(text []byte) (n int, complete bool) {
	start, last := 1, byte(0x2f)
	if len(text) > 1 && text[1] == '[' {
		start, last = 2, 0x3f
	}
	n = start
	for n < min(len(text), maxSequence) && text[n] >= 0x20 && text[n] <= last {
		n++
	}
	switch {
	case n == maxSequence:
		return start, true
	case n == len(text):
		return n, false
	case n > 1 && text[n] > last && text[n] < 0x7f:
		return n + 1, true
	}
	return n, true
}

// incompleteSequence returns the number of bytes at the end of text that begin an escape sequence whose
// other bytes are missing.
func incompleteSequence(text []byte) int {
	tail := text[max(0, len(text)-maxSequence):]
	at := bytes.LastIndexByte(tail, escape)
	if at < 0 {
		return 0
	}
	if n, complete := sequence(tail[at:]); !complete {
		return n
	}
	return 0
}

// marks finds the bytes at which something invisible can begin. Each byte of the text is searched
// once for each of them.
type marks struct {
	text []byte
	at   [4]int // the next '\n', '\r', zero and escape; len(text) if there is none
}

var markBytes = [4]byte{'\n', '\r', 0, escape}

func newMarks(text []byte) *marks {
	m := &marks{text: text, at: [4]int{-1, -1, -1, -1}}
	m.next(0)
	return m
}

// next returns the position of the first of the bytes from pos on, or the length of the text.
func (m *marks) next(pos int) int {
	first := len(m.text)
	for i, c := range markBytes {
		if m.at[i] < pos {
			m.at[i] = len(m.text)
			if n := bytes.IndexByte(m.text[pos:], c); n >= 0 {
				m.at[i] = pos + n
			}
		}
		first = min(first, m.at[i])
	}
	return first
}

// visible returns s without what is invisible.
func visible(s string) string {
	if !strings.ContainsAny(s, "\n\r\x00\x1b") {
		return s
	}
	text := []byte(s)
	out := make([]byte, 0, len(text))
	m := newMarks(text)
	for pos := 0; pos < len(text); {
		at := m.next(pos)
		out = append(out, text[pos:at]...)
		if pos = at; pos < len(text) {
			pos += invisible(text[pos:])
		}
	}
	return string(out)
}
