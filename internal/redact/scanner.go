package redact

import (
	"bytes"
	"sort"
)

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
//
// Tools break encoded text into lines at any place. So the scanner searches the text without its line
// breaks; needles have none either. A marker replaces the breaks within an occurrence, too.
type scanner struct {
	// covered is the number of bytes at the start of the next text, without line breaks, whose marker
	// is already written.
	covered int
	out     []byte

	text   []byte // of this scan
	flat   []byte // text without line breaks
	breaks []int  // for each break, its position in flat
	buffer []byte // for flat
}

// scan returns the masked form of the beginning of text, and the position of the rest in text, with
// which the caller must pass the text again, with more appended.
func (sc *scanner) scan(m *matcher, text []byte, mode scanMode) (masked []byte, hold int) {
	sc.out = sc.out[:0]
	if m.window == 0 {
		sc.covered = 0
		return text, len(text)
	}
	sc.flatten(text)
	end := sc.mark(m, mode)
	if mode == moreToCome {
		end = sc.wholeLine(end)
	}
	clear := sc.clear(min(sc.covered, end), end)
	if sc.covered > end {
		clear = nil
	}
	sc.covered = max(0, sc.covered-end)
	hold = end + sc.before(end+1)
	if len(sc.out) == 0 {
		return clear, hold
	}
	sc.out = append(sc.out, clear...)
	return sc.out, hold
}

// wholeLine returns the start of the line that a position in flat is in, if the line is complete.
// Otherwise it returns the position. What reads the output line by line, such as a search for errors
// or colours, must not get the parts of a line whose end can begin a secret.
func (sc *scanner) wholeLine(end int) int {
	n := len(sc.breaks)
	if n == 0 || sc.breaks[n-1] <= end {
		return end
	}
	start := 0
	if i := sc.before(end + 1); i > 0 {
		start = sc.breaks[i-1]
	}
	if start < sc.covered || end-start > maxHeld {
		return end
	}
	return start
}

// flatten sets the fields for a text.
func (sc *scanner) flatten(text []byte) {
	sc.text, sc.flat, sc.breaks = text, text, sc.breaks[:0]
	if bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0 {
		return
	}
	flat := sc.buffer[:0]
	for len(text) > 0 {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		for {
			cr := bytes.IndexByte(line, '\r')
			if cr < 0 {
				break
			}
			flat = append(flat, line[:cr]...)
			sc.breaks = append(sc.breaks, len(flat))
			line = line[cr+1:]
		}
		flat = append(flat, line...)
		if found {
			sc.breaks = append(sc.breaks, len(flat))
		}
		text = rest
	}
	sc.flat, sc.buffer = flat, flat
}

// before returns the number of line breaks before a position in flat.
func (sc *scanner) before(pos int) int { return sort.SearchInts(sc.breaks, pos) }

// clear returns the part of text from start to end, which are positions in flat, with the line breaks
// at both ends.
func (sc *scanner) clear(start, end int) []byte {
	return sc.text[start+sc.before(start) : end+sc.before(end+1)]
}

// mark writes text with occurrences replaced. It returns the position in flat from which more text is
// needed to decide.
func (sc *scanner) mark(m *matcher, mode scanMode) (hold int) {
	text := sc.flat
	undecided := 0 // start of the part that can be held back for a partial occurrence
	if mode == wholeLines && len(sc.breaks) > 0 {
		undecided = sc.breaks[len(sc.breaks)-1]
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
			sc.mask(pos, pos+length)
		}
	}
	pos = max(min(pos, len(text)), undecided)
	length := m.tail(text[pos:])
	switch {
	case mode != endOfStream:
		return len(text) - length
	case length >= MinLength:
		sc.mask(len(text)-length, len(text))
	}
	return len(text)
}

// mask records that the bytes of flat from start to end belong to an occurrence. start must not
// decrease between calls.
func (sc *scanner) mask(start, end int) {
	if start >= sc.covered {
		sc.out = append(sc.out, sc.clear(sc.covered, start)...)
		sc.out = append(sc.out, Marker...)
	}
	sc.covered = max(sc.covered, end)
}
