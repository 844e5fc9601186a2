package redact

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// maxWindow limits the window of a matcher, so that its positions fit the bits of a word.
const maxWindow = 32

// matcher finds a fixed set of needles. It is immutable.
//
// It uses the algorithm of Wu and Manber: a window as wide as the shortest needle moves over the
// text, and the two bytes at its end determine how far it can move without missing the beginning of
// a needle. It skips most of the text, and building one takes microseconds, which an automaton of
// all needles would not.
type matcher struct {
	window  int    // length of the shortest needle, at most maxWindow; 0 without needles
	longest int    // length of the longest needle
	shift   []byte // by the two bytes at the end of the window: how far to move it
	// sorted holds the needles in byte order, for searches by prefix.
	sorted []string
	// buckets locates needles in sorted by a hash of their first six bytes.
	buckets    []bucket
	bucketBits uint
	// links has an entry for the empty needle, then one per needle of sorted with its prefixes.
	links []link
	// at has, for each byte, bit i set if some needle has that byte at position i.
	at [256]uint32
}

// bucket is the range of sorted with all needles of one hash, and others if hashes collide.
type bucket struct{ first, end int32 }

// link leads from a needle to shorter ones that are its prefixes, by their positions in links.
// Every chain ends at the empty needle, position 0.
type link struct {
	length int32
	next   int32 // the longest prefix
	far    int32 // one further along the chain, so that any is reached in few steps
	depth  int32 // length of the chain
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
	m.buckets = make([]bucket, 1<<m.bucketBits)
	m.links = make([]link, 1, len(needles)+1)
	for at, n := range m.sorted {
		for end := 1; end < m.window; end++ {
			pair := uint16(n[end-1])<<8 | uint16(n[end])
			m.shift[pair] = min(m.shift[pair], byte(m.window-1-end))
		}
		for i := range m.window {
			m.at[n[i]] |= 1 << i
		}
		b := m.bucket([]byte(n[:MinLength]))
		if b.end == 0 {
			b.first = int32(at)
		}
		b.end = int32(at) + 1
		m.link(n)
	}
	return m
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

func (m *matcher) bucket(b []byte) *bucket {
	_ = b[5]
	prefix := uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	return &m.buckets[prefix*0x9E3779B97F4A7C15>>(64-m.bucketBits)]
}

// next returns the first position from pos on where a needle may begin, or a position with less
// than a window of text after it if none can.
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

// match returns the length of the longest needle at the start of text, or 0, and whether text ends
// within a longer one. Text is at least a window long.
//
// One user may choose the needles and the text, so the number of steps grows only with the
// logarithm of the number of needles.
func (m *matcher) match(text []byte) (length int, partial bool) {
	b := m.bucket(text)
	first, end := int(b.first), int(b.end)
	if first == end {
		return 0, false
	}
	// Needles before first sort before text or equal it, those from end on sort after it. The two
	// neighbours of text share this many bytes with it.
	var agreeBefore, agreeAfter int
	for first < end {
		mid := (first + end) / 2
		n := m.sorted[mid]
		agree := common(n, text, min(agreeBefore, agreeAfter))
		if agree == len(n) || agree < len(text) && n[agree] < text[agree] {
			first, agreeBefore = mid+1, agree
		} else {
			end, agreeAfter = mid, agree
		}
	}
	// Every needle at the start of text is its predecessor or a prefix of that. Position 0 is empty.
	at := first
	for l := &m.links[at]; int(l.length) > agreeBefore; l = &m.links[at] {
		at = int(l.next)
		if int(m.links[l.far].length) > agreeBefore {
			at = int(l.far)
		}
	}
	return int(m.links[at].length), agreeAfter == len(text)
}

// common returns the length of the common prefix of n and text, known to be at least from.
func common(n string, text []byte, from int) int {
	const step = 32
	text = text[:min(len(n), len(text))]
	for from+step <= len(text) && n[from:from+step] == string(text[from:from+step]) {
		from += step
	}
	for from < len(text) && n[from] == text[from] {
		from++
	}
	return from
}

// tail returns the length of the longest suffix of text, below the window, that begins a needle.
func (m *matcher) tail(text []byte) int {
	if n := m.window - 1; len(text) > n {
		text = text[len(text)-n:]
	}
	if len(text) == 0 || m.at[text[len(text)-1]] == 0 {
		return 0
	}
	// Bit i of state: the last i+1 bytes agree with positions 0 to i of possibly different needles.
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
