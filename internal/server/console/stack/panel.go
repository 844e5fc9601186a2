package stack

import (
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
)

// panelOutputs is the number of outputs in the panel of a stack.
const panelOutputs = 5

// panel shows a stack in short, over the list that links to it. Without scripts, it is a page.
func (p *pages) panel(v *page.Visit) (view.Page, error) {
	out, h, err := p.Heads.page(v, Overview)
	if err != nil {
		return out, err
	}
	m := overviewModel{head: h, Now: time.Now()}
	if m.Last, err = p.last(v, h.Stack); err != nil {
		return out, err
	}
	if m.Tags, err = p.Stacks.Tags(v.Context(), v.Stack); err != nil {
		return out, err
	}
	if m.Contents, err = p.state(v); err != nil {
		return out, err
	}
	return view.Page{Title: out.Title, Mark: out.Mark, Section: "stacks", Bar: &view.Bar{Title: "Stacks"}, Body: panel(m)}, nil
}
