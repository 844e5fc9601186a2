// Package changes contains the components that show what an update changes: the tree of resources, the difference of one of
// them with its history, and the timeline.
package changes

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/versions"
	"workflowagent/internal/words"
)

// PageSize is the maximum number of rows of a tree on one page. Scripts show larger trees as a
// virtual list, whose rows they read when they are needed.
const PageSize = 500

// The sets of resources that a tree shows.
const (
	ShowChanged   = ""
	ShowDangerous = "danger"
	ShowAll       = "all"
)

// Model is what the components show.
type Model struct {
	changes.Tree
	// Base is the URL of the page that shows the tree; it can contain a query.
	Base string
	// RowsURL is the URL of [Model.Window]; it can contain a query.
	RowsURL string
	// Show, Type and Op select rows.
	Show, Type, Op string
	// URN is the resource whose difference the page shows, or "".
	URN string
	// From is the position of the first row.
	From int
	// Unstarted reports that the update does not exist yet.
	Unstarted bool
	// Over reports that the update has ended.
	Over bool
	// Preview reports that the update only plans.
	Preview bool
	// Expired reports that the events of the update are no longer kept.
	Expired bool
	// Versions reports that the rows are those of two versions of a state, and not of an update.
	Versions bool
	Now      time.Time
}

// Resume reads what a tree shows from the query of a page.
func (m *Model) Resume(query func(string) string) {
	m.Type, m.Op, m.URN = query("type"), query("op"), query("urn")
	switch show := query("show"); {
	case show == ShowDangerous || show == ShowAll:
		m.Show = show
	case query("all") != "": // addresses of earlier versions
		m.Show = ShowAll
	}
	if n, err := strconv.Atoi(query("row")); err == nil && n > 0 && n <= changes.MaxRows {
		m.From = n
	}
}

// shows reports whether the tree shows a row.
func (m Model) shows(r changes.Row) bool {
	switch {
	case m.Show == ShowChanged && !r.Changed(), m.Show == ShowDangerous && !r.Removes(), m.Type != "" && r.Type != m.Type, m.Op != "" && r.Op != m.Op:
		return false
	}
	return true
}

// Select selects the first dangerous or else the first changed resource, unless one is selected.
func (m *Model) Select() {
	if m.URN != "" {
		return
	}
	if first, rest := m.lists(); len(first) > 0 {
		m.URN = first[0].URN
	} else if at := slices.IndexFunc(rest, func(n changes.Node) bool { return !n.Way && n.Changed() && n.Type != stackType }); at >= 0 {
		m.URN = rest[at].URN
	}
}

// Row returns the row of the selected resource.
func (m Model) Row() (changes.Row, bool) {
	at := slices.IndexFunc(m.Rows, func(r changes.Row) bool { return r.URN == m.URN })
	if at < 0 || m.URN == "" {
		return changes.Row{URN: m.URN}, false
	}
	return m.Rows[at], true
}

// stackType is the type of the resource that represents the stack.
const stackType = "pulumi:pulumi:Stack"

// lists returns the rows of the tree: the dangerous ones and those that failed, without structure, and the others as a
// tree. The resource of the stack is left out if it contains all others.
func (m Model) lists() (first, rest []changes.Node) {
	rest = m.Ordered(func(r changes.Row) bool { return m.shows(r) && !r.Dangerous() })
	if len(rest) > 0 && rest[0].Type == stackType && rest[0].Way && !slices.ContainsFunc(rest[1:], func(n changes.Node) bool { return n.Depth == 0 }) {
		rest = rest[1:]
		for i := range rest {
			rest[i].Depth--
		}
	}
	for _, r := range m.Rows {
		if r.Dangerous() && m.shows(r) {
			first = append(first, changes.Node{Row: r})
		}
	}
	slices.SortStableFunc(first, func(a, b changes.Node) int { return danger(a.Row) - danger(b.Row) })
	return first, rest
}

// danger orders dangerous rows.
func danger(r changes.Row) int {
	switch {
	case r.State == changes.Failed || r.Errors > 0:
		return 0
	case r.Op == "replace":
		return 1
	default:
		return 2
	}
}

// root returns the name of the resource of the stack, as a title of the tree.
func (m Model) root() string {
	for _, r := range m.Rows {
		if r.Type == stackType {
			return r.Name
		}
	}
	return "Resources"
}

// hidden returns the number of resources that the tree leaves out because they do not change.
func (m Model) hidden() int {
	n := 0
	if m.Show != ShowAll {
		for _, r := range m.Rows {
			if !r.Changed() && r.Type != stackType {
				n++
			}
		}
	}
	return n
}

// chip is a set of resources.
type chip struct {
	Text, Count, Href string
	Current           bool
}

// chips are the sets of resources that a tree can show.
func (m Model) chips() []chip {
	changed, dangerous := 0, 0
	for _, r := range m.Rows {
		if r.Changed() {
			changed++
		}
		if r.Removes() {
			dangerous++
		}
	}
	one := func(text, show string, n int) chip {
		return chip{text, words.Number(n), m.to("show", show), m.Show == show}
	}
	return []chip{one("Changed", ShowChanged, changed), one("Deletes and replaces", ShowDangerous, dangerous), one("All", ShowAll, len(m.Rows)+m.Omitted)}
}

