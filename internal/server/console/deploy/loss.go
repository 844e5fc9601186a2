package deploy

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/holds"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// lost is a resource that a destroy deletes.
type lost struct {
	Name, Type string
	Data       bool
}

// loss is what a destroy deletes.
type loss struct {
	Count int
	// Resources are the first of them, those that hold data first.
	Resources []lost
	Data      int
	// Protected is the number of resources that pulumi refuses to delete, and Kept of those that it leaves in place.
	Protected, Kept int
	// Readers are the names of stacks, of those that the visitor sees, that read from this one.
	Readers []string
}

// shownLost bounds the listed resources.
const shownLost = 500

// The types of resources that stand for the stack, and the prefix of those for providers: neither exists outside of the
// state.
const (
	rootType     = "pulumi:pulumi:Stack"
	providerType = "pulumi:providers:"
)

// loss returns what a destroy of the stack deletes.
func (p *pages) loss(v *page.Visit) (*loss, error) {
	l := &loss{}
	readers, err := p.Stacks.Downstream(v.Context(), v.Who, v.Stack)
	if err != nil {
		return nil, err
	}
	for _, st := range readers {
		l.Readers = append(l.Readers, st.Project+"/"+st.Name)
	}
	if v.Stack.StateBlob == "" {
		return l, nil
	}
	all, err := p.Stacks.Resources(v.Context(), v.Stack, 0)
	if err != nil {
		return nil, err
	}
	for raw := range all.All() {
		var r struct {
			URN, Type               string
			Protect, RetainOnDelete bool
			External                bool
		}
		if json.Unmarshal(raw, &r) != nil || r.Type == rootType || strings.HasPrefix(r.Type, providerType) {
			continue
		}
		if r.Protect {
			l.Protected++
		}
		if r.RetainOnDelete || r.External {
			l.Kept++
			continue
		}
		_, name := changes.Parts(r.URN)
		one := lost{Name: name, Type: holds.Short(r.Type), Data: holds.Data(r.Type)}
		if one.Data {
			l.Data++
		}
		l.Resources = append(l.Resources, one)
	}
	l.Count = len(l.Resources)
	slices.SortStableFunc(l.Resources, func(a, b lost) int { return cmp.Compare(order(a), order(b)) })
	l.Resources = l.Resources[:min(len(l.Resources), shownLost)]
	return l, nil
}

func order(r lost) int {
	if r.Data {
		return 0
	}
	return 1
}

// shownNames is the number of resources and stacks that a sentence names.
const shownNames = 3

// part is a part of a sentence.
type part struct {
	strong bool
	text   string
}

// sentences say what is deleted, what holds data, and who reads from the stack.
func (l loss) sentences() []part {
	if l.Count == 0 {
		return append([]part{{false, "The stack has no resources that are deleted. "}}, l.readers()...)
	}
	out := []part{{true, words.Count(l.Count, "resource")}, {false, " " + words.Are(l.Count) + " deleted. "}}
	if l.Data > 0 {
		hold := "hold data"
		if l.Data == 1 {
			hold = "holds data"
		}
		named := []string{}
		for _, r := range l.Resources[:min(l.Data, shownNames)] {
			named = append(named, r.Name+" ("+r.Type+")")
		}
		out = append(out, part{true, words.Number(l.Data) + " of them " + hold}, part{false, ": " + names(named, l.Data) + ". "})
	}
	if l.Kept > 0 {
		out = append(out, part{false, words.Count(l.Kept, "resource") + " " + words.Are(l.Kept) + " only forgotten, and not deleted. "})
	}
	if l.Protected > 0 {
		out = append(out, part{true, words.Number(l.Protected) + " " + words.Are(l.Protected) + " protected"}, part{false, ": pulumi refuses to delete such resources. "})
	}
	return append(out, l.readers()...)
}

func (l loss) readers() []part {
	if len(l.Readers) == 0 {
		return []part{{false, "No other stack that you can see reads from this one."}}
	}
	read := " read from this one: "
	if len(l.Readers) == 1 {
		read = " reads from this one: "
	}
	return []part{{true, words.Count(len(l.Readers), "stack")}, {false, read + names(l.Readers[:min(len(l.Readers), shownNames)], len(l.Readers)) + "."}}
}

// names joins names, and says how many of all are missing.
func names(list []string, all int) string {
	text := strings.Join(list, ", ")
	if more := all - len(list); more > 0 {
		text += " and " + words.Number(more) + " more"
	}
	return text
}

func oneLine(text string) string { return termtext.OneLine(text, 0) }
