// Package changes contains the components that show what an update changes: the tree of resources,
// the diff of a resource, the timeline and the messages.
package changes

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/stacks/changes"
)

// PageSize is the maximum number of rows of a tree on one page. Scripts show larger trees as a
// virtual list, whose rows they read when they are needed.
const PageSize = 500

// Model is what the components show.
type Model struct {
	changes.Tree
	// Base is the URL of the page that shows the tree; it can contain a query.
	Base string
	// RowsURL is the URL of [Model.Window].
	RowsURL string
	// Detail is the URL of the page of the update, which shows the diff of a resource.
	Detail string
	// All includes resources that do not change.
	All bool
	// From is the position of the first row.
	From int
	// Unstarted reports that the update does not exist yet.
	Unstarted bool
	// Over reports that the update has ended.
	Over bool
	// Preview reports that the update only plans.
	Preview bool
	Now     time.Time
}

// Resume reads the position in a tree from the query of a page.
func (m *Model) Resume(query func(string) string) {
	m.All = query("all") != ""
	if n, err := strconv.Atoi(query("from")); err == nil && n > 0 && n <= changes.MaxRows {
		m.From = n
	}
}

// marks are the operations' marks in the CLI.
var marks = map[string]string{
	"create": "+", "update": "~", "replace": "+-", "delete": "-", "same": " ", "read": ">", "refresh": "↻", "import": "=",
	"remove-pending-replace": "~", "discard": "<", "": "·",
	"create-replacement": "++", "delete-replaced": "--", "read-replacement": ">>", "import-replacement": "=>", "discard-replaced": "<<",
}

// Mark returns the mark of an operation.
func Mark(op string) string {
	if mark, ok := marks[op]; ok {
		return mark
	}
	return "?"
}

// opClass returns the class of an operation's color.
func opClass(op string) string {
	switch op {
	case "create", "import":
		return "op-create"
	case "delete", "discard":
		return "op-delete"
	case "replace":
		return "op-replace"
	case "update":
		return "op-update"
	default:
		return "op-other"
	}
}

// totalOrder is the order of the operations in totals.
var totalOrder = []string{"create", "import", "update", "replace", "delete", "read", "refresh"}

// partOfReplacement are the steps of which the replacement of a resource consists.
var partOfReplacement = map[string]bool{
	"create-replacement": true, "delete-replaced": true, "read-replacement": true, "import-replacement": true, "discard-replaced": true,
}

// Total is a number of resources with the same operation.
type Total struct {
	Op    string
	Count int
}

// Totals returns the totals in the order of display: those of the engine's summary, if it is known.
func Totals(t changes.Tree) (list []Total, all int) {
	counts := t.Totals
	if t.Summarized && t.Changes != nil {
		counts = t.Changes
	}
	rest, parts := map[string]int{}, 0
	for op, n := range counts {
		if partOfReplacement[op] {
			parts = max(parts, n)
			continue
		}
		all += n
		rest[op] = n
	}
	if rest["replace"] == 0 && parts > 0 { // the step that marks a replacement is not always counted
		all += parts
		rest["replace"] = parts
	}
	for _, op := range totalOrder {
		if n := rest[op]; n > 0 {
			list = append(list, Total{op, n})
		}
		delete(rest, op)
	}
	delete(rest, "same")
	for _, op := range slices.Sorted(maps.Keys(rest)) {
		if rest[op] > 0 {
			list = append(list, Total{op, rest[op]})
		}
	}
	return list, all
}

// changed are the operations that change resources, in the CLI's order.
var changed = []struct{ op, word string }{
	{"create", "created"}, {"update", "updated"}, {"replace", "replaced"}, {"delete", "deleted"}, {"import", "imported"},
}

// nothing is the short form of no changes.
const nothing = "no changes"

// Brief returns an update's changes in short, such as "+2 ~1", and in words, from its counts by operation.
func Brief(counts map[string]int64) (short, long string) {
	var brief, said []string
	for _, c := range changed {
		if n := counts[c.op]; n > 0 {
			brief = append(brief, Mark(c.op)+strconv.FormatInt(n, 10))
			said = append(said, fmt.Sprintf("%d %s", n, c.word))
		}
	}
	if len(brief) == 0 {
		return nothing, "no resource changed"
	}
	return strings.Join(brief, " "), strings.Join(said, ", ")
}

