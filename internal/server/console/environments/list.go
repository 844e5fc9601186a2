package environments

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// rows is the number of rows of a list on a page.
const rows = 100

func now() time.Time { return time.Now() }

// number is the number of a revision, as clients write it.
func number(n int64) string { return strconv.FormatInt(n, 10) }

type listModel struct {
	place
	view.Filters
	Text        string
	List        []environments.Listed
	First, Next string
}

// orders are the choices of the order.
var orders = []view.Option{
	{Value: string(store.EnvironmentsByName), Text: "Sort: name"},
	{Value: string(store.EnvironmentsByChange), Text: "Sort: last change"},
	{Value: string(store.EnvironmentsByOpening), Text: "Sort: last opened"},
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	m := listModel{place: at(v), Text: strings.TrimSpace(v.Query("q"))}
	m.Filters = view.Filters{Path: m.path(), Values: v.R.URL.Query(), Parameters: []string{"q", "sort", "after"}, Place: "after"}
	o := environments.Overview{Words: search.Parse(m.Text).Words, Order: store.EnvironmentOrder(v.Query("sort")), Limit: rows}
	if !slices.ContainsFunc(orders, func(each view.Option) bool { return each.Value == string(o.Order) }) {
		o.Order = store.EnvironmentsByName
	}
	if after := v.Query("after"); after != "" {
		place, err := parsePlace(after)
		if err != nil {
			return view.Page{}, err
		}
		o.After, m.First = &place, m.With()
	}
	list, next, err := p.Environments.Overview(v.Context(), v.Who, v.Org.ID, o)
	if err != nil {
		return view.Page{}, err
	}
	m.List = list
	if next != nil {
		m.Next = m.With("after", fmt.Sprintf("%d/%s/%s", next.At, next.Project, next.Name))
	}
	bar := &view.Bar{Title: "Environments"}
	if m.Create {
		bar.Actions = listActions(m)
	}
	if m.First == "" && m.Next == "" && m.Text == "" && len(list) > 0 {
		bar.Count = words.Number(len(list))
	}
	return view.Page{Title: "Environments · " + m.Org, Section: section, Bar: bar, Body: listBody(m), Live: topics(v)}, nil
}

// parsePlace parses the place after which a page begins: time/project/environment.
func parsePlace(text string) (p store.EnvironmentPlace, err error) {
	at, name, _ := strings.Cut(text, "/")
	p.At, err = strconv.ParseInt(at, 10, 64)
	ref, invalid := environments.ParseReference(name)
	if err != nil || invalid != nil {
		return p, fault.Invalid("The parameter %q does not name a place in the list.", "after")
	}
	p.Project, p.Name = ref.Project, ref.Name
	return p, nil
}

// none says that the list is empty.
func (m listModel) none() string {
	if m.Create {
		return "The organization has no environment"
	}
	return "There is no environment that you can see"
}

// order is the menu of the orders.
func (m listModel) order() (text string, list []view.MenuItem) { return m.Menu("sort", orders) }

// sees reports whether the visitor sees more of an environment than its names.
func sees(e environments.Listed) bool { return e.Permission > store.NoEnvironment }

// usedBy says how many environments and stacks refer to an environment.
func usedBy(e environments.Listed) string {
	var parts []string
	for _, each := range []struct {
		n    int64
		what string
	}{{e.Referrers.Stacks, "stack"}, {e.Referrers.Environments, "environment"}} {
		if each.n > 0 {
			parts = append(parts, words.Count(each.n, each.what))
		}
	}
	return strings.Join(parts, ", ")
}

// label is a tag as lists and the search know it.
func label(name, value string) string { return name + ":" + value }

// shownTags is the number of tags in a row.
const shownTags = 2

// labels are the tags of an environment, by name.
func labels(tags map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, label(name, tags[name]))
	}
	return out
}
