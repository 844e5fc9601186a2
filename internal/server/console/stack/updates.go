package stack

import (
	"cmp"
	"strconv"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// listed is the number of updates on a page.
const listed = 50

func (p *pages) activity(v *page.Visit) (view.Page, error) {
	out, err := p.Heads.Page(v, Runs)
	if err != nil {
		return out, err
	}
	previews := v.Query("previews") != ""
	offset, err := strconv.Atoi(cmp.Or(v.Query("from"), "0"))
	if err != nil || offset < 0 {
		return out, fault.Invalid("The parameter \"from\" must be a number.")
	}
	list, err := p.history(v, store.UpdateFilter{Previews: previews, Limit: listed + 1, Offset: offset})
	if err != nil {
		return out, err
	}
	next := ""
	if len(list) > listed {
		list = list[:listed]
		next = "?from=" + strconv.Itoa(offset+listed)
		if previews {
			next += "&previews=1"
		}
	}
	out.Title = "Runs of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = activity(v.Stack, list, previews, next)
	return out, nil
}
