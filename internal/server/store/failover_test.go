package store_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/pgproxy"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// TestCommitBeforeAFailover loses the answer to COMMIT with the database, so that the next host of the
// address is asked: a standby that does not know the transaction yet. It must not say that nothing was
// stored.
func TestCommitBeforeAFailover(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	primary, standby := pgproxy.Start(t, dsn, ""), pgproxy.Start(t, dsn, "")
	standby.Lag()
	db := storetest.PostgresAt(t, withHost(t, primary.DSN(), standby.DSN()), store.Timeouts{Outcome: 100 * time.Millisecond})
	primary.Set(pgproxy.Vanish)
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(org("a")) })
	if fault.KindOf(err) != fault.KindOutcomeUnknown {
		t.Errorf("the write, whose outcome only the primary knows: %v", err)
	}
	left, err := store.Read(t.Context(), storetest.PostgresAt(t, dsn, store.Timeouts{}), func(tx *store.Tx) ([]store.Organization, error) { return tx.Organizations() })
	if err != nil || len(left) != 1 {
		t.Errorf("the primary has stored %d rows (%v)", len(left), err)
	}
}

// TestOutcomeAfterASilentHost loses the answer to COMMIT, and the first host of the address does not answer
// any more. The next host knows the outcome.
func TestOutcomeAfterASilentHost(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	first := pgproxy.Start(t, dsn, "")
	db := storetest.PostgresAt(t, withHost(t, first.DSN(), dsn), store.Timeouts{Outcome: 6 * time.Second})
	first.Set(pgproxy.Hang)
	if err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(org("a")) }); err != nil {
		t.Errorf("the write, whose outcome the second host knows: %v", err)
	}
}

// withHost returns the address of a database with the host of another one, which is tried after the first.
func withHost(t *testing.T, dsn, more string) string {
	t.Helper()
	first, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(more)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(dsn, first.Host, first.Host+","+second.Host, 1)
}

// TestOutcomeBehindAPooler is the same for a pooler that sends some queries to a standby.
func TestOutcomeBehindAPooler(t *testing.T) {
	p := pgproxy.Start(t, storetest.PostgresDSN(t), "")
	u := p.DSN() + "&target_session_attrs=read-write" // so that the connection itself is accepted
	db := storetest.PostgresAt(t, u, store.Timeouts{Outcome: 100 * time.Millisecond})
	p.Lag()
	p.Set(pgproxy.Cut)
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(org("a")) })
	if fault.KindOf(err) != fault.KindOutcomeUnknown {
		t.Errorf("the write, whose outcome only the primary knows: %v", err)
	}
}

// TestPoolerInTransactionMode checks that a server does not start behind a pooler that gives several connections
// one session.
func TestPoolerInTransactionMode(t *testing.T) {
	p := pgproxy.Start(t, storetest.PostgresDSN(t), "")
	p.Pool()
	db, err := store.Open(t.Context(), p.DSN(), store.Options{Log: storetest.Log()})
	if err == nil {
		db.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "pooler in transaction mode") {
		t.Errorf("opening the database: %v", err)
	}
}

// TestSilentConnections makes all connections to the database silent, as a proxy does that has lost the
// database. Reads and notifications must go on with new connections.
func TestSilentConnections(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	p := pgproxy.Start(t, dsn, "")
	db := storetest.PostgresAt(t, p.DSN(), store.Timeouts{Answer: time.Second})
	other := storetest.PostgresAt(t, dsn, store.Timeouts{})
	heard := make(chan string, 1000)
	cancel := db.Subscribe("test", func(payload string) { heard <- payload })
	defer cancel()
	read := func() error {
		return db.Read(t.Context(), func(tx *store.Tx) error { _, err := tx.Organizations(); return err })
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	p.Freeze()
	for err := read(); err != nil; err = read() {
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	for n := 0; ; n++ {
		write(t, other, func(tx *store.Tx) error { tx.Notify("test", "x"); return nil })
		select {
		case payload := <-heard:
			if payload == "x" {
				return
			}
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("no notification arrives any more")
		}
	}
}

// TestStandbyThatDoesNotAnswer checks that a write is not reported as stored while it waits for a synchronous
// standby, neither after the time for the answer nor if the database ends its connection.
func TestStandbyThatDoesNotAnswer(t *testing.T) {
	dsn := storetest.PostgresOwn(t)
	alone := storetest.PostgresAt(t, dsn+"&synchronous_commit=local", store.Timeouts{})
	short := storetest.PostgresAt(t, dsn, store.Timeouts{Write: time.Second, Answer: 2 * time.Second, Outcome: 100 * time.Millisecond})
	long := storetest.PostgresAt(t, dsn, store.Timeouts{Outcome: 100 * time.Millisecond})
	terminate := func() { // the connection that waits for the standby, as soon as one does
		t.Helper()
		for n := int64(0); n == 0; <-time.After(10 * time.Millisecond) {
			var err error
			n, err = store.Read(t.Context(), alone, func(tx *store.Tx) (int64, error) {
				return database.Scalar[int64](tx.Tx, "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			})
			if err != nil || n > 1 {
				t.Fatalf("%d connections wait for the standby (%v), want 1", n, err)
			}
		}
	}
	requireStandby(t, dsn, terminate)

	insert := func(db *store.DB, name string) error {
		return db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertOrganization(org(name)) })
	}
	var err error
	for n := 0; ; n++ { // a slow machine reaches the limits of this database before COMMIT, too
		if err = insert(short, fmt.Sprint(n)); err == nil || fault.KindOf(err) == fault.KindOutcomeUnknown {
			break
		}
		t.Logf("a write that was not stored: %v", err)
	}
	if fault.KindOf(err) != fault.KindOutcomeUnknown {
		t.Fatalf("the write: %v", err)
	}
	list, err := store.Read(t.Context(), alone, func(tx *store.Tx) ([]store.Organization, error) { return tx.Organizations() })
	if err != nil || len(list) != 0 {
		t.Errorf("others see %d rows (%v), want none", len(list), err)
	}
	terminate()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := insert(long, "terminated"); fault.KindOf(err) != fault.KindOutcomeUnknown {
			t.Errorf("the write whose connection was terminated: %v", err)
		}
	})
	terminate()
	wg.Wait()
}

// requireStandby makes commits of a database server wait for a standby that does not exist. It calls terminate, which
// must end the session of the first commit that waits.
func requireStandby(t *testing.T, dsn string, terminate func()) {
	t.Helper()
	admin, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'missing'", "SELECT pg_reload_conf()"} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { // the setting has an effect some time later
		for err := error(nil); err == nil; {
			_, err = admin.ExecContext(t.Context(), "SELECT pg_logical_emit_message(true, '', '')")
		}
	})
	terminate()
	wg.Wait()
}
