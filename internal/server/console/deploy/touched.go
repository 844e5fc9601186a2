package deploy

import (
	"workflowagent/internal/server/console/drift"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/stacks/holds"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// decides reports whether an operation ends drift.
func decides(op workflow.Operation) bool {
	return op == workflow.OperationRemediateDrift || op == workflow.OperationRefresh
}

// touches finds out what drifted, if the operation of a form ends drift.
func (p *pages) touches(v *page.Visit, f *form) (err error) {
	if decides(f.Operation) {
		f.Found, err = drift.Find(v, p.Drift, p.Stacks)
	}
	return err
}

// removes reports whether the operation of a form deletes or replaces resources, or removes them from the state, as far
// as it is known. An update can do so if it is not known what drifted.
func (f form) removes() bool {
	if f.Found == nil || f.Found.Unlisted {
		return f.Operation == workflow.OperationRemediateDrift
	}
	if f.Operation == workflow.OperationRefresh {
		return f.Found.Count(drift.Resource.Deleted) > 0
	}
	return f.Found.Count(drift.Resource.Replaces) > 0 || f.Found.Count(drift.Resource.Created) > 0
}

// loses reports whether the operation of a form deletes or replaces what exists of a resource.
func (f form) loses(r drift.Resource) bool {
	return f.Operation == workflow.OperationRemediateDrift && (r.Replaces() || r.Created())
}

// did is what an operation does with resources, in words for one and for several.
type did struct {
	one, many string
	is        func(drift.Resource) bool
}

// deeds are what an operation does with the resources that drifted.
func (f form) deeds() []did {
	changed := func(r drift.Resource) bool { return !r.Deleted() && !r.Created() }
	if f.Operation == workflow.OperationRefresh {
		return []did{
			{"is removed from it", "are removed from it", drift.Resource.Deleted},
			{"is stored as it was found", "are stored as they were found", changed},
			{"is added to it", "are added to it", drift.Resource.Created},
		}
	}
	return []did{
		{"is created again", "are created again", drift.Resource.Deleted},
		{"is replaced", "are replaced", drift.Resource.Replaces},
		{"is changed back", "are changed back", func(r drift.Resource) bool { return changed(r) && !r.Replaces() }},
		{"is deleted unless the program declares it", "are deleted unless the program declares them", drift.Resource.Created},
	}
}

// longName bounds the name of a resource in a sentence, in bytes.
const longName = 80

// decision says what an operation does with drift.
func (f form) decision() []part {
	out := []part{{false, "An update restores what the program declares. It also applies what else has changed in the program since the last update. "}}
	if f.Operation == workflow.OperationRefresh {
		out = []part{{false, "A refresh changes no resource. It writes what was found to the state; the next update changes the resources again unless the program declares the same. "}}
	}
	for _, d := range f.deeds() {
		n := f.Found.Count(d.is)
		if n == 0 {
			continue
		}
		named := make([]string, 0, shownNames)
		for _, r := range f.Found.Resources {
			if d.is(r) && len(named) < shownNames {
				named = append(named, termtext.OneLine(r.Name, longName))
			}
		}
		does := " " + d.many
		if n == 1 {
			does = " " + d.one
		}
		out = append(out, part{true, words.Count(n, "resource") + does}, part{false, ": " + names(named, n) + ". "})
	}
	if n := f.Found.Count(func(r drift.Resource) bool { return f.loses(r) && holds.Data(r.Type) }); n > 0 {
		hold := " of them hold data."
		if n == 1 {
			hold = " of them holds data."
		}
		out = append(out, part{true, words.Number(n) + hold})
	}
	if f.Found.Unlisted {
		out = append(out, part{true, "The server does not know all resources that drifted."})
	}
	return out
}
