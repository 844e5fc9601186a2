package redact

import "bytes"

// scanMode determines which text a scan holds back.
type scanMode int

const (
	// moreToCome holds back the text from the first byte that can begin an incomplete secret.
	moreToCome scanMode = iota
	// wholeLines does the same, but only within the last, incomplete line.
	wholeLines
	// endOfStream holds nothing back. A prefix of a secret is masked if it has at least MinLength
	// bytes.
	endOfStream
)

// scanner masks text piece by piece. It masks every byte that belongs to an occurrence of a needle.
// Overlapping occurrences become one marker, adjacent ones two, so the output does not depend on
// how the text was split.
type scanner struct {
	// covered is the number of bytes at the start of the next text whose marker is already written.
	covered int
	out     []byte
}

// scan masks text. It returns the output, which is valid until the next call, and the position from
// which the caller must pass the text again, with more appended.
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

// mark writes text with occurrences replaced. It returns the position from which more text is
// needed to decide.
func (sc *scanner) mark(m *matcher, text []byte, mode scanMode) (hold int) {
	undecided := 0 // start of the part that can be held back for a partial occurrence
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

// mask records that the bytes from start to end belong to an occurrence. start must not decrease
// between calls.
func (sc *scanner) mask(text []byte, start, end int) {
	if start >= sc.covered {
		sc.out = append(sc.out, text[sc.covered:start]...)
		sc.out = append(sc.out, Marker...)
	}
	sc.covered = max(sc.covered, end)
}
