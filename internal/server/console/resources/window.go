package resources

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
)

const (
	// wholeList is the number of rows up to which a page contains all of them. Scripts show larger lists as virtual ones,
	// whose rows they read when they are needed.
	wholeList = 500
	// pageSize is the number of rows on one page of a larger list.
	pageSize = 200
	// maxWindow is the number of rows of a window, and maxFolded that of the rows that it can fold.
	maxWindow, maxFolded = 300, 500
)

// rows sends a part of a large list as HTML, without the rows below folded ones.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	from, err := strconv.Atoi(v.Query("row"))
	if err != nil || from < 0 {
		return fault.Invalid("row must be a number")
	}
	count, err := strconv.Atoi(v.Query("count"))
	if err != nil || count < 1 || count > maxWindow {
		return fault.Invalid("count must be between 1 and %d", maxWindow)
	}
	var folded []string
	if text := v.Query("fold"); text != "" {
		if folded = strings.Split(text, ","); len(folded) > maxFolded {
			return fault.Invalid("at most %d resources can be folded", maxFolded)
		}
	}
	m, err := p.load(v)
	if err != nil {
		return err
	}
	list, total := m.window(from, count, folded)
	var html bytes.Buffer
	if err := m.rowsOf(list).Render(v.Context(), &html); err != nil {
		return fmt.Errorf("rendering a part of a list: %w", err)
	}
	encoded, err := json.Marshal(map[string]any{"from": from, "total": total, "html": string(view.VisibleControls(html.Bytes()))})
	if err != nil {
		return fmt.Errorf("encoding a part of a list: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encoded) //nolint:errcheck // the browser might have disconnected
	return nil
}

// window returns a part of the rows that remain after folding, and the number of these rows.
func (m *model) window(from, count int, folded []string) (list []entry, total int) {
	hidden := -1 // rows below this depth are folded
	for _, e := range m.entries {
		if hidden >= 0 && e.Depth > hidden {
			continue
		}
		hidden = -1
		if e.Parent && len(folded) > 0 && slices.Contains(folded, m.key(e)) {
			e.Folded, hidden = true, e.Depth
		}
		if total >= from && total < from+count {
			list = append(list, e)
		}
		total++
	}
	return list, total
}

// rowsOf is listOf, of which the program needs one copy.
//
//go:noinline
func (m *model) rowsOf(list []entry) templ.Component { return m.listOf(list) }

// part returns the rows of the page.
func (m *model) part() []entry {
	if len(m.entries) <= wholeList {
		return m.entries
	}
	return m.entries[min(m.From, len(m.entries)):min(m.From+pageSize, len(m.entries))]
}

// rowsURL returns the URL of the rows of a large list, to which the script adds the range.
func (m *model) rowsURL() string {
	f := m.Filters
	f.Path += "/rows"
	return f.With()
}

// at returns the page that begins with a row.
func (m *model) at(from int) string { return m.With("row", strconv.Itoa(from)) }

var seed = maphash.MakeSeed()

// print returns a text that changes with each change of a row.
func (m *model) print() string {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, e := range m.entries {
		h.WriteString(e.URN + "\n" + e.Kind + "\n" + m.text(e) + "\n")
		maphash.WriteComparable(&h, [3]int{e.Depth, e.Count, e.Below})
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
