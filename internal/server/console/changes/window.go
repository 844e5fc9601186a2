package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks/changes"
)

const (
	// maxWindow is the number of rows of a window.
	maxWindow = 300
	// maxFolded is the number of rows that a window can fold.
	maxFolded = 500
)

// shownRow is a row of a window.
type shownRow struct {
	changes.Node
	// Key identifies the resource in the parameter "fold".
	Key string
	// Parent reports that rows below this one are shown, or folded.
	Parent, Folded bool
}

// rowKey returns a short name of a resource.
func rowKey(urn string) string {
	h := fnv.New64a()
	h.Write([]byte(urn))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Window sends a part of a large tree: rows as HTML, without those below folded ones.
func (m Model) Window(w http.ResponseWriter, v *page.Visit) error {
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
	list, total := m.window(from, count, folded)
	encoded, err := m.encode(v.Context(), from, list, total)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encoded) //nolint:errcheck // the browser might have disconnected
	return nil
}

func (m Model) encode(ctx context.Context, from int, list []shownRow, total int) ([]byte, error) {
	var html bytes.Buffer
	if err := rows(m, list).Render(ctx, &html); err != nil {
		return nil, fmt.Errorf("rendering a part of a tree: %w", err)
	}
	encoded, err := json.Marshal(map[string]any{"from": from, "total": total, "html": string(view.VisibleControls(html.Bytes()))})
	return encoded, fault.While(err, "encoding a part of a tree")
}

// window returns a part of the rows that remain after folding, and the number of these rows.
func (m Model) window(from, count int, folded []string) (list []shownRow, total int) {
	first, rest := m.lists()
	all := slices.Concat(first, rest)
	hidden := -1 // rows below this depth are folded
	for i, n := range all {
		if hidden >= 0 && n.Depth > hidden {
			continue
		}
		hidden = -1
		row := shown(all, i)
		wanted := total >= from && total < from+count
		if wanted || row.Parent && len(folded) > 0 {
			row.Key = rowKey(n.URN)
		}
		if row.Parent && slices.Contains(folded, row.Key) {
			row.Folded, hidden = true, n.Depth
		}
		if wanted {
			list = append(list, row)
		}
		total++
	}
	return list, total
}

func shown(list []changes.Node, i int) shownRow {
	return shownRow{Node: list[i], Parent: i+1 < len(list) && list[i+1].Depth > list[i].Depth}
}

// shownRows returns rows with their keys.
func shownRows(list []changes.Node) []shownRow {
	out := make([]shownRow, len(list))
	for i, n := range list {
		out[i] = shown(list, i)
		out[i].Key = rowKey(n.URN)
	}
	return out
}

// part returns the rows of both lists that are on a page.
func part(first, rest []changes.Node, from int) (a, b []changes.Node) {
	end := from + PageSize
	a = first[min(from, len(first)):min(end, len(first))]
	b = rest[min(max(0, from-len(first)), len(rest)):min(max(0, end-len(first)), len(rest))]
	return a, b
}

// depth returns the class of a row's indentation. Deeper rows have a rule for their attribute.
func depth(n int) string { return "d" + strconv.Itoa(min(max(n, 0), 2)) }

var seed = maphash.MakeSeed()

// state returns a text that changes with each change of a row.
func state(lists ...[]changes.Node) string {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, r := range slices.Concat(lists...) {
		for _, text := range []string{r.URN, r.Op, string(r.State)} {
			h.WriteString(text)
			h.WriteByte(0)
		}
		maphash.WriteComparable(&h, [5]int{r.Depth, r.Errors, int(r.Took), r.Same, r.Below})
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
