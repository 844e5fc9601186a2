package redact

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// maxWindow bounds the window of a matcher, so that its positions fit the bits of a word.
const maxWindow = 32

// matcher finds a fixed set of needles. It is immutable.
//
// It is the algorithm of Wu and Manber: a window as wide as the shortest needle is
// moved over the text, and the two bytes at its end tell how far it can be moved
// without missing the beginning of a needle. Most of the text is never looked at,
// and building one takes microseconds, which an automaton of all needles would not.
type matcher struct {
	window  int    // length of the shortest needle, at most maxWindow; 0 without needles
	longest int    // length of the longest needle
	shift   []byte // by the two bytes at the end of the window: how far to move it
	// sorted holds the needles in the order of their bytes, for the search by prefix.
	sorted []string
	// buckets holds the needles by a hash of their first six bytes, longest first.
	buckets    [][]string
	bucketBits uint
	// at has, for each byte, bit i set if some needle has that byte at position i.
	at [256]uint32
}

func newMatcher(needles []string) *matcher {
	m := &matcher{window: maxWindow}
	if len(needles) == 0 {
		m.window = 0
		return m
	}
	m.sorted = slices.Sorted(slices.Values(needles))
	for _, n := range m.sorted {
		m.window = min(m.window, len(n))
		m.longest = max(m.longest, len(n))
	}
	m.shift = make([]byte, math.MaxUint16+1)
	for i := range m.shift {
		m.shift[i] = byte(m.window - 1)
	}
	for m.bucketBits = 6; 1<<m.bucketBits < 4*len(needles); {
		m.bucketBits++
	}
	m.buckets = make([][]string, 1<<m.bucketBits)
	for _, n := range m.sorted {
		for end := 1; end < m.window; end++ {
			pair := uint16(n[end-1])<<8 | uint16(n[end])
			m.shift[pair] = min(m.shift[pair], byte(m.window-1-end))
		}
		for i := range m.window {
			m.at[n[i]] |= 1 << i
		}
		b := m.bucket([]byte(n[:MinLength]))
		m.buckets[b] = append(m.buckets[b], n)
	}
	for _, bucket := range m.buckets {
		slices.SortStableFunc(bucket, func(a, b string) int { return len(b) - len(a) })
	}
	return m
}

// bucket hashes the first [MinLength] bytes of b.
func (m *matcher) bucket(b []byte) uint64 {
	_ = b[5]
	prefix := uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	return prefix * 0x9E3779B97F4A7C15 >> (64 - m.bucketBits)
}

// next returns the first position from pos on where a needle may begin, or a
// position with less than a window of text behind it if there is none.
func (m *matcher) next(text []byte, pos int) int {
	shift := m.shift
	if len(shift) <= math.MaxUint16 {
		return len(text)
	}
	for end := pos + m.window - 1; end < len(text); {
		s := shift[uint16(text[end-1])<<8|uint16(text[end])]
		if s == 0 {
			return end - m.window + 1
		}
		end += int(s)
	}
	return max(pos, len(text)-m.window+1)
}

// match returns the length of the longest needle at the start of text, 0 if there
// is none, and whether text ends within a longer one. Text is at least a window long.
func (m *matcher) match(text []byte) (length int, partial bool) {
	for _, n := range m.buckets[m.bucket(text)] {
		if len(n) <= len(text) {
			if string(text[:len(n)]) == n {
				return len(n), partial
			}
		} else if !partial && n[:len(text)] == string(text) {
			partial = true
		}
	}
	return 0, partial
}

// tail returns the length of the longest suffix of text, shorter than the window,
// with which a needle begins.
func (m *matcher) tail(text []byte) int {
	if n := m.window - 1; len(text) > n {
		text = text[len(text)-n:]
	}
	if len(text) == 0 || m.at[text[len(text)-1]] == 0 {
		return 0
	}
	// Bit i of state says: the last i+1 bytes agree with position 0 to i of needles,
	// though not necessarily of the same one.
	var state uint32
	for _, c := range text {
		state = (state<<1 | 1) & m.at[c]
	}
	for length := len(text); length > 0; length-- {
		if state&(1<<(length-1)) != 0 && m.isPrefix(string(text[len(text)-length:])) {
			return length
		}
	}
	return 0
}

// isPrefix says whether some needle begins with s.
func (m *matcher) isPrefix(s string) bool {
	i, found := slices.BinarySearch(m.sorted, s)
	return found || i < len(m.sorted) && strings.HasPrefix(m.sorted[i], s)
}
