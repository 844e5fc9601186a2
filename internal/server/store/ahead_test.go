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
	"workflowagent/internal/workflow"
)

// shared runs writes in one transaction, in order, by letting them wait for another write.
func shared(t *testing.T, db *store.DB, writes ...func() error) {
	t.Helper()
	started, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := db.Write(t.Context(), scope.Todo, func(*store.Tx) error { close(started); <-release; return nil }); err != nil {
			t.Errorf("the first write: %v", err)
		}
	})
	<-started
	for i, write := range writes {
		wg.Go(func() {
			if err := write(); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	close(release)
	wg.Wait()
}

// insertStacks adds n stacks with the ids "0", "1", ….
func insertStacks(t *testing.T, db *store.DB, n int) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		err := tx.InsertOrganization(org("acme"))
		for i := range n {
			id := strconv.Itoa(i)
			err = errors.Join(err, tx.InsertStack(store.Stack{ID: id, OrgID: "id-acme", Project: "web", Name: id}))
		}
		return err
	})
}

// TestReadsAheadSeeEarlierWrites checks that writes that share a transaction, and have read the same
// rows ahead, see each other's changes: each increments counters.
func TestReadsAheadSeeEarlierWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		const n, stacks = 40, 4
		insertStacks(t, db, stacks)
		var writes []func() error
		for i := range n {
			id := strconv.Itoa(i % stacks)
			writes = append(writes, func() error {
				return db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
					queue, err := tx.StackQueue(id)
					if err != nil {
						return err
					}
					queue.LastVersion++
					return tx.SaveStackQueue(queue)
				}, func(tx *store.Tx) { _, _ = tx.StackQueue(id) })
			})
		}
		shared(t, db, writes...)
		for i := range stacks {
			queue, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.StackQueue, error) { return tx.StackQueue(strconv.Itoa(i)) })
			if err != nil || queue.LastVersion != n/stacks {
				t.Errorf("stack %d has version %d, %v, want %d", i, queue.LastVersion, err, n/stacks)
			}
		}
	})
}

// TestReadsAheadAreForgotten checks, for each way to change rows, that the same read ahead is repeated
// after the change, in the same write.
func TestReadsAheadAreForgotten(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		job := store.Job{ID: "j1", DeploymentID: "d1", OrgID: "id-o", StackID: "s1", Status: workflow.StatusNotStarted, Epoch: 1}
		other := store.Job{ID: "j2", DeploymentID: "d2", OrgID: "id-o", StackID: "s1", Status: workflow.StatusNotStarted, Epoch: 1}
		write(t, db, func(tx *store.Tx) error {
			return errors.Join(tx.InsertOrganization(org("o")),
				tx.InsertDeployment(store.Deployment{ID: "d1", OrgID: "id-o", StackID: "s1", Version: 1}),
				tx.InsertDeployment(store.Deployment{ID: "d2", OrgID: "id-o", StackID: "s1", Version: 2}), tx.InsertJob(job))
		})
		read := func(tx *store.Tx) (string, error) {
			j, err := tx.Job("j1")
			if err != nil {
				return "", err
			}
			queued, err := tx.QueuedJobsOfStack("s1")
			if err != nil {
				return "", err
			}
			o, err := tx.Organization("id-o")
			return fmt.Sprintf("%s %d %d", j.PoolID, len(queued), o.StackPermission), err
		}
		for i, step := range []struct {
			change func(tx *store.Tx) error
			want   string
		}{
			{func(*store.Tx) error { return nil }, " 1 0"},
			{func(tx *store.Tx) error { job.PoolID = "p1"; return tx.SaveJob(job) }, "p1 1 0"},
			{func(tx *store.Tx) error { return tx.InsertJob(other) }, "p1 2 0"},
			{func(tx *store.Tx) error { _, err := tx.AdoptQueuedJobs("s1", "p2"); return err }, "p1 2 0"}, // j1 has a pool
			{func(tx *store.Tx) error { _, err := tx.MoveQueuedJobs("id-o", "p3", 10); return err }, "p3 2 0"},
			{func(tx *store.Tx) error { other.Status = workflow.StatusSkipped; return tx.SaveJob(other) }, "p3 1 0"},
			{func(tx *store.Tx) error { return tx.SetStackPermission("id-o", store.ReadPermission) }, "p3 1 101"},
			{func(tx *store.Tx) error { return tx.Later("DELETE FROM jobs WHERE id = $1", "j2") }, "p3 1 101"},
		} {
			var before, after string
			run := func() error {
				return db.Write(t.Context(), scope.Todo, func(tx *store.Tx) (err error) {
					if before, err = read(tx); err != nil {
						return err
					}
					if err := step.change(tx); err != nil {
						return err
					}
					after, err = read(tx)
					return err
				}, func(tx *store.Tx) {
					_, _ = tx.Job("j1")
					_, _ = tx.QueuedJobsOfStack("s1")
					_, _ = tx.Organization("id-o")
				})
			}
			shared(t, db, run)
			if after != step.want {
				t.Errorf("after change %d: %q, want %q (before: %q)", i, after, step.want, before)
			}
			job.PoolID = "p3" // the last SaveJob wrote all columns
		}
	})
}

