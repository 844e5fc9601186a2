// Package rights reads the tables of docs/permissions.md, for the tests that try each of their cells.
package rights

import (
	"os"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

// Table contains what callers get.
type Table struct {
	Columns []string
	Rows    map[string]map[string]string // "✓" or a status, by caller and column
}

// Tables reads the tables whose first column begins with a prefix. A row names callers, what is permitted,
// and the status of everything else, with exceptions as in "403, lease 401".
func Tables(t *testing.T, page, prefix string) []Table {
	t.Helper()
	text := must.Get(os.ReadFile(page))(t)
	var tables []Table
	var rows [][]string
	for line := range strings.Lines(string(text) + "\n") {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case strings.HasPrefix(cells[0], prefix):
			rows = [][]string{}
		case rows == nil || strings.HasPrefix(line, "|---"):
		case strings.HasPrefix(line, "|"):
			if len(cells) != 3 {
				t.Fatalf("the row of %s has %d cells, want 3", cells[0], len(cells))
			}
			rows = append(rows, cells)
		default:
			tables = append(tables, table(rows))
			rows = nil
		}
	}
	return tables
}

func table(rows [][]string) Table {
	m := Table{Rows: map[string]map[string]string{}}
	for _, cells := range rows {
		for _, column := range list(cells[1]) {
			if !slices.Contains(m.Columns, column) {
				m.Columns = append(m.Columns, column)
			}
		}
	}
	for _, cells := range rows {
		permitted, refused := list(cells[1]), list(cells[2])
		row := map[string]string{}
		for _, column := range m.Columns {
			for _, status := range refused {
				if only, code, ok := cutLast(status); !ok || only == column {
					row[column] = code
				}
			}
			if slices.Contains(permitted, column) {
				row[column] = "✓"
			}
		}
		for who := range strings.SplitSeq(cells[0], "<br>") {
			m.Rows[who] = row
		}
	}
	return m
}

// cutLast splits "lease 401" into its column and its status. ok is false without a column.
func cutLast(text string) (column, status string, ok bool) {
	if i := strings.LastIndexByte(text, ' '); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return "", text, false
}

func list(cell string) []string {
	if cell == "" {
		return nil
	}
	return strings.Split(cell, ", ")
}