// maxOptions bounds the values of a filter.
const maxOptions = 200

// types are the types of the changed resources, as values of a filter.
func (m Model) types() []view.MenuItem {
	return m.options("type", "Any type", m.Type, func(r changes.Row) string { return r.Type })
}

// operations are the operations of the rows, as values of a filter.
func (m Model) operations() []view.MenuItem {
	return m.options("op", "Any operation", m.Op, func(r changes.Row) string { return r.Op })
}

// filter says what the filters select.
func (m Model) filter() string {
	switch {
	case m.Type == "" && m.Op == "":
		return "Type: any"
	case m.Type == "":
		return "Operation: " + oneLine(m.Op)
	case m.Op == "":
		return "Type: " + oneLine(ShortType(m.Type))
	default:
		return oneLine(m.Op + " " + ShortType(m.Type))
	}
}

func (m Model) options(name, any, current string, of func(changes.Row) string) []view.MenuItem {
	seen := map[string]bool{"": true}
	var list []string
	for _, r := range m.Rows {
		if v := of(r); !seen[v] && (m.Show == ShowAll || r.Changed()) && len(list) < maxOptions {
			seen[v] = true
			list = append(list, v)
		}
	}
	if !seen[current] {
		list = append(list, current)
	}
	slices.Sort(list)
	out := []view.MenuItem{{Text: any, Href: m.to(name, ""), Current: current == ""}}
	for _, v := range list {
		out = append(out, view.MenuItem{Text: oneLine(v), Href: m.to(name, v), Current: v == current})
	}
	return out
}

// with returns the URL of a page with other parameters; an empty value removes one.
func with(base string, pairs ...string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	q := u.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// to returns the URL of the page with other parameters, from the first row on.
func (m Model) to(pairs ...string) string {
	return with(m.Base, append([]string{"show", m.Show, "type", m.Type, "op", m.Op}, pairs...)...)
}

func (m Model) at(from int) string { return m.to("row", strconv.Itoa(from), "urn", m.URN) }

// rows returns the URL of the window's rows, whose range the script adds.
func (m Model) rows() string { return with(m.RowsURL, "show", m.Show, "type", m.Type, "op", m.Op) }

// Of returns the URL of the page with the difference of a resource.
func (m Model) Of(urn string) string {
	from := ""
	if m.From > 0 {
		from = strconv.Itoa(m.From)
	}
	return m.to("urn", urn, "row", from) + "#diff"
}

// status returns the word for a row's state.
func (m Model) status(r changes.Row) string {
	switch {
	case r.State == changes.Failed || r.Errors > 0:
		return "failed"
	case r.State == changes.Running && m.Over:
		return "interrupted"
	case r.State == changes.Running:
		return "running"
	case r.State == changes.Done && (r.Op == "same" || r.Op == ""):
		return "unchanged"
	case r.State == changes.Done:
		return "succeeded"
	case m.Over && !m.Preview:
		return "not tried"
	default:
		return "planned"
	}
}

// text returns what a row says about its resource at its end.
func (m Model) text(n changes.Node) string {
	switch status := m.status(n.Row); {
	case n.Way && n.Below > 0:
		return words.Number(n.Below)
	case status == "succeeded" || status == "planned":
		return cmp.Or(n.Op, status)
	case status == "unchanged":
		return ""
	default:
		return status
	}
}

// opIcons are the icons of operations.
var opIcons = map[string]string{
	"create": "op-create", "import": "op-create", "delete": "op-delete", "discard": "op-delete", "replace": "op-replace", "update": "op-update",
	"same": "cube", "": "cube", versions.OnlySecrets: "lock",
}

// OpIcon returns the icon of an operation.
func OpIcon(op string) string { return cmp.Or(opIcons[op], "op-read") }

// Tint returns the class of the color of an operation.
func Tint(op string) string {
	if op == "delete" || op == "replace" || op == "discard" {
		return "bad"
	}
	return "dim"
}

// ShortType returns the last parts of a type, such as s3:Bucket for aws:s3/bucket:Bucket.
func ShortType(kind string) string {
	parts := strings.Split(kind, ":")
	if len(parts) < 3 {
		return kind
	}
	module, _, _ := strings.Cut(parts[1], "/")
	if module == "index" {
		module = parts[0]
	}
	return cmp.Or(module, parts[0]) + ":" + parts[2]
}

// mostCopied bounds the lines of the text for a chat.
const mostCopied = 200

// copied is the tree as a text for a chat.
func (m Model) copied() string {
	first, rest := m.lists()
	var out strings.Builder
	n := 0
	for _, r := range slices.Concat(first, rest) {
		if r.Way {
			continue
		}
		if n++; n > mostCopied {
			continue
		}
		out.WriteString(cmp.Or(m.text(r), r.Op, "same") + " " + ShortType(r.Type) + " " + oneLine(r.Name) + "\n")
	}
	if n > mostCopied {
		out.WriteString("and " + words.Number(n-mostCopied) + " more\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}
