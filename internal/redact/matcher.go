package redact

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// maxWindow limits the window of a matcher, so that the window's positions fit the bits of a word.
const maxWindow = 32

// matcher finds a fixed set of needles. It is immutable.
//
// It uses the algorithm of Wu and Manber: a window as wide as the shortest needle moves over the
// text, and the two bytes at its end determine how far it can move without missing the beginning of
// a needle. So the matcher skips most of the text. Building a matcher takes microseconds. Building
// an automaton of all needles would take longer.
type matcher struct {
	window  int    // length of the shortest needle, at most maxWindow; 0 without needles
	longest int    // length of the longest needle
	shift   []byte // distance to move the window, by the two bytes at its end
	// sorted holds the needles in byte order, for searches by prefix.
	sorted []string
	// shared contains, for each needle, the lengths of the prefixes that it shares with two other
	// needles: the closest ones before and after it that a binary search compares earlier.
	shared [][2]int16
	// begins is a set of bits, indexed by a hash of six bytes. A bit is 0 if no needle begins with
	// such bytes.
	begins   []uint64
	hashBits uint
	// links has an entry for the empty needle, followed by one for each needle of sorted.
	links []link
	// at contains, for each byte, a mask in which bit i is set if some needle has that byte at
	// position i.
	at [256]uint32
}

// link leads from a needle to the shorter needles that are its prefixes, by their positions in
// links. Every chain ends at the empty needle, at position 0.
type link struct {
	length int32
	next   int32 // the longest prefix
	far    int32 // a link further along the chain, so that every link is reached in few steps
	depth  int32 // length of the chain
}

// newMatcher returns a matcher for the needles, which must be sorted.
func newMatcher(needles []string) *matcher {
	if len(needles) == 0 {
		return &matcher{}
	}
	m := &matcher{window: maxWindow, sorted: needles}
	for _, n := range m.sorted {
		m.window = min(m.window, len(n))
		m.longest = max(m.longest, len(n))
	}
	m.shift = make([]byte, math.MaxUint16+1)
	for i := range m.shift {
		m.shift[i] = byte(m.window - 1)
	}
	for m.hashBits = 6; 1<<m.hashBits < 4*len(needles); {
		m.hashBits++
	}
	m.begins = make([]uint64, 1<<m.hashBits/64)
	m.shared = make([][2]int16, len(needles))
	m.share(-1, len(needles))
	m.links = make([]link, 1, len(needles)+1)
	for _, n := range m.sorted {
		for end := 1; end < m.window; end++ {
			pair := uint16(n[end-1])<<8 | uint16(n[end])
			m.shift[pair] = min(m.shift[pair], byte(m.window-1-end))
		}
		for i := range m.window {
			m.at[n[i]] |= 1 << i
		}
		hash := m.hash([]byte(n[:MinLength]))
		m.begins[hash/64] |= 1 << (hash % 64)
		m.link(n)
	}
	return m
}

// share fills shared for the needles between the positions low and high, excluding both.
func (m *matcher) share(low, high int) {
	if high-low < 2 {
		return
	}
	mid := (low + high) / 2
	if low >= 0 {
		m.shared[mid][0] = int16(common(m.sorted[low], m.sorted[mid], 0))
	}
	if high < len(m.sorted) {
		m.shared[mid][1] = int16(common(m.sorted[high], m.sorted[mid], 0))
	}
	m.share(low, mid)
	m.share(mid, high)
}

func (m *matcher) link(n string) {
	// The prefixes of a needle are among the prefixes of the one before it.
	next := len(m.links) - 1
	for next > 0 && !strings.HasPrefix(n, m.sorted[next-1]) {
		next = int(m.links[next].next)
	}
	l := link{length: int32(len(n)), next: int32(next), far: int32(next), depth: m.links[next].depth + 1}
	// The spans of far links grow like the digits of an incremented number, so that a chain of n
	// needles takes O(log n) steps (Myers, "An applicative random-access stack").
	far := m.links[next].far
	if beyond := m.links[far].far; m.links[next].depth-m.links[far].depth == m.links[far].depth-m.links[beyond].depth {
		l.far = beyond
	}
	m.links = append(m.links, l)
}

func (m *matcher) hash(b []byte) uint64 {
	_ = b[5]
	prefix := uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	return prefix * 0x9E3779B97F4A7C15 >> (64 - m.hashBits)
}

// next returns the first position from pos on where a needle can begin. If there is none, it
// returns a position that is followed by less than a window of text.
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

// match returns the length of the longest needle at the start of text, or 0, and reports whether
// text ends within a longer needle. text must be at least a window long.
//
// One user can choose the needles and the text, so the search compares each byte of the text only
// once (Manber and Myers, "Suffix arrays"). The number of steps is the number of bytes in common
// plus the logarithm of the number of needles.
func (m *matcher) match(text []byte) (length int, partial bool) {
	if hash := m.hash(text); m.begins[hash/64]>>(hash%64)&1 == 0 {
		return 0, false
	}
	// The needles up to low sort before text or are prefixes of it. The needles from high on sort
	// after text. The needles at low and high share this many bytes with text.
	low, high := -1, len(m.sorted)
	var agreeLow, agreeHigh int
	for high-low > 1 {
		mid := (low + high) / 2
		n := m.sorted[mid]
		agree, before := agreeLow, true
		shared := int(m.shared[mid][0])
		if agreeHigh > agreeLow {
			agree, before = agreeHigh, false
			shared = int(m.shared[mid][1])
		}
		switch {
		case shared == agree:
			agree = common(n, text, agree)
			before = agree == len(n) || agree < len(text) && n[agree] < text[agree]
		case shared < agree: // mid is on the other side of text than the neighbour
			agree, before = shared, !before
		}
		if before {
			low, agreeLow = mid, agree
		} else {
			high, agreeHigh = mid, agree
		}
	}
	// Every needle that is a prefix of text is the needle at low or a prefix of that needle. In
	// links, the needle at low is at position high, and the empty needle at 0.
	at := high
	for l := &m.links[at]; int(l.length) > agreeLow; l = &m.links[at] {
		at = int(l.next)
		if int(m.links[l.far].length) > agreeLow {
			at = int(l.far)
		}
	}
	return int(m.links[at].length), agreeHigh == len(text)
}

// common returns the length of the common prefix of n and text, which must be at least from.
func common[T string | []byte](n string, text T, from int) int {
	text = text[:min(len(n), len(text))]
	for ; from+8 <= len(text); from += 8 {
		if differ := word(n[from:]) ^ word(text[from:]); differ != 0 {
			return from + bits.TrailingZeros64(differ)/8
		}
	}
	for from < len(text) && n[from] == text[from] {
		from++
	}
	return from
}

// word returns the first eight bytes of s as a number. The compiler turns this into one load.
func word[T string | []byte](s T) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// tail returns the length of the longest suffix of text that is a needle's prefix and shorter than
// the window.
func (m *matcher) tail(text []byte) int {
	if n := m.window - 1; len(text) > n {
		text = text[len(text)-n:]
	}
	if len(text) == 0 || m.at[text[len(text)-1]] == 0 {
		return 0
	}
	// If bit i of state is set, each of the last i+1 bytes occurs in some needle at the
	// corresponding position from 0 to i. The needles can differ.
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

func (m *matcher) isPrefix(s string) bool {
	i, found := slices.BinarySearch(m.sorted, s)
	return found || i < len(m.sorted) && strings.HasPrefix(m.sorted[i], s)
}
