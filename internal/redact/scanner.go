package redact

import "bytes"

// scanMode is what may follow the text of a scan.
type scanMode int

const (
	// moreToCome holds back everything from the first place on where a secret may
	// have begun that the text ends within.
	moreToCome scanMode = iota
	// wholeLines holds back the same, but only from the last line, which is not complete.
	wholeLines
	// endOfStream holds nothing back. What may be the beginning of a secret is masked
	// if it is at least MinLength long.
	endOfStream
)

// scanner masks text piece by piece. Every byte that belongs to an occurrence of a
// needle is masked; occurrences that overlap make one marker, those that only touch
// make two. So the output does not depend on how the text was cut.
type scanner struct {
	// covered is how many bytes at the beginning of the next text belong to an
	// occurrence whose marker is already out.
	covered int
	out     []byte
}

// scan masks text. It returns what can be passed on, valid until the next call, and
// the position from which on the text must be given again, with more behind it.
func (sc *scanner) scan(m *matcher, text []byte, mode scanMode) (masked []byte, hold int) {
	sc.out = sc.out[:0]
	hold = len(text)
	if m.window > 0 {
		hold = sc.mark(m, text, mode)
	}
	clear := text[min(sc.covered, hold):hold]
	sc.covered = max(0, sc.covered-hold)
	if len(sc.out) == 0 {
		return clear, hold
	}
	sc.out = append(sc.out, clear...)
	return sc.out, hold
}

// mark finds all occurrences in text and writes the text between them and their
// markers. It returns the position from which on it could not decide.
func (sc *scanner) mark(m *matcher, text []byte, mode scanMode) (hold int) {
	undecided := 0 // where the part begins in which a partial occurrence is waited for
	if mode == wholeLines {
		undecided = bytes.LastIndexByte(text, '\n') + 1
	}
	pos := m.next(text, 0)
	for ; pos+m.window <= len(text); pos = m.next(text, pos+1) {
		length, partial := m.match(text[pos:])
		if partial {
			switch {
			case mode == endOfStream:
				length = len(text) - pos
			case pos >= undecided:
				return pos
			}
		}
		if length > 0 {
			sc.mask(text, pos, pos+length)
		}
	}
	pos = max(min(pos, len(text)), undecided)
	length := m.tail(text[pos:])
	switch {
	case mode != endOfStream:
		return len(text) - length
	case length >= MinLength:
		sc.mask(text, len(text)-length, len(text))
	}
	return len(text)
}

// mask notes that the bytes from start to end of text belong to an occurrence.
// Starts never go back.
func (sc *scanner) mask(text []byte, start, end int) {
	if start >= sc.covered {
		sc.out = append(sc.out, text[sc.covered:start]...)
		sc.out = append(sc.out, Marker...)
	}
	sc.covered = max(sc.covered, end)
}
