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
	// Index is the position of the row in the list, which starts at 0.
	Index int
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
	from, err := strconv.Atoi(v.Query("from"))
	if err != nil || from < 0 {
		return fault.Invalid("from must be a number")
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
	rows, total := m.window(from, count, folded)
	encoded, err := m.encode(v.Context(), from, rows, total)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(encoded) //nolint:errcheck // the browser might have disconnected
	return nil
}

func (m Model) encode(ctx context.Context, from int, rows []shownRow, total int) ([]byte, error) {
	var html bytes.Buffer
	if err := windowRows(m, rows).Render(ctx, &html); err != nil {
		return nil, fmt.Errorf("rendering a part of a tree: %w", err)
	}
	encoded, err := json.Marshal(map[string]any{"from": from, "total": total, "html": string(view.VisibleControls(html.Bytes()))})
	return encoded, fault.While(err, "encoding a part of a tree")
}

// window returns a part of the rows that remain after folding, and the number of these rows.
func (m Model) window(from, count int, folded []string) (rows []shownRow, total int) {
	all := m.Ordered(m.All)
	hidden := -1 // rows below this depth are folded
	for i, n := range all {
		if hidden >= 0 && n.Depth > hidden {
			continue
		}
		hidden = -1
		row := shownRow{Node: n, Index: total, Parent: i+1 < len(all) && all[i+1].Depth > n.Depth}
		if row.Parent && len(folded) > 0 || total >= from && total < from+count {
			row.Key = rowKey(n.URN)
		}
		if row.Parent && slices.Contains(folded, row.Key) {
			row.Folded, hidden = true, n.Depth
		}
		if total >= from && total < from+count {
			rows = append(rows, row)
		}
		total++
	}
	return rows, total
}

var seed = maphash.MakeSeed()

// state returns a text that changes with each change of a row.
func state(rows []changes.Node) string {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, r := range rows {
		for _, text := range []string{r.URN, r.Op, string(r.State), r.Message} {
			h.WriteString(text)
			h.WriteByte(0)
		}
		maphash.WriteComparable(&h, [7]int64{int64(r.Depth), int64(r.Errors), int64(r.Warnings), int64(r.Policies), int64(r.Took), int64(r.Same), int64(len(r.Diff))})
	}
	return strconv.FormatUint(h.Sum64(), 36)
}
