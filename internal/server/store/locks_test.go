package store_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/pgproxy"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// insertStack adds the stack "a" of the organization "id-o".
func insertStack(t *testing.T, db *store.DB) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		return errors.Join(tx.InsertOrganization(org("o")), tx.InsertStack(store.Stack{ID: "a", OrgID: "id-o", Project: "web", Name: "dev"}))
	})
}

// hold starts a write that holds locks until release is called.
func hold(t *testing.T, db *store.DB, scopes scope.Set) (release func()) {
	t.Helper()
	started, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := db.Write(t.Context(), scopes, func(*store.Tx) error {
			close(started)
			<-done
			return nil
		})
		if err != nil {
			t.Errorf("the write that holds %v: %v", scopes, err)
		}
	})
	select {
	case <-started:
	case <-time.After(time.Minute):
		t.Fatal("the write did not start")
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// waiting waits until a session of the database waits for an advisory lock, or until a write ran.
func waiting(t *testing.T, db *store.DB, ran *atomic.Bool) {
	t.Helper()
	for !ran.Load() {
		n, err := store.Read(t.Context(), db, func(tx *store.Tx) (int64, error) {
			return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
		})
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}

// TestWritesOfOneOwner checks that a write waits for the write of another server that has a scope in common,
// and only for those.
func TestWritesOfOneOwner(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	for _, other := range []scope.Set{scope.Stack("o", "a"), scope.Organization("o"), scope.Server(), scope.Stack("p", "x").And(scope.Stack("o", "a"))} {
		release := hold(t, first, scope.Stack("o", "a"))
		for _, apart := range []scope.Set{scope.Free, scope.Stack("o", "b"), scope.Organization("p"), scope.Claims("o"), scope.User("u")} {
			if err := second.Write(t.Context(), apart, func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("a write of %v: %v", apart, err)
			}
		}
		var ran atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := second.Write(t.Context(), other, func(*store.Tx) error { ran.Store(true); return nil }); err != nil {
				t.Errorf("a write of %v: %v", other, err)
			}
		})
		waiting(t, first, &ran)
		if ran.Load() {
			t.Errorf("a write of %v did not wait", other)
		}
		release()
		wg.Wait()
	}
}

