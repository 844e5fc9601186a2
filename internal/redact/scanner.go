package redact

import "sort"

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
// Tools break encoded text into lines at any place, and colour parts of words. So the scanner searches
// the text without its line breaks and without what a reader of the log does not see; needles have
// neither. A marker replaces these bytes within an occurrence, too.
type scanner struct {
	// covered is the number of visible bytes at the start of the next text whose marker is already
	// written.
	covered int
	out     []byte

	text   []byte // of this scan
	flat   []byte // the visible bytes of text
	breaks []int  // for each other byte, its position in flat
	lines  []line // line breaks
	buffer []byte // for flat
}

// line is the position after a line break, in flat and in text.
type line struct{ flat, text int }

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
	hold = end + sc.before(end+1)
	if start, found := sc.wholeLine(end); found && mode == moreToCome {
		end, hold = start.flat, start.text
	}
	var clear []byte
	if sc.covered <= end {
		clear = text[sc.covered+sc.before(sc.covered) : hold]
	}
	sc.covered = max(0, sc.covered-end)
	if len(sc.out) == 0 {
		return clear, hold
	}
	sc.out = append(sc.out, clear...)
	return sc.out, hold
}

// wholeLine returns the start of the line that a position in flat is in, if the line is complete and
// can be held back. What reads the output line by line, such as a search for errors or colours, must not
// get the parts of a line whose end can begin a secret.
func (sc *scanner) wholeLine(end int) (start line, found bool) {
	n := len(sc.lines)
	if n == 0 || sc.lines[n-1].flat <= end {
		return line{}, false
	}
	if i := sort.Search(n, func(i int) bool { return sc.lines[i].flat > end }); i > 0 {
		start = sc.lines[i-1]
	}
	return start, start.flat >= sc.covered && end-start.flat <= maxHeld
}

// flatten sets the fields for a text.
func (sc *scanner) flatten(text []byte) {
	sc.text, sc.flat, sc.breaks, sc.lines = text, text, sc.breaks[:0], sc.lines[:0]
	m := newMarks(text)
	if m.next(0) == len(text) {
		return
	}
	flat := sc.buffer[:0]
	for pos := 0; pos < len(text); {
		at := m.next(pos)
		flat = append(flat, text[pos:at]...)
		if pos = at; at == len(text) {
			break
		}
		n := invisible(text[at:])
		for range n {
			sc.breaks = append(sc.breaks, len(flat))
		}
		pos += n
		if c := text[at]; c == '\n' || c == '\r' {
			sc.lines = append(sc.lines, line{len(flat), pos})
		}
	}
	sc.flat, sc.buffer = flat, flat
}

// before returns the number of invisible bytes before a position in flat.
func (sc *scanner) before(pos int) int { return sort.SearchInts(sc.breaks, pos) }

// clear returns the part of text from start to end, which are positions in flat, with the invisible bytes
// at both ends.
func (sc *scanner) clear(start, end int) []byte {
	return sc.text[start+sc.before(start) : end+sc.before(end+1)]
}

// mark writes text with occurrences replaced. It returns the position in flat from which more text is
// needed to decide.
func (sc *scanner) mark(m *matcher, mode scanMode) (hold int) {
	text := sc.flat
	undecided := 0 // start of the part that can be held back for a partial occurrence
	if n := len(sc.lines); mode == wholeLines && n > 0 {
		undecided = sc.lines[n-1].flat
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
