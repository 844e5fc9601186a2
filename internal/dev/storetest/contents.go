package storetest

import (
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// Contents returns the rows of all tables of an SQLite database as text, by table. Names of tables
// and columns (as table.column) in except are omitted.
func Contents(t testing.TB, db *store.DB, except ...string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := db.Read(t.Context(), func(tx *store.Tx) error {
		tables, err := database.Scalars[string](tx.Tx, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
		if err != nil {
			return err
		}
		for _, table := range tables {
			if slices.Contains(except, table) {
				continue
			}
			columns, err := database.Scalars[string](tx.Tx, "SELECT name FROM pragma_table_info($1)", table)
			if err != nil {
				return err
			}
			columns = slices.DeleteFunc(columns, func(c string) bool { return slices.Contains(except, table+"."+c) })
			for i, c := range columns {
				columns[i] = "'" + c + "=' || quote(\"" + c + "\")"
			}
			rows, err := database.Scalars[string](tx.Tx, "SELECT "+strings.Join(columns, " || ' ' || ")+" FROM \""+table+"\"")
			if err != nil {
				return err
			}
			slices.Sort(rows)
			out[table] = rows
		}
		return nil
	})
	if err != nil {
		t.Fatalf("reading the whole database: %v", err)
	}
	return out
}

// RefuseInserts makes every insert into a table of an SQLite database fail until allow is called.
func RefuseInserts(t testing.TB, db *store.DB, table string) (allow func()) {
	t.Helper()
	exec := func(statement string) {
		t.Helper()
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Exec(statement)
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE TRIGGER refuse_inserts BEFORE INSERT ON " + table + " BEGIN SELECT RAISE(ABORT, 'a test refuses this insert'); END")
	return func() { t.Helper(); exec("DROP TRIGGER refuse_inserts") }
}
