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
				errs[i] = db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
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
			if err := db.Write(t.Context(), scope.Todo, func(*store.Tx) error { close(started); <-release; return nil }); err != nil {
				t.Errorf("the first write: %v", err)
			}
		})
		<-started
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				errs[i] = db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
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

// TestWritesShareTransactions checks that concurrent writes need fewer transactions than writes.
func TestWritesShareTransactions(t *testing.T) {
	db := storetest.Postgres(t)
	const n = 64
	var wg sync.WaitGroup
	ids := make([]int64, n)
	for i := range n {
		wg.Go(func() {
			err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) (err error) {
				if err = tx.InsertOrganization(org(strconv.Itoa(i))); err == nil {
					ids[i], err = database.Scalar[int64](tx.Tx, "SELECT txid_current()")
				}
				return err
			})
			if err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	transactions := map[int64]bool{}
	for _, id := range ids {
		transactions[id] = true
	}
	if len(transactions) > n/2 {
		t.Errorf("%d writes ran in %d transactions, want at most %d", n, len(transactions), n/2)
	}
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
				err := second.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
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
		err := second.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
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

// TestLaterStatementFails checks that the error of a queued statement makes the write fail.
func TestLaterStatementFails(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		token := store.Token{ID: "a", Hash: []byte("hash"), Kind: store.PoolToken}
		write(t, db, func(tx *store.Tx) error { return tx.InsertToken(token) })
		token.ID = "b"
		err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
			if err := tx.InsertOrganization(org("a")); err != nil {
				return err
			}
			return tx.InsertToken(token)
		})
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("a second token with the same hash: %v, want ErrConflict", err)
		}
		err = db.Read(t.Context(), func(tx *store.Tx) error {
			_, err := tx.OrganizationByName("a")
			return err
		})
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the failed write left its row: %v", err)
		}
	})
}

// TestLaterStatementsAreSeen checks that a query sees the changes of the statements queued before it.
func TestLaterStatementsAreSeen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		write(t, db, func(tx *store.Tx) error {
			if err := tx.InsertToken(store.Token{ID: "a", Hash: []byte("hash"), Kind: store.PoolToken}); err != nil {
				return err
			}
			_, err := tx.TokenByID("a")
			return err
		})
	})
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
