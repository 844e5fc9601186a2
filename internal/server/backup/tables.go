package backup

import (
	"bufio"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"workflowagent/internal/server/store"
)

// eachTable calls do with the tables of the backup, which must be those of a schema, in the order of the schema.
func (b *stored) eachTable(schema []store.Relation, do func(Table, store.Relation) error) error {
	if len(b.manifest.Tables) != len(schema) {
		return fmt.Errorf("the backup has %d tables, but its schema %d", len(b.manifest.Tables), len(schema))
	}
	for _, rel := range schema {
		i := slices.IndexFunc(b.manifest.Tables, func(t Table) bool { return t.Name == rel.Name })
		if i < 0 {
			return fmt.Errorf("the backup lacks the table %s of its schema", rel.Name)
		}
		if err := do(b.manifest.Tables[i], rel); err != nil {
			return err
		}
	}
	return nil
}

// readTable calls read with the columns of a table, which must be those of its schema, and with its rows, and checks its
// file.
func (b *stored) readTable(t Table, rel store.Relation, read func(columns []store.Column, rows iter.Seq2[[]any, error]) error) error {
	return b.lines(filepath.Join(tablesDir, t.Name+tableSuffix), t.Part, func(lines *bufio.Reader) error {
		columns, err := readColumns(lines)
		if err != nil {
			return err
		}
		if err := sameColumns(columns, rel.Columns); err != nil {
			return err
		}
		return read(columns, counted(readRows(lines, columns), t.Rows))
	})
}

// counted ends with an error if rows are missing, or if there are too many.
func counted(rows iter.Seq2[[]any, error], want int64) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		var n int64
		for values, err := range rows {
			if n++; err == nil && n > want {
				err = fmt.Errorf("it has more than %d rows", want)
			}
			if !yield(values, err) || err != nil {
				return
			}
		}
		if n < want {
			yield(nil, fmt.Errorf("it has %d rows instead of %d", n, want))
		}
	}
}

func sameColumns(got, want []store.Column) error {
	byName := func(a, b store.Column) int { return strings.Compare(a.Name, b.Name) }
	got, want = slices.SortedFunc(slices.Values(got), byName), slices.SortedFunc(slices.Values(want), byName)
	if !slices.Equal(got, want) {
		return fmt.Errorf("its %d columns are not those of the schema, %v", len(got), want) // the others can be huge
	}
	return nil
}
