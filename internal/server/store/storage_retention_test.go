package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestFreePages checks that a database returns most, but not all, of the space of removed rows to
// the file system, and as much with each limit.
func TestFreePages(t *testing.T) {
	sizes := map[int]int64{}
	for _, limit := range []int{100, 10_000} {
		sizes[limit] = freeInSlices(t, limit)
	}
	// SQLite also frees some pages for which it is not asked.
	if off := sizes[100] - sizes[10_000]; max(off, -off) > 16*4096 {
		t.Errorf("the sizes of the file differ by limit: %v", sizes)
	}
}

// freeInSlices fills and empties a database, frees its pages as a sweep does, and returns the size of its file.
func freeInSlices(t *testing.T, limit int) int64 {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "server.db")
	db, err := store.Open(t.Context(), "sqlite:"+path, store.Options{Log: storetest.Log(), BlobDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	for _, value := range []string{strings.Repeat("x", size), ""} {
		write(t, db, func(tx *store.Tx) error { return tx.SetInstallation("test", []byte(value)) })
	}
	freed := int64(0)
	for n := int64(limit); n == int64(limit); freed += n {
		write(t, db, func(tx *store.Tx) error {
			n, err = tx.FreePages(limit)
			return err
		})
		if n > int64(limit) {
			t.Fatalf("%d pages were freed at once", n)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > size/4 || freed*4096 < size/2 {
		t.Errorf("freed %d pages; the file has %d bytes", freed, info.Size())
	}
	return info.Size()
}

// TestExpireEvents checks that an update's events are recorded as removed only after all of them
// have been removed, so that an interrupted sweep is resumed.
func TestExpireEvents(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		stackFixture(t, db, "a")
		write(t, db, func(tx *store.Tx) error {
			if err := tx.InsertUpdate(store.Update{ID: "u", StackID: "id-a"}); err != nil {
				return err
			}
			run := store.PolicyRun{UpdateID: "u", Pack: "aws", Mandatory: 3, Levels: []store.PolicyLevel{{Name: "tags"}}, Counts: []store.PolicyCount{{Policy: "tags", Failed: 3}}}
			if err := tx.SavePolicyRun(run); err != nil {
				return err
			}
			if err := tx.SavePolicyRun(store.PolicyRun{UpdateID: "u", Pack: "gcp", Levels: run.Levels}); err != nil {
				return err
			}
			_, _, err := tx.InsertEvents("u", []store.EventBatch{{Last: 49, Events: 50}, {Last: 50, Events: 1}, {Last: 57, Events: 2}})
			return err
		})
		for _, want := range []struct {
			removed int64
			expired bool
		}{{2, false}, {1, true}, {0, true}} {
			write(t, db, func(tx *store.Tx) error {
				n, err := tx.ExpireEvents("u", 2)
				if err != nil {
					return err
				}
				u, err := tx.Update("u")
				if n != want.removed || u.EventsExpired != want.expired {
					t.Errorf("removed %d, expired %v, want %+v", n, u.EventsExpired, want)
				}
				return err
			})
		}
		runs, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.PolicyRun, error) { return tx.PolicyRuns("u") })
		want := []store.PolicyRun{{UpdateID: "u", Pack: "aws", Ran: true, Mandatory: 3}, {UpdateID: "u", Pack: "gcp"}}
		if diff := cmp.Diff(want, runs); diff != "" || err != nil {
			t.Errorf("the packs of the update, %v (-want +got):\n%s", err, diff)
		}
	})
}
