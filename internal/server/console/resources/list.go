package resources

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/inventory"
	"workflowagent/internal/words"
)

// entry is a row of the list: a resource, or a type with its number of resources.
type entry struct {
	Depth int
	// Kind is the type of a row that stands for one, and Others is a number of types that are not shown.
	Kind          string
	Others, Count int
	Opened        bool
	// Place is that of the resource, or -1 for one on which the last update failed and that the state lacks.
	Place int
	URN   string
	// Below is the number of resources below it that a tree shows, and Parent reports that they follow, or are folded.
	Below          int
	Parent, Folded bool
	// at is the position in the whole list.
	at int
}

const (
	// fewResources is the number up to which all types are open.
	fewResources = 30
	// fewTypes is the number of types that the page shows at first.
	fewTypes = 20
)

// none is the value of the parameter type that closes all types.
const none = "-"

// arrange makes the rows of the list.
func (m *model) arrange() {
	show := make([]bool, len(m.List.All))
	for i, r := range m.List.All {
		if show[i] = m.passes(r.URN, r.ID, r.Type); show[i] {
			m.matching++
		}
	}
	if m.URN == "" && m.matching == 1 && len(m.Words) > 0 { // what was searched is found
		m.Place = slices.Index(show, true)
	}
	switch m.Order {
	case asTree:
		m.tree(show)
	case changed:
		m.byChange(show)
	default:
		m.byType(show)
	}
	for i := range m.entries {
		m.entries[i].at = i
	}
}

// passes reports whether the filters select a resource.
func (m *model) passes(urn, id, kind string) bool {
	if m.Provider != "" && provider(kind) != m.Provider {
		return false
	}
	if len(m.Words) == 0 {
		return true
	}
	text := strings.ToLower(urn + "\n" + id)
	return !slices.ContainsFunc(m.Words, func(word string) bool { return !strings.Contains(text, word) })
}

// provider returns the package of a type.
func provider(kind string) string {
	name, _, _ := strings.Cut(kind, ":")
	return name
}

// lost returns the URNs of the resources on which the last update failed, that the state lacks and that pass the filters.
func (m *model) lost() (list []string) {
	for urn, r := range m.Failed {
		if m.List.Find(urn, false) < 0 && m.passes(urn, "", r.Type) {
			list = append(list, urn)
		}
	}
	slices.Sort(list)
	return list
}

func (m *model) byType(show []bool) {
	type group struct {
		kind   string
		places []int
		lost   []string
	}
	index := map[string]*group{}
	var groups []*group
	of := func(kind string) *group {
		if index[kind] == nil {
			index[kind] = &group{kind: kind}
			groups = append(groups, index[kind])
		}
		return index[kind]
	}
	for i, r := range m.List.All {
		if show[i] {
			g := of(r.Type)
			g.places = append(g.places, i)
		}
	}
	for _, urn := range m.lost() {
		g := of(m.Failed[urn].Type)
		g.lost = append(g.lost, urn)
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(min(1, len(b.lost)), min(1, len(a.lost))), cmp.Compare(len(b.places), len(a.places)), cmp.Compare(a.kind, b.kind))
	})
	open := m.open()
	hidden := 0
	if !m.AllTypes && len(groups) > fewTypes+1 {
		hidden = len(groups) - fewTypes
		if slices.ContainsFunc(groups[fewTypes:], func(g *group) bool { return g.kind == open }) {
			hidden = 0
		}
	}
	for _, g := range groups[:len(groups)-hidden] {
		opened := g.kind == open || open == "" && m.matching <= fewResources
		m.entries = append(m.entries, entry{Kind: g.kind, Count: len(g.places), Opened: opened, Place: -1})
		if !opened {
			continue
		}
		for _, urn := range g.lost {
			m.entries = append(m.entries, entry{Depth: 1, Place: -1, URN: urn})
		}
		for _, i := range g.places {
			m.entries = append(m.entries, entry{Depth: 1, Place: i, URN: m.List.All[i].URN})
		}
	}
	if hidden > 0 {
		rest := 0
		for _, g := range groups[len(groups)-hidden:] {
			rest += len(g.places)
		}
		m.entries = append(m.entries, entry{Others: hidden, Count: rest, Place: -1})
	}
}

// open returns the type whose resources are shown, or "".
func (m *model) open() string {
	switch r, found := m.chosen(); {
	case m.Open != "":
		return m.Open
	case m.URN != "" && found:
		return r.Type
	default:
		return m.Failed[m.URN].Type
	}
}

func (m *model) byChange(show []bool) {
	var places []int
	for i := range m.List.All {
		if show[i] {
			places = append(places, i)
		}
	}
	slices.SortStableFunc(places, func(a, b int) int { return m.List.All[b].Modified.Compare(m.List.All[a].Modified) })
	for _, urn := range m.lost() {
		m.entries = append(m.entries, entry{Place: -1, URN: urn})
	}
	for _, i := range places {
		m.entries = append(m.entries, entry{Place: i, URN: m.List.All[i].URN})
	}
}

// oldMark distinguishes the URN of a resource that waits for its deletion from that of the new one.
const oldMark = "\x00old"

func (m *model) tree(show []bool) {
	rows := make([]changes.Row, len(m.List.All))
	places := make(map[string]int, len(rows))
	for i, r := range m.List.All {
		key := r.URN
		if m.List.Find(r.URN, false) != i {
			key += oldMark + strconv.Itoa(i)
		}
		places[key] = i
		rows[i] = changes.Row{URN: key, Parent: r.Parent}
	}
	for _, urn := range m.lost() {
		m.entries = append(m.entries, entry{Place: -1, URN: urn})
	}
	nodes := changes.Tree{Rows: rows}.Ordered(func(r changes.Row) bool { return show[places[r.URN]] })
	for i, n := range nodes {
		at := places[n.URN]
		m.entries = append(m.entries, entry{
			Depth: n.Depth, Place: at, URN: m.List.All[at].URN, Below: n.Below, Parent: i+1 < len(nodes) && nodes[i+1].Depth > n.Depth,
		})
	}
}

