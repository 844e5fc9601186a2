package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestFailedWritesAmongOthers checks that concurrent writes, which share transactions, succeed and
// fail independently, whether they fail before or after they have changed something.
func TestFailedWritesAmongOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const n = 96
		boom := errors.New("boom")
		write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("taken")) })
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				errs[i] = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					if i%8 == 1 {
						return boom
					}
					if err := tx.InsertOrganization(org(strconv.Itoa(i))); err != nil {
						return err
					}
					switch i % 8 {
					case 2:
						return boom
					case 3:
						panic("boom")
					case 4:
						return tx.InsertOrganization(org("taken"))
					}
					return nil
				})
			})
		}
		wg.Wait()
		stored := map[string]bool{}
		list, err := store.Read(t.Context(), db, func(tx *store.Tx) ([]store.Organization, error) { return tx.Organizations() })
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			stored[o.Name] = true
		}
		for i, err := range errs {
			var ok bool
			switch i % 8 {
			case 1, 2:
				ok = errors.Is(err, boom)
			case 3:
				ok = err != nil
			case 4:
				ok = errors.Is(err, store.ErrConflict)
			default:
				ok = err == nil
			}
			if !ok {
				t.Errorf("write %d of kind %d: %v", i, i%8, err)
			}
			if got, want := stored[strconv.Itoa(i)], err == nil; got != want {
				t.Errorf("write %d: stored %t, want %t (%v)", i, got, want, err)
			}
		}
	})
}

// TestFailedCommit checks that a write whose error follows from the changes of another write does not
// report that error if the changes were not committed.
func TestFailedCommit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write(t, db, func(tx *store.Tx) error {
			if _, err := tx.Exec("CREATE TABLE parents (id TEXT PRIMARY KEY)"); err != nil {
				return err
			}
			_, err := tx.Exec("CREATE TABLE children (id TEXT PRIMARY KEY, parent TEXT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
			return err
		})
		exists := errors.New("the child exists")
		started, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { // the writes below wait for this one, and share a transaction
			if err := db.Write(t.Context(), scope.Server(), func(*store.Tx) error { close(started); <-release; return nil }); err != nil {
				t.Errorf("the first write: %v", err)
			}
		})
		<-started
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				errs[i] = db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					if n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM children"); err != nil || n > 0 {
						return cmp.Or(err, exists)
					}
					_, err := tx.Exec("INSERT INTO children (id, parent) VALUES ('a', 'missing')") // fails at the commit
					return err
				})
			})
		}
		close(release)
		wg.Wait()
		for i, err := range errs {
			if err == nil || errors.Is(err, exists) {
				t.Errorf("write %d: %v, want the error of the commit", i, err)
			}
		}
	})
}

// TestWritesSeeEarlierCommits checks that a write sees what another server has committed before the
// write was requested, although other writes are in progress.
func TestWritesSeeEarlierCommits(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				err := second.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
					return tx.SetInstallation(fmt.Sprintf("noise-%d", w), []byte{byte(i)})
				})
				if err != nil {
					t.Errorf("another write: %v", err)
					return
				}
			}
		})
	}
	for i := range 50 {
		name := fmt.Sprintf("value-%d", i)
		write(t, first, func(tx *store.Tx) error { return tx.SetInstallation(name, []byte("x")) })
		err := second.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			_, err := tx.Installation(name)
			return err
		})
		if err != nil {
			t.Errorf("value %d: %v", i, err)
		}
	}
	close(stop)
	wg.Wait()
}

// TestReadOneRunsOneStatement checks that a read without a transaction cannot run two statements,
// which could see different states.
func TestReadOneRunsOneStatement(t *testing.T) {
	db := storetest.Postgres(t)
	err := db.ReadOne(t.Context(), func(tx *store.Tx) error {
		if _, err := tx.Organizations(); err != nil {
			t.Errorf("the first statement: %v", err)
		}
		_, err := tx.Organizations()
		return err
	})
	if err == nil {
		t.Error("the second statement succeeded")
	}
}

// TestIgnoredErrorsFailWrites checks that a write fails if it goes on after a failed statement, on both
// databases.
func TestIgnoredErrorsFailWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("taken")) })
		err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			first := tx.InsertOrganization(org("new"))
			_ = tx.InsertOrganization(org("taken"))
			return first
		})
		if err == nil {
			t.Error("a write with a failed statement succeeded")
		}
		_, err = store.Read(t.Context(), db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName("new") })
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the failed write was stored: %v", err)
		}
	})
}

// TestNameOfConnections checks what an operator of PostgreSQL sees of the server's connections.
func TestNameOfConnections(t *testing.T) {
	db := storetest.PostgresAlone(t, storetest.PostgresDSN(t), store.Timeouts{})
	name, err := store.Read(t.Context(), db, func(tx *store.Tx) (string, error) {
		return database.Scalar[string](tx.Tx, "SELECT current_setting('application_name')")
	})
	if err != nil || name != "workflow-server" {
		t.Errorf("the program has the name %q (%v)", name, err)
	}
}