// status returns the word for a row's state.
func (m Model) status(r changes.Row) string {
	switch r.State {
	case changes.Failed:
		return "failed"
	case changes.Running:
		if m.Over {
			return "interrupted"
		}
		return "running"
	case changes.Done:
		if r.Op == "same" {
			return "unchanged"
		}
		return "succeeded"
	default:
		if r.Errors > 0 {
			return "failed"
		}
		if m.Over && !m.Preview {
			return "not started"
		}
		return "planned"
	}
}

// nodes returns the rows of this page, and all rows.
func (m Model) nodes() (list, all []changes.Node) {
	all = m.Ordered(m.All)
	from := min(m.From, len(all))
	return all[from:min(len(all), from+PageSize)], all
}

// unchanged returns the number of resources that the tree leaves out.
func (m Model) unchanged() int {
	n := 0
	for _, r := range m.Rows {
		if !r.Changed() {
			n++
		}
	}
	return n
}

// with returns the URL of the page with other parameters; an empty value removes one.
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

func (m Model) here(from int) string {
	all, at := "", ""
	if m.All {
		all = "1"
	}
	if from > 0 {
		at = strconv.Itoa(from)
	}
	return with(m.Base, "all", all, "from", at)
}

func (m Model) diffOf(urn string) string { return with(m.Detail, "view", "diff", "urn", urn) }

// depth returns the class of a row's indentation.
func depth(n int) string { return "depth-" + strconv.Itoa(min(n, 12)) }

// short returns the last part of a type, such as Bucket of aws:s3/bucket:Bucket.
func short(kind string) string {
	if at := strings.LastIndexByte(kind, ':'); at >= 0 && at+1 < len(kind) {
		return kind[at+1:]
	}
	return kind
}

// properties returns the changed properties of a row as a text.
func properties(r changes.Row) string {
	if len(r.Diff) == 0 && len(r.ReplaceKeys) == 0 {
		return ""
	}
	const most = 4
	names := make([]string, 0, most)
	more := r.More
	if len(r.Diff) == 0 {
		for _, key := range r.ReplaceKeys {
			names = append(names, key+" (replaces)")
		}
		return strings.Join(names[:min(most, len(names))], ", ")
	}
	for i, p := range r.Diff {
		if i == most {
			more += len(r.Diff) - most
			break
		}
		text := p.Path
		if strings.HasSuffix(p.Kind, "-replace") || slices.Contains(r.ReplaceKeys, p.Path) {
			text += " (replaces)"
		}
		names = append(names, text)
	}
	out := strings.Join(names, ", ")
	if more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// bar is a resource in the timeline. From and Width are percentages of the update's time.
type bar struct {
	changes.Row
	From, Width float64
	Status      string
}

// slowest is the number of resources in the list of the slowest.
const slowest = 10

// bars returns the timeline of the resources that took time, in the order of their beginnings, and
// the slowest ones.
func (m Model) bars() (list, slow []bar, more int) {
	end := m.LastActivity
	if !m.Over && m.Now.After(end) {
		end = m.Now
	}
	total := end.Sub(m.Began).Seconds()
	if total <= 0 {
		return nil, nil, 0
	}
	for _, r := range m.Rows {
		if r.Began.IsZero() || !r.Changed() {
			continue
		}
		if r.State == changes.Running && !m.Over {
			r.Took = max(0, m.Now.Sub(r.Began))
		}
		from := min(100, max(0, r.Began.Sub(m.Began).Seconds()*100/total))
		list = append(list, bar{r, from, min(100-from, max(0.4, r.Took.Seconds()*100/total)), m.status(r)})
	}
	slices.SortStableFunc(list, func(a, b bar) int { return a.Began.Compare(b.Began) })
	slow = slices.Clone(list)
	slices.SortStableFunc(slow, func(a, b bar) int { return cmp.Compare(b.Took, a.Took) })
	slow = slow[:min(slowest, len(slow))]
	if len(list) > PageSize {
		list, more = list[:PageSize], len(list)-PageSize
	}
	return list, slow, more
}

func percent(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// severityClass is the color of a severity.
func severityClass(s string) string {
	switch s {
	case "error":
		return "bad"
	case "warning", "policy":
		return "warn"
	default:
		return "dim"
	}
}

// name returns the name of a message's resource.
func name(urn string) string {
	kind, text := changes.Parts(urn)
	if kind == "" {
		return text
	}
	return short(kind) + " " + text
}
