package store_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// readsStacks finds queries of the table of all stacks. Those of the existing ones read live_stacks.
var readsStacks = regexp.MustCompile(`(?:FROM|JOIN)\s+stacks\b|NewTable\[\w+\]\(["` + "`" + `]stacks\b`)

// keepsDeleted is the number of such queries in each file: those of what keeps, measures or removes stored data.
var keepsDeleted = map[string]int{
	"backup.go":                2,
	"environments_managed.go":  1, // removes what purged stacks leave
	"estate.go":                2, // follows the names of deleted stacks
	"estate_fill.go":           3, // so do these
	"find.go":                  1, // only writes
	"organizations_deleted.go": 1, // removes
	"policy_evaluations.go":    1, // ends those of stacks that were purged or moved
	"policy_results.go":        2, // compares organizations, and ends what no longer applies
	"stacks.go":                1, // only writes
	"stacks_deleted.go":        3,
	"stacks_states.go":         1,
	"storage.go":               1,
	"storage_retention.go":     2,
	"webhooks.go":              1,
}

// TestQueriesDoNotSeeDeletedStacks reads the source of all queries.
func TestQueriesDoNotSeeDeletedStacks(t *testing.T) {
	found := map[string]int{}
	for _, path := range must.Get(filepath.Glob("*.go"))(t) {
		if n := len(readsStacks.FindAll(must.Get(os.ReadFile(path))(t), -1)); n > 0 && !regexp.MustCompile(`_test\.go$`).MatchString(path) {
			found[path] = n
		}
	}
	if !maps.Equal(found, keepsDeleted) {
		t.Errorf("the table stacks, which contains deleted stacks, is read in %v, want %v: read the view live_stacks, "+
			"or add queries of what is stored", found, keepsDeleted)
	}
}

// TestViewOfStacks checks that the view has all columns of the table: PostgreSQL does not add later ones.
func TestViewOfStacks(t *testing.T) {
	db := storetest.Postgres(t)
	columns := func(name string) []string {
		t.Helper()
		list := must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]string, error) {
			return database.Scalars[string](tx.Tx, "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1", name)
		}))(t)
		slices.Sort(list)
		return list
	}
	if table, view := columns("stacks"), columns("live_stacks"); len(table) == 0 || !slices.Equal(table, view) {
		t.Errorf("the table stacks has the columns %v, and the view live_stacks has %v", table, view)
	}
}

// TestStorageOfDeletedStacks measures what an organization stores before and after a stack is deleted, and after it is
// purged.
func TestStorageOfDeletedStacks(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(
				tx.InsertState(store.State{Key: "k", StackID: "id-a", Form: store.Full, Blob: "k", Size: 1000}),
				tx.SetStackConfig("id-a", strings.Repeat("x", 5000)),
			)
		})
		measure := func() string {
			t.Helper()
			return fmt.Sprint(must.Get(store.Read(t.Context(), db, (*store.Tx).MeasureStorage))(t))
		}
		before := measure()
		write(t, db, func(tx *store.Tx) error { return tx.DeleteStack("id-a", "ada") })
		if got, want := measure(), fmt.Sprint([]store.Storage{{OrgID: "id-acme", Measured: 6000}}); got != want || before != want {
			t.Errorf("stored: %s before and %s after the deletion, want %s", before, got, want)
		}
		write(t, db, func(tx *store.Tx) error { return tx.PurgeStack("id-a") })
		if got, want := measure(), fmt.Sprint([]store.Storage{{OrgID: "id-acme"}}); got != want {
			t.Errorf("stored after the purge: %s, want %s", got, want)
		}
	})
}
