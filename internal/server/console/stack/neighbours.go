package stack

import (
	"fmt"
	"strings"
	"unicode/utf8"

	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// shownNeighbours is the number of stacks on each side of a graph.
const shownNeighbours = 3

// node is a stack in a graph.
type node struct {
	X, Y, Width   int
	Project, Name string // cut to the width
	Full, Path    string
	Class         string // of the dot
	Word          string
}

// graph shows the stacks from which a stack reads, itself, and those that read from it.
type graph struct {
	Label    string
	Self     node
	Nodes    []node
	Lines    string // path between the nodes
	Up, Down int    // stacks that are left out
}

// The geometry of a graph, in the units of its view.
const (
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

// neighbours returns the graph of a stack's neighbours that the visitor may see; nil without one.
func (p *pages) neighbours(v *page.Visit, self estate.Stack) (*graph, error) {
	ctx := v.Context()
	up, err := p.Stacks.Upstream(ctx, v.Who, v.Stack)
	if err != nil {
		return nil, err
	}
	down, err := p.Stacks.Downstream(ctx, v.Who, v.Stack)
	if err != nil || len(up)+len(down) == 0 {
		return nil, err
	}
	g := &graph{Up: max(0, len(up)-shownNeighbours), Down: max(0, len(down)-shownNeighbours)}
	g.Label = v.Stack.Project + "/" + v.Stack.Name + sentence(" reads from ", up) + sentence(" is read by ", down)
	middle := graphRows / 2
	g.Self = nodeOf(v.Stack, self, selfX, middle-nodeHeight/2, selfWidth)
	for i, side := range []struct {
		list     []store.Stack
		x, width int
	}{{up, leftX, leftWidth}, {down, rightX, rightWidth}} {
		shown := side.list[:min(len(side.list), shownNeighbours)]
		for at, st := range shown {
			y := middle + rowStep*(2*at-len(shown)+1)/2
			row, err := p.Estate.Get(ctx, v.Who, st)
			if err != nil {
				return nil, err
			}
			g.Nodes = append(g.Nodes, nodeOf(st, row, side.x, y-nodeHeight/2, side.width))
			from, to, fromY, toY := leftX+leftWidth, selfX, y, middle
			if i == 1 {
				from, to, fromY, toY = selfX+selfWidth, rightX, middle, y
			}
			g.Lines += fmt.Sprintf("M%d %dC%d %d %d %d %d %d", from, fromY, (from+to)/2+7, fromY, (from+to)/2-7, toY, to, toY)
		}
	}
	return g, nil
}

func sentence(begin string, list []store.Stack) string {
	if len(list) == 0 {
		return ""
	}
	var names []string
	for _, st := range list[:min(len(list), shownNeighbours)] {
		names = append(names, st.Project+"/"+st.Name)
	}
	text := begin + strings.Join(names, ", ")
	if more := len(list) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ";"
}

var dots = map[string]string{view.MarkFailed: "dotx", view.MarkDrift: "dotd", view.MarkRunning: "dotr"}

func nodeOf(st store.Stack, row estate.Stack, x, y, width int) node {
	n := node{
		X: x, Y: y, Width: width, Project: fit(st.Project, width), Name: fit(st.Name, width), Full: st.Project + "/" + st.Name, Path: page.StackPath(st),
		Class: "doto", Word: row.State.Words(),
	}
	if class, ok := dots[list.Mark(row.State)]; ok {
		n.Class = class
	}
	return n
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
