package outbox_test

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/workflow"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// TestChangesOfOnePullRequest stops a write that records reports about a pull request after each of its
// statements, and runs the write of another stack's deployment of the same commit on a second server until
// it ends or waits. The two share the report on the whole commit and the comment, and must not lock them in
// different orders: the database of a test tolerates no deadlocks.
func TestChangesOfOnePullRequest(t *testing.T) {
	subject := outbox.Subject{IntegrationID: "int", RepoID: "repo", Pull: 7, Commit: "c"}
	created := func(name string) store.Deployment {
		return store.Deployment{StackID: "id-" + name, Project: "web", Stack: name, Operation: workflow.OperationUpdate}
	}
	for name, act := range map[string]func(tx *store.Tx) error{
		"track":  func(tx *store.Tx) error { return outbox.Track(tx, subject, created("a")) },
		"decide": func(tx *store.Tx) error { return outbox.Decide(tx, outbox.Decision{Subject: subject}) },
		"again":  func(tx *store.Tx) error { return outbox.Again(tx, subject) },
		"fail": func(tx *store.Tx) error {
			r, err := tx.VCSReportOf(store.VCSReport{RepoID: "repo", Pull: 7, CommitID: "c", Context: outbox.Aggregate})
			return errors.Join(err, tx.SaveVCSReport(r), tx.PostponeVCSReports("int", tx.Now().Add(time.Hour)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			stop := make(chan string)
			dsn := storetest.PostgresDSN(t)
			first, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), Before: func(statement string) {
				stop <- statement
				<-stop
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := first.Close(); err != nil {
					t.Error(err)
				}
			})
			second := storetest.PostgresAt(t, dsn, store.Timeouts{})
			write := func(db *store.DB, scopes scope.Set, fn func(*store.Tx) error) {
				t.Helper()
				if err := db.Write(t.Context(), scopes, fn); err != nil {
					t.Error(err)
				}
			}
			write(second, scope.Server(), func(tx *store.Tx) error {
				return errors.Join(tx.InsertOrganization(store.Organization{ID: "o", Name: "o"}),
					tx.InsertIntegration(store.VCSIntegration{ID: "int", OrgID: "o", Provider: "github", Name: "i"}),
					tx.InsertRepo(store.VCSRepo{ID: "repo", IntegrationID: "int", RemoteID: "1", Name: "o/r"}),
					outbox.Track(tx, subject, created("a")), outbox.Track(tx, subject, created("b")))
			})
			for after := 1; ; after++ {
				var wg sync.WaitGroup
				end := make(chan struct{})
				wg.Go(func() {
					defer close(end)
					write(first, scope.Repository("o", "repo").And(scope.Stack("o", "id-a")), act)
				})
				ended := false
				for n := 0; n <= after && !ended; n++ {
					select {
					case <-stop:
						if n < after {
							stop <- ""
						}
					case <-end:
						ended = true
					}
				}
				if ended {
					return
				}
				changed := make(chan struct{})
				wg.Go(func() {
					defer close(changed)
					write(second, scope.Stack("o", "id-b"), func(tx *store.Tx) error {
						return tx.WantVCSReports(store.VCSCheckout{RepoID: "repo", Pull: 7, CommitID: "c"}, "id-b", outbox.Aggregate, tx.Now(), tx.Now())
					})
				})
				waiting(t, second, changed)
				stop <- ""
				for open := true; open; {
					select {
					case <-stop:
						stop <- ""
					case <-end:
						open = false
					}
				}
				wg.Wait()
			}
		})
	}
}

// waiting returns when a write has ended, or waits for a lock.
func waiting(t *testing.T, db *store.DB, ended <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
		n, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) {
			return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		})
		if err != nil || n > 0 {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}
