package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// TestActivityPages reads the activity of a stack in parts of every size, with entries of the same
// time among them.
func TestActivityPages(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			if err := tx.InsertOrganization(store.Organization{ID: "o", Name: "o"}); err != nil {
				return err
			}
			for _, stack := range []string{"a", "b"} {
				if err := tx.InsertStack(store.Stack{ID: stack, OrgID: "o", Project: "p", Name: stack}); err != nil {
					return err
				}
			}
			for i := range 12 {
				for _, stack := range []string{"a", "b"} {
					at := base.Add(time.Duration(i/5) * time.Second)
					id := fmt.Sprintf("%s%02d", stack, i*7%12)
					if err := tx.InsertDeployment(store.Deployment{ID: "d" + id, OrgID: "o", StackID: stack, Version: int64(i), CreatedAt: at}); err != nil {
						return err
					}
					for _, u := range []store.Update{
						{ID: "u" + id, StartedAt: at},
						{ID: "v" + id, StartedAt: at, DeploymentID: "d" + id},
						{ID: "w" + id}, // not started
					} {
						u.StackID, u.CreatedAt = stack, at
						if err := tx.InsertUpdate(u); err != nil {
							return err
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		read := func(f store.ActivityFilter) []store.Activity {
			t.Helper()
			list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Activity, error) { return tx.Activity(f) })
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		newest := store.Activity{CreatedAt: base.Add(2 * time.Second)}
		all := read(store.ActivityFilter{StackID: "a", After: newest, Limit: 100})
		sorted := slices.IsSortedFunc(all, func(x, y store.Activity) int {
			if c := y.CreatedAt.Compare(x.CreatedAt); c != 0 {
				return c
			}
			return slices.Compare([]string{x.DeploymentID, x.UpdateID}, []string{y.DeploymentID, y.UpdateID})
		})
		if len(all) != 24 || !sorted {
			t.Errorf("the activity has %d entries, sorted: %t; want 24, sorted", len(all), sorted)
		}
		for limit := 1; limit < 10; limit++ {
			var parts, pages []store.Activity
			for after := newest; ; {
				part := read(store.ActivityFilter{StackID: "a", After: after, Limit: limit})
				if len(part) == 0 {
					break
				}
				pages = append(pages, read(store.ActivityFilter{StackID: "a", After: newest, Offset: len(parts), Limit: limit})...)
				parts = append(parts, part...)
				after = part[len(part)-1]
			}
			if !slices.Equal(parts, all) || !slices.Equal(pages, all) {
				t.Errorf("with limit %d, the parts are %v and the pages %v, want %v", limit, parts, pages, all)
			}
		}
		older := read(store.ActivityFilter{StackID: "a", After: store.Activity{CreatedAt: base.Add(time.Second)}, Limit: 100})
		if !slices.Equal(older, all[4:]) {
			t.Errorf("the activity up to a time is %v, want %v", older, all[4:])
		}
		for limit, want := range map[int]int64{100: 24, 24: 24, 5: 5} {
			if n, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) { return tx.CountActivity("a", limit) }); err != nil || n != want {
				t.Errorf("up to %d entries are counted as %d, %v; want %d", limit, n, err, want)
			}
		}
		n, at, err := count(t, db)
		if err != nil || n != 24 || !at.Equal(newest.CreatedAt) {
			t.Errorf("NewestActivity = %d, %v, %v; want 24, %v", n, at, err, newest.CreatedAt)
		}
	})
}

func count(t *testing.T, db *store.DB) (n int64, at time.Time, err error) {
	t.Helper()
	err = db.Read(t.Context(), func(tx *store.Tx) (err error) {
		n, at, err = tx.NewestActivity("a")
		return err
	})
	return n, at, err
}