// TestWritesSeeTheirPredecessors increments a number on two servers at once. A write must see what the
// previous holder of its lock has stored.
func TestWritesSeeTheirPredecessors(t *testing.T) {
	const workers, each = 4, 10
	first, second := storetest.PostgresPair(t)
	insertStack(t, first)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for range each {
				err := []*store.DB{first, second}[i%2].Write(t.Context(), scope.Stack("id-o", "a"), func(tx *store.Tx) error {
					queue, err := tx.StackQueue("a")
					if err != nil {
						return err
					}
					queue.LastVersion++
					return tx.SaveStackQueue(queue)
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	queue, err := store.Read(t.Context(), first, func(tx *store.Tx) (store.StackQueue, error) { return tx.StackQueue("a") })
	if err != nil || queue.LastVersion != workers*each {
		t.Errorf("the number is %d (%v), want %d", queue.LastVersion, err, workers*each)
	}
}

// TestTryLock checks that a try finds the locks of this and of another server, and that its own locks
// last until the end of the write.
func TestTryLock(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	free, busy := scope.Stack("o", "free"), scope.Stack("o", "busy")
	for _, db := range []*store.DB{first, second} {
		release := hold(t, db, busy)
		err := first.Write(t.Context(), scope.Claims("o"), func(tx *store.Tx) error {
			got, err := tx.TryLock(busy)
			if err != nil || got {
				t.Errorf("the try of a busy stack: %t, %v", got, err)
			}
			for range 2 { // the second time without effect
				if got, err = tx.TryLock(free); err != nil || !got {
					t.Errorf("the try of a free stack: %t, %v", got, err)
				}
			}
			return second.Write(t.Context(), scope.Claims("p"), func(tx *store.Tx) error {
				got, err := tx.TryLock(free)
				if err != nil || got {
					t.Errorf("the try of a stack that a try has locked: %t, %v", got, err)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		release()
		for _, scopes := range []scope.Set{free, busy} {
			if err := first.Write(t.Context(), scopes, func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("a later write of %v: %v", scopes, err)
			}
		}
	}
}

// TestLockTimeout checks that a write gives up if another server holds its lock for too long.
func TestLockTimeout(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	holder := storetest.PostgresAt(t, dsn, store.Timeouts{})
	db := storetest.PostgresAt(t, dsn, store.Timeouts{Lock: 50 * time.Millisecond})
	release := hold(t, holder, scope.Stack("o", "a"))
	err := db.Write(t.Context(), scope.Organization("o"), func(*store.Tx) error { t.Error("the write ran"); return nil })
	if !errors.Is(err, store.ErrBusy) {
		t.Errorf("the write: %v, want ErrBusy", err)
	}
	release()
	if err := db.Write(t.Context(), scope.Organization("o"), func(*store.Tx) error { return nil }); err != nil {
		t.Errorf("the next write: %v", err)
	}
}

// TestStoppedHolder lets a server stop during a write. The writes of other servers run after the database
// has ended its transaction, and the write is repeated when the server continues.
func TestStoppedHolder(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	stopped := storetest.PostgresAt(t, dsn, store.Timeouts{Idle: 200 * time.Millisecond})
	other := storetest.PostgresAt(t, dsn, store.Timeouts{})
	insertStack(t, other)
	started, resume := make(chan struct{}), make(chan struct{})
	runs := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		err := stopped.Write(t.Context(), scope.Stack("id-o", "a"), func(tx *store.Tx) error {
			err := tx.SaveStackQueue(store.StackQueue{StackID: "a", LastVersion: 1})
			if runs++; runs == 1 {
				close(started)
				<-resume
			}
			return errors.Join(err, tx.SaveStackQueue(store.StackQueue{StackID: "a", LastVersion: 2}))
		})
		if err != nil || runs != 2 {
			t.Errorf("the write of the stopped server: %v after %d runs, want success after 2", err, runs)
		}
	})
	<-started
	err := other.Write(t.Context(), scope.Organization("id-o"), func(tx *store.Tx) error {
		queue, err := tx.StackQueue("a")
		if queue.LastVersion != 0 {
			t.Error("the other server sees what the stopped server has not committed")
		}
		return err
	})
	if err != nil {
		t.Errorf("the write of the other server: %v", err)
	}
	close(resume)
	wg.Wait()
}

// TestChangedStack checks that a write fails if its stack has moved to another organization, or if a stack that
// was read has been removed.
func TestChangedStack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		insertStack(t, db)
		write(t, db, func(tx *store.Tx) error { return tx.InsertOrganization(org("p")) })
		moved := store.Stack{ID: "a", OrgID: "id-p"}
		for name, tt := range map[string]struct {
			scopes scope.Set
			want   error
			kind   fault.Kind
		}{
			"present":     {store.Stack{ID: "a", OrgID: "id-o"}.Scope(), nil, ""},
			"moved":       {moved.Scope(), database.ErrMoved, fault.KindConflict},
			"moved job":   {scope.Stack(moved.OrgID, moved.ID), database.ErrMoved, fault.KindConflict},
			"moved too":   {scope.Organization("id-p").And(moved.Scope().Shared()), database.ErrMoved, fault.KindConflict},
			"removed":     {store.Stack{ID: "b", OrgID: "id-o"}.Scope(), store.ErrNotFound, ""},
			"removed job": {scope.Stack("id-o", "b"), nil, ""},
		} {
			ran := false
			err := db.Write(t.Context(), tt.scopes, func(*store.Tx) error { ran = true; return nil })
			if !errors.Is(err, tt.want) || fault.KindOf(err) != tt.kind || ran != (err == nil) {
				t.Errorf("%s: %v, the write ran: %t", name, err, ran)
			}
		}
	})
}

// TestManyWritesOfOneOrganization checks that the writes of an organization leave connections for those of
// others: here, they all wait for the lock of another server.
func TestManyWritesOfOneOrganization(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	release := hold(t, first, scope.Organization("busy"))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if err := second.Write(t.Context(), scope.Stack("busy", fmt.Sprint(i)), func(*store.Tx) error { return nil }); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	for waiting := int64(0); waiting < 8; {
		err := first.Read(t.Context(), func(tx *store.Tx) (err error) {
			waiting, err = database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := second.Write(t.Context(), scope.Stack("other", "a"), func(*store.Tx) error { return nil }); err != nil {
		t.Errorf("a write of another organization: %v", err)
	}
	release()
	wg.Wait()
}

// TestNotices checks that other servers receive notices after commits of which the outcome is unknown, and
// those that wait when a server stops, but none of failed writes.
func TestNotices(t *testing.T) {
	dsn := storetest.PostgresDSN(t)
	p := pgproxy.Start(t, dsn, "")
	heard := make(chan string, 100)
	other := storetest.PostgresAt(t, dsn, store.Timeouts{})
	connected := sync.OnceFunc(func() { heard <- "connected" })
	defer other.Subscribe("test", func(payload string) {
		if connected(); payload != "" {
			heard <- payload
		}
	})()
	db, err := store.Open(t.Context(), p.DSN(), store.Options{Log: storetest.Log(), Timeouts: store.Timeouts{Outcome: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	notify := func(payload string, result error) error {
		return db.Write(t.Context(), scope.Free, func(tx *store.Tx) error {
			tx.Notify("test", payload)
			return result
		})
	}
	for { // the listener of the other server may not have connected yet
		if err := notify("first", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(50 * time.Millisecond):
			continue
		}
		break
	}
	if err := notify("failed", errors.New("failed")); err == nil {
		t.Error("the failed write succeeded")
	}
	p.Hide(true)
	p.Set(pgproxy.Cut)
	if err := notify("unknown", nil); fault.KindOf(err) != fault.KindOutcomeUnknown {
		t.Errorf("the write has the error %v", err)
	}
	p.Set(pgproxy.None)
	if err := notify("last", nil); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	// A repetition of the first can come before them, and the server sends what waits together, in any order.
	for missing := []string{"last", "unknown"}; len(missing) > 0; {
		select {
		case got := <-heard:
			if got == "failed" {
				t.Error("the other server hears of the failed write")
			}
			missing = slices.DeleteFunc(missing, func(payload string) bool { return payload == got })
		case <-t.Context().Done():
			t.Fatalf("the other server does not hear %q", missing)
		}
	}
}

// TestChangesWithoutALock checks that test databases refuse changes of rows whose owners a write has not
// named, directly and by a cascade.
func TestChangesWithoutALock(t *testing.T) {
	db := storetest.Postgres(t)
	insertStack(t, db)
	count := func(tx *store.Tx) error {
		queue, err := tx.StackQueue("a")
		queue.LastVersion++
		return errors.Join(err, tx.SaveStackQueue(queue))
	}
	for name, tt := range map[string]struct {
		scopes scope.Set
		change func(*store.Tx) error
		ok     bool
	}{
		"stack":        {scope.Stack("id-o", "a"), count, true},
		"other stack":  {scope.Stack("id-o", "b"), count, false},
		"free":         {scope.Free, count, false},
		"organization": {scope.Organization("id-o"), count, true},
		"shared":       {scope.Organization("id-o").Shared(), count, false},
		"new stack": {scope.Organization("id-o").Shared(), func(tx *store.Tx) error {
			return tx.InsertStack(store.Stack{ID: "b", OrgID: "id-o", Project: "web", Name: "b"})
		}, true},
		"cascade": {scope.Stack("id-o", "b"), func(tx *store.Tx) error { return tx.ExecOne("DELETE FROM stacks WHERE id = 'a'") }, false},
		"audit":   {scope.Free, func(tx *store.Tx) error { return tx.InsertAuditEntry(store.AuditEntry{ID: "e", OrgID: "id-o"}) }, true},
	} {
		if err := db.Write(t.Context(), tt.scopes, tt.change); (err == nil) != tt.ok {
			t.Errorf("%s: %v, success is %t", name, err, tt.ok)
		}
	}
}

// TestChangesWithoutTheLockOfEachLevel is the same for a row of each level.
func TestChangesWithoutTheLockOfEachLevel(t *testing.T) {
	db := storetest.Postgres(t)
	vcsFixture(t, db)
	write(t, db, func(tx *store.Tx) error {
		return errors.Join(tx.InsertUser(store.User{ID: "u", Login: "u"}), tx.InsertPool(store.AgentPool{ID: "p", OrgID: "id-acme", Name: "p"}),
			tx.InsertWebhook(store.Webhook{ID: "h", OrgID: "id-acme", Name: "h"}))
	})
	for name, tt := range map[string]struct {
		scopes scope.Set
		change func(*store.Tx) error
	}{
		"server":       {scope.Server(), func(tx *store.Tx) error { return tx.SetInstallation("x", []byte("y")) }},
		"user":         {scope.User("u"), func(tx *store.Tx) error { return tx.SetDefaultOrg("u", "acme") }},
		"organization": {scope.Organization("id-acme"), func(tx *store.Tx) error { return tx.SetStackPermission("id-acme", store.AdminPermission) }},
		"repository":   {scope.Repository("id-acme", "repo"), func(tx *store.Tx) error { return tx.SaveRef(store.VCSRef{RepoID: "repo", Ref: "r", CommitID: "1"}) }},
		"stack":        {scope.Stack("id-acme", "id-a"), func(tx *store.Tx) error { return tx.SetStackTag("id-a", "n", "v") }},
		"webhook": {scope.Webhook("id-acme", "h"), func(tx *store.Tx) error {
			return tx.SaveWebhookSender(store.WebhookSender{HookID: "h", NotBefore: instant(1)})
		}},
		"agent": {scope.Agent("id-acme", "a"), func(tx *store.Tx) error {
			return tx.SaveAgent(store.PoolAgent{PoolID: "p", AgentID: "a", SessionID: "s"})
		}},
	} {
		for _, other := range []scope.Set{scope.Free, scope.User("v"), scope.Stack("id-acme", "id-b"), scope.Claims("id-acme")} {
			if err := db.Write(t.Context(), other, tt.change); err == nil {
				t.Errorf("%s: a write of %v was accepted", name, other)
			}
		}
		if err := db.Write(t.Context(), tt.scopes, tt.change); err != nil {
			t.Errorf("%s: a write with its scope: %v", name, err)
		}
	}
}

// TestRenewalsOfTwoServers renews two agents on two servers, which name them in different orders, while a third
// write holds the first agent. The database of a test tolerates no deadlocks.
func TestRenewalsOfTwoServers(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	var agents []store.PoolAgent
	for _, id := range []string{"a", "b"} {
		agents = append(agents, store.PoolAgent{PoolID: "p", AgentID: id, SessionID: "s", LiveUntil: instant(1), LastSeenAt: instant(1)})
	}
	write(t, first, func(tx *store.Tx) error {
		return errors.Join(tx.InsertOrganization(org("o")), tx.InsertPool(store.AgentPool{ID: "p", OrgID: "id-o", Name: "p"}),
			tx.SaveAgent(agents[0]), tx.SaveAgent(agents[1]))
	})
	later := func(a store.PoolAgent) store.PoolAgent {
		a.LiveUntil, a.LastSeenAt = instant(3), instant(3)
		return a
	}
	var renewals sync.WaitGroup
	err := first.Write(t.Context(), scope.Free, func(tx *store.Tx) error {
		if err := tx.TouchAgent("p", "a", instant(2)); err != nil {
			return err
		}
		for n, list := range [][]store.PoolAgent{{later(agents[0]), later(agents[1])}, {later(agents[1]), later(agents[0])}} {
			db := []*store.DB{first, second}[n]
			renewals.Go(func() {
				err := db.Write(t.Context(), scope.Free, func(tx *store.Tx) error {
					// As in a table of many agents, an index finds each.
					for _, way := range []string{"hashjoin", "mergejoin", "seqscan"} {
						if _, err := tx.Exec("SET LOCAL enable_" + way + " = off"); err != nil {
							return err
						}
					}
					renewed, err := tx.RenewAgents(list)
					if len(renewed) != 2 {
						t.Errorf("%d agents were renewed, want 2", len(renewed))
					}
					return err
				})
				if err != nil {
					t.Errorf("renewing: %v", err)
				}
			})
			for waiting := int64(0); waiting <= int64(n); {
				var err error
				waiting, err = store.Read(t.Context(), second, func(tx *store.Tx) (int64, error) {
					return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	renewals.Wait()
}

// TestFiredSchedulesAreDeleted checks that the server may remove what no write needs without a lock.
func TestFiredSchedulesAreDeleted(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		insertStack(t, db)
		write(t, db, func(tx *store.Tx) error {
			return tx.InsertSchedule(store.Schedule{ID: "c", StackID: "a", OrgID: "id-o", Kind: store.CustomSchedule, Fired: true, ArmedAt: instant(1), Request: "{}"})
		})
		err := db.Write(t.Context(), scope.Free, func(tx *store.Tx) error {
			n, err := tx.DeleteFiredSchedules(instant(2), 9)
			if n != 1 {
				t.Errorf("%d schedules were removed, want 1", n)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
