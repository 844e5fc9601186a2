package changes

import "slices"

// Node is a resource in its place in the tree.
type Node struct {
	Row
	Depth int
	// Same counts the resources below that do not change, and Below those that are shown.
	Same, Below int
	// Way reports that the resource is only shown on the way to others.
	Way bool
}

// Ordered returns rows as a tree by parent, in the order of display: among siblings first those
// with failures in or below them, then the running ones, then by their first event. Rows that show rejects
// are left out, except on the way to others. Cycles and unknown parents make a resource a root.
func (t Tree) Ordered(show func(Row) bool) []Node {
	f := forest{rows: t.Rows, index: make(map[string]int, len(t.Rows)), show: show}
	for i, r := range t.Rows {
		f.index[r.URN] = i
	}
	f.build()
	return f.walk()
}

type forest struct {
	rows  []Row
	index map[string]int
	show  func(Row) bool
	kids  map[int][]int
	// same, below and weight are of a resource with all below it.
	same, below, weight []int
	shown, own          []bool
}

const root = -1

func (f *forest) parent(i int) int {
	p, ok := f.index[f.rows[i].Parent]
	if !ok || p == i {
		return root
	}
	return p
}

// build computes the sums bottom up without recursion, because trees can be deep.
func (f *forest) build() {
	n := len(f.rows)
	f.kids = make(map[int][]int, n/4+1)
	f.same, f.below, f.weight = make([]int, n), make([]int, n), make([]int, n)
	f.shown, f.own = make([]bool, n), make([]bool, n)
	up := make([]int, n)
	for i := range f.rows {
		up[i] = f.parent(i)
	}
	breakCycles(up)
	for i, p := range up {
		f.kids[p] = append(f.kids[p], i)
	}
	order := make([]int, 0, n)
	order = append(order, f.kids[root]...)
	for at := 0; at < len(order); at++ {
		order = append(order, f.kids[order[at]]...)
	}
	for _, i := range slices.Backward(order) {
		r := f.rows[i]
		f.own[i] = f.show(r)
		f.shown[i] = f.shown[i] || f.own[i]
		f.weight[i] = max(f.weight[i], weight(r))
		if p := up[i]; p != root {
			f.same[p] += f.same[i]
			if !r.Changed() {
				f.same[p]++
			}
			f.below[p] += f.below[i]
			if f.own[i] {
				f.below[p]++
			}
			f.shown[p] = f.shown[p] || f.shown[i]
			f.weight[p] = max(f.weight[p], f.weight[i])
		}
	}
	for _, list := range f.kids {
		slices.SortStableFunc(list, func(a, b int) int { return f.weight[b] - f.weight[a] })
	}
}

func weight(r Row) int {
	switch {
	case r.State == Failed || r.Errors > 0:
		return 2
	case r.State == Running:
		return 1
	default:
		return 0
	}
}

// breakCycles makes one resource of each cycle a root.
func breakCycles(up []int) {
	state := make([]int8, len(up)) // 1: on the path, 2: checked
	var path []int
	for i := range up {
		path = path[:0]
		for at := i; at != root && state[at] != 2; at = up[at] {
			if state[at] == 1 {
				up[at] = root
				break
			}
			state[at] = 1
			path = append(path, at)
		}
		for _, at := range path {
			state[at] = 2
		}
	}
}

func (f *forest) walk() []Node {
	type entry struct{ i, depth int }
	var stack []entry
	push := func(list []int, depth int) {
		for _, i := range slices.Backward(list) {
			if f.shown[i] {
				stack = append(stack, entry{i, depth})
			}
		}
	}
	push(f.kids[root], 0)
	var out []Node
	for len(stack) > 0 {
		e := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		out = append(out, Node{Row: f.rows[e.i], Depth: e.depth, Same: f.same[e.i], Below: f.below[e.i], Way: !f.own[e.i]})
		push(f.kids[e.i], e.depth+1)
	}
	return out
}
