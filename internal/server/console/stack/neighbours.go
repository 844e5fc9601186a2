package stack

import (
	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// Neighbours are the stacks from which a stack reads, and those that read from it, as far as a visitor may see them.
type Neighbours struct {
	Up, Down []store.Stack
	Graph    *view.Graph // nil without neighbours
}

// NeighboursOf returns the neighbours of the stack of a page.
func (h Heads) NeighboursOf(v *page.Visit, s *stacks.Service) (n Neighbours, err error) {
	ctx := v.Context()
	if n.Up, err = s.Upstream(ctx, v.Who, v.Stack); err != nil {
		return n, err
	}
	if n.Down, err = s.Downstream(ctx, v.Who, v.Stack); err != nil || len(n.Up)+len(n.Down) == 0 {
		return n, err
	}
	var sides [3][]view.Node
	for i, all := range [][]store.Stack{{v.Stack}, n.Up, n.Down} {
		for _, st := range all[:min(len(all), view.Neighbours)] {
			row, err := h.Estate.Get(ctx, v.Who, st)
			if err != nil {
				return n, err
			}
			sides[i] = append(sides[i], nodeOf(st, row))
		}
	}
	self, up, down := sides[0][0], sides[1], sides[2]
	label := self.Full + view.Sentence(" reads from ", up, len(n.Up)) + view.Sentence(" is read by ", down, len(n.Down))
	n.Graph = view.NewGraph(label, self, up, len(n.Up), down, len(n.Down))
	return n, nil
}

func nodeOf(st store.Stack, row estate.Stack) view.Node {
	return view.Node{
		Name: st.Name, Second: st.Project, Full: st.Project + "/" + st.Name, Href: page.StackPath(st), Mark: list.Mark(row.State), Word: row.State.Words(),
	}
}