// TestReadsAheadOfFailedWrites checks that a write that fails after it has queued statements leaves
// nothing, while the writes with which it shares a transaction are stored.
func TestReadsAheadOfFailedWrites(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		boom := errors.New("boom")
		var writes []func() error
		const n = 30
		insertStacks(t, db, n)
		for i := range n {
			id := strconv.Itoa(i)
			writes = append(writes, func() error {
				err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
					if err := tx.SaveStackQueue(store.StackQueue{StackID: id, LastVersion: 7}); err != nil {
						return err
					}
					if i%5 == 1 { // sends the queued statements of all writes so far
						if _, err := tx.StackQueue("other"); err != nil {
							return err
						}
					}
					if i%3 == 0 {
						return boom
					}
					return nil
				}, func(tx *store.Tx) { _, _ = tx.StackQueue(id) })
				if want := i%3 == 0; errors.Is(err, boom) != want {
					return fmt.Errorf("the error is %w", err)
				}
				return nil
			})
		}
		shared(t, db, writes...)
		for i := range n {
			queue, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.StackQueue, error) { return tx.StackQueue(strconv.Itoa(i)) })
			if want := i%3 != 0; err != nil || (queue.LastVersion == 7) != want {
				t.Errorf("write %d: version %d, %v; stored should be %t", i, queue.LastVersion, err, want)
			}
		}
	})
}

// TestReadsAheadNeedNoQuery checks that a write does not repeat a read that was made ahead. A
// statement fails in a transaction that PostgreSQL has aborted, so a repeated read would fail.
func TestReadsAheadNeedNoQuery(t *testing.T) {
	db := storetest.Postgres(t)
	write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("acme")) })
	var got, other store.Organization
	var gotErr, otherErr error
	err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
		if _, err := database.Scalar[int64](tx.Tx, "SELECT 1 / 0"); err == nil {
			t.Error("the division succeeded")
		}
		got, gotErr = tx.Organization("id-acme")
		other, otherErr = tx.OrganizationByName("acme")
		return nil
	}, func(tx *store.Tx) { _, _ = tx.Organization("id-acme") })
	if err == nil {
		t.Error("the write of an aborted transaction succeeded")
	}
	if gotErr != nil || got.Name != "acme" {
		t.Errorf("the read ahead: %+v, %v", got, gotErr)
	}
	if otherErr == nil {
		t.Errorf("another read: %+v", other)
	}
}

// TestTogether checks that reads in one round trip see the statements queued before them, but not the
// changes of a write that was rolled back alone.
func TestTogether(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		boom := errors.New("boom")
		insertStacks(t, db, 1)
		increment := func(err error) func() error {
			return func() error {
				got := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
					read := func(tx *store.Tx) { _, _ = tx.StackQueue("0") }
					for range 2 {
						if err := tx.Together(read); err != nil {
							return err
						}
						queue, err := tx.StackQueue("0")
						if err != nil {
							return err
						}
						queue.LastVersion++
						if err := tx.SaveStackQueue(queue); err != nil {
							return err
						}
					}
					return cmp.Or(tx.Together(read), err)
				})
				if !errors.Is(got, err) {
					return fmt.Errorf("the error is %w, want %w", got, err)
				}
				return nil
			}
		}
		shared(t, db, increment(boom), increment(nil), increment(boom), increment(nil))
		queue, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.StackQueue, error) { return tx.StackQueue("0") })
		if err != nil || queue.LastVersion != 4 {
			t.Errorf("the version is %d, %v, want 4", queue.LastVersion, err)
		}
	})
}

// TestTogetherNeedsNoQuery checks that a write does not repeat a read that it made with others; see
// [TestReadsAheadNeedNoQuery].
func TestTogetherNeedsNoQuery(t *testing.T) {
	db := storetest.Postgres(t)
	write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("acme")) })
	var got store.Organization
	var together, again error
	err := db.Write(t.Context(), scope.Todo, func(tx *store.Tx) error {
		together = tx.Together(func(tx *store.Tx) { _, _ = tx.Organization("id-acme") })
		if _, err := database.Scalar[int64](tx.Tx, "SELECT 1 / 0"); err == nil {
			t.Error("the division succeeded")
		}
		got, again = tx.Organization("id-acme")
		return nil
	})
	if err == nil {
		t.Error("the write of an aborted transaction succeeded")
	}
	if together != nil || again != nil || got.Name != "acme" {
		t.Errorf("the read: %+v, %v, %v", got, together, again)
	}
}
