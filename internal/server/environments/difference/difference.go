// Package difference compares texts by lines. It needs time and memory that are bounded: of texts that differ too much, it says
// only that lines were replaced.
package difference

import (
	"slices"
	"strings"
)

// Op is what happened to a line.
type Op byte

// The operations.
const (
	Same    Op = ' '
	Removed Op = '-'
	Added   Op = '+'
)

// Line is a line of a difference, without its end. Old and New are its numbers in the two texts; 0 if it is not part of one.
type Line struct {
	Op       Op
	Old, New int
	Text     string
}

const (
	// maxEdits bounds the removed and added lines of a comparison in steps, which keeps the square of it.
	maxEdits = 1000
	// maxWork bounds the compared lines.
	maxWork = 4 << 20
)

// Lines returns all lines of two texts in the order of the second one.
func Lines(before, after string) []Line {
	a, b := split(before), split(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	out := make([]Line, 0, max(len(a), len(b)))
	for i := range head {
		out = append(out, Line{Same, i + 1, i + 1, a[i]})
	}
	out = append(out, middle(a[head:len(a)-tail], b[head:len(b)-tail], head)...)
	for i := len(a) - tail; i < len(a); i++ {
		out = append(out, Line{Same, i + 1, i + 1 + len(b) - len(a), a[i]})
	}
	return out
}

// split returns the lines of a text.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// middle compares lines whose first and last ones differ, and that begin after so many equal ones.
func middle(a, b []string, offset int) []Line {
	trace := steps(a, b)
	if trace == nil {
		return replaced(a, b, offset)
	}
	// From the end to the beginning: each step is a removed or an added line with the equal ones after it.
	var back []Line
	x, y := len(a), len(b)
	equal := func(until int) {
		for x > until {
			x, y = x-1, y-1
			back = append(back, Line{Same, offset + x + 1, offset + y + 1, a[x]})
		}
	}
	for d := len(trace) - 1; d > 0; d-- {
		fromX, add := step(trace[d-1], d, x-y)
		if add {
			equal(fromX)
			y--
			back = append(back, Line{Added, 0, offset + y + 1, b[y]})
		} else {
			equal(fromX + 1)
			x--
			back = append(back, Line{Removed, offset + x + 1, 0, a[x]})
		}
	}
	equal(0)
	slices.Reverse(back)
	return back
}

// steps finds the fewest removed and added lines (E. Myers, An O(ND) difference algorithm). It returns, for each number of
// them, how many lines of a are used up on each diagonal: index d is the one with as many lines of a as of b. The result is
// nil if the texts differ too much.
func steps(a, b []string) [][]int32 {
	var trace [][]int32
	work := 0
	for d := 0; d <= maxEdits; d++ {
		v := make([]int32, 2*d+1)
		trace = append(trace, v)
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				var add bool
				if x, add = step(trace[d-1], d, k); !add {
					x++
				}
			}
			for work++; x < len(a) && x-k < len(b) && a[x] == b[x-k]; work++ {
				x++
			}
			v[k+d] = int32(x)
			if x >= len(a) && x-k >= len(b) {
				return trace
			}
			if work > maxWork {
				return nil
			}
		}
	}
	return nil
}

// step returns where the step number d to diagonal k begins, with the result v of the step before, and whether it adds a line
// or removes one.
func step(v []int32, d, k int) (x int, add bool) {
	at := func(k int) int { return int(v[k+d-1]) }
	if k == -d || k != d && at(k-1) < at(k+1) {
		return at(k + 1), true
	}
	return at(k - 1), false
}

func replaced(a, b []string, offset int) []Line {
	out := make([]Line, 0, len(a)+len(b))
	for i, text := range a {
		out = append(out, Line{Removed, offset + i + 1, 0, text})
	}
	for i, text := range b {
		out = append(out, Line{Added, 0, offset + i + 1, text})
	}
	return out
}

// Changed reports whether a difference has removed or added lines.
func Changed(list []Line) bool {
	return slices.ContainsFunc(list, func(l Line) bool { return l.Op != Same })
}

// Around returns the removed and added lines with up to so many equal lines before and after each, as parts that follow each
// other with lines between them that are left out.
func Around(list []Line, context int) (parts [][]Line) {
	begin, end := 0, 0 // of the last part
	for i, l := range list {
		if l.Op == Same {
			continue
		}
		from, to := max(0, i-context), min(len(list), i+context+1)
		if len(parts) > 0 && from <= end {
			end = max(end, to)
			parts[len(parts)-1] = list[begin:end:end]
		} else {
			begin, end = from, to
			parts = append(parts, list[begin:end:end])
		}
	}
	return parts
}
