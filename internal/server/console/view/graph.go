package view

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Graph shows one thing between those on which it depends, at the left, and those that depend on it, at the right: at most
// three on each side. The others are a number.
type Graph struct {
	// Label says in a sentence what the graph shows.
	Label string
	self  place
	nodes []place
	lines string // path between the nodes
	// left and right are the numbers of things that are left out.
	left, right int
}

// Node is a thing in a graph.
type Node struct {
	Name, Second string
	// Full names the thing, and Href is its page.
	Full, Href string
	// Mark is its state, or "", and Word the word for it.
	Mark, Word string
}

// place is a node with its place, and its names cut to the width.
type place struct {
	Node
	x, y, width int
}

// The geometry of a graph, in the units of its view.
const (
	// Neighbours is the number of things on each side.
	Neighbours = 3

	nodeHeight = 36
	graphRows  = 196
	leftX      = 1
	leftWidth  = 111
	selfX      = 134
	selfWidth  = 92
	rightX     = 252
	rightWidth = 123
	rowStep    = 68
	// letter is the width of a character, so that names of wide fonts fit.
	letter = 7
)

// NewGraph returns the graph of a thing. left and right are the first [Neighbours] on each side, of so many.
func NewGraph(label string, self Node, left []Node, lefts int, right []Node, rights int) *Graph {
	g := &Graph{Label: label, left: lefts - len(left), right: rights - len(right)}
	middle := graphRows / 2
	g.self = placed(self, selfX, middle-nodeHeight/2, selfWidth)
	for i, side := range []struct {
		list     []Node
		x, width int
	}{{left, leftX, leftWidth}, {right, rightX, rightWidth}} {
		for at, n := range side.list {
			y := middle + rowStep*(2*at-len(side.list)+1)/2
			g.nodes = append(g.nodes, placed(n, side.x, y-nodeHeight/2, side.width))
			from, to, fromY, toY := leftX+leftWidth, selfX, y, middle
			if i == 1 {
				from, to, fromY, toY = selfX+selfWidth, rightX, middle, y
			}
			g.lines += fmt.Sprintf("M%d %dC%d %d %d %d %d %d", from, fromY, (from+to)/2+7, fromY, (from+to)/2-7, toY, to, toY)
		}
	}
	return g
}

// box is the part of the plane in which the nodes lie.
func (g Graph) box() string {
	top, bottom := g.self.y, g.self.y+nodeHeight
	for _, n := range g.nodes {
		top, bottom = min(top, n.y), max(bottom, n.y+nodeHeight)
	}
	if g.left > 0 || g.right > 0 {
		bottom = graphRows
	}
	const edge = 8
	return fmt.Sprintf("0 %d 376 %d", top-edge, bottom-top+2*edge)
}

// Sentence returns begin and the names of the first [Neighbours] things of a list; "" for an empty one.
func Sentence(begin string, list []Node, all int) string {
	if all == 0 {
		return ""
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Full)
	}
	text := begin + strings.Join(names, ", ")
	if more := all - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ";"
}

var dots = map[string]string{MarkFailed: "dotx", MarkDrift: "dotd", MarkRunning: "dotr"}

func (p place) dot() string {
	if class, ok := dots[p.Mark]; ok {
		return class
	}
	return "doto"
}

func (p place) label() string {
	if p.Word == "" {
		return Visible(p.Full)
	}
	return Visible(p.Full + ", " + p.Word)
}

func placed(n Node, x, y, width int) place {
	n.Name, n.Second = fit(n.Name, width), fit(n.Second, width)
	return place{n, x, y, width}
}

// fit cuts the middle of a name to the width of a node.
func fit(name string, width int) string {
	most := (width - 28) / letter
	if utf8.RuneCountInString(name) <= most {
		return name
	}
	runes := []rune(name)
	head := (most - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-1-head):])
}