// key is a short name of a row.
func (m *model) key(e entry) string {
	h := fnv.New32a()
	h.Write([]byte(e.Kind + "\n" + e.URN))
	if e.Place >= 0 && m.List.All[e.Place].Delete {
		h.Write([]byte(oldMark))
	}
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// rowsAbove is the number of rows that remain above one that was selected in a large list.
const rowsAbove = 8

// href returns the page with a row selected, or with a type opened or closed.
func (m *model) href(e entry) string {
	row := "" // where a large list begins on the page: near the row
	if at := e.at - rowsAbove; at > 0 && len(m.entries) > wholeList {
		row = strconv.Itoa(at)
	}
	switch {
	case e.Others > 0:
		return m.With("all", "1")
	case e.Kind != "" && e.Opened:
		return m.With("type", none)
	case e.Kind != "":
		return m.With("type", e.Kind)
	}
	old := ""
	if e.Place >= 0 && m.List.All[e.Place].Delete {
		old = "1"
	}
	return m.With("urn", e.URN, "old", old, "row", row) + "#res"
}

// mark is what a row shows before its name: a state, or else an icon, with the word for it.
type mark struct{ State, Icon, Word string }

func (m *model) mark(e entry) mark {
	switch {
	case e.Opened:
		return mark{Icon: "down"}
	case e.Kind != "" || e.Others > 0:
		return mark{Icon: "right"}
	}
	if _, failed := m.Failed[e.URN]; failed {
		return mark{State: view.MarkFailed}
	}
	if e.Place < 0 {
		return mark{Icon: "cube"}
	}
	return iconOf(m.List.All[e.Place])
}

func iconOf(r inventory.Resource) mark {
	switch {
	case r.Delete:
		return mark{Icon: "op-delete", Word: "waits for its deletion"}
	case r.Failed:
		return mark{State: view.MarkWarn, Word: "incomplete"}
	case r.Taint || r.Replace:
		return mark{Icon: "op-replace", Word: "waits for its replacement"}
	case r.External:
		return mark{Icon: "external", Word: "external"}
	case r.Protect:
		return mark{Icon: "lock", Word: "protected"}
	default:
		return mark{Icon: "cube"}
	}
}

// text is the end of a row.
func (m *model) text(e entry) string {
	switch _, failed := m.Failed[e.URN]; {
	case e.Kind != "" || e.Others > 0:
		return words.Number(e.Count)
	case failed:
		return "failed"
	case e.Below > 0 && m.Order == asTree:
		return words.Number(e.Below)
	case e.Place < 0:
		return ""
	}
	r := m.List.All[e.Place]
	if r.Delete {
		return "to be deleted"
	}
	return m.version(r)
}

// version names the update that changed a resource last; "" if it is unknown.
func (m *model) version(r inventory.Resource) string {
	if u, known := m.Versions.at(r.Modified); known {
		return "v" + strconv.FormatInt(u.Version, 10)
	}
	return ""
}

// name returns the name in a URN.
func name(urn string) string {
	_, text := changes.Parts(urn)
	return text
}

// name is what a row names, and title is all of it.
func (m *model) name(e entry) string {
	switch {
	case e.Others > 0:
		return words.Count(e.Others, "other type")
	case e.Kind != "":
		return stack.ShortType(e.Kind)
	default:
		return name(e.URN)
	}
}

func (m *model) title(e entry) string {
	if e.Kind != "" {
		return e.Kind
	}
	return m.name(e)
}

// kind is the type that a row names after the resource: none in a list by type.
func (m *model) kind(e entry) string {
	if m.Order == byType || e.URN == "" {
		return ""
	}
	if e.Place < 0 {
		return console.ShortType(m.Failed[e.URN].Type)
	}
	return console.ShortType(m.List.All[e.Place].Type)
}

// orders are the orders of the list, as links.
func (m *model) orders() []view.MenuItem {
	one := func(text, order string) view.MenuItem {
		return view.MenuItem{Text: text, Href: m.With("view", order), Current: m.Order == order}
	}
	return []view.MenuItem{one("By type", byType), one("Tree", asTree), one("Last changed", changed)}
}

// maxProviders bounds the values of the filter by provider.
const maxProviders = 100

// providers are the values of the filter by provider.
func (m *model) providers() (text string, list []view.MenuItem) {
	seen := map[string]bool{}
	var names []string
	for _, r := range m.List.All {
		if name := provider(r.Type); !seen[name] && len(names) < maxProviders {
			seen[name] = true
			names = append(names, name)
		}
	}
	if m.Provider != "" && !seen[m.Provider] {
		names = append(names, m.Provider)
	}
	slices.Sort(names)
	options := []view.Option{{Text: "any"}}
	for _, n := range names {
		options = append(options, view.Option{Value: n, Text: n})
	}
	return m.Menu("provider", options)
}

// selected reports whether a row is that of the selected resource.
func (m *model) selected(e entry) bool {
	if e.Place >= 0 {
		return e.Place == m.Place
	}
	return m.Place < 0 && e.URN == m.URN
}

// depth returns the class of a row's indentation. Deeper rows have a rule for their attribute.
func depth(n int) string { return "d" + strconv.Itoa(min(max(n, 0), 2)) }
