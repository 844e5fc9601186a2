package deployments_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// race is two writes that meet on two servers.
type race struct {
	name string
	cap  int64 // of the organization's active jobs; 0 means the default
	// prepare makes what the writes need.
	prepare func(p *plant) (a, b write)
	same    bool // the writes are of one kind, so that either may be the one that is stopped
	// locks are the levels of the locks without which the writes pass each other.
	locks []scope.Level
	// free says why the result is right without a lock, if locks is empty.
	free string
}

// write is a write that can be repeated on another server.
type write struct {
	call func(p *plant) string // returns what the caller learns
	// settle is set if the write may do nothing while another one holds its stack, and is then repeated.
	settle bool
}

// nothing is what the caller of a claim learns if there is no job.
const nothing = "nothing"

// TestRaces stops one write before each of its statements, and before its commit, and runs the other on a
// second server until it has ended or waits for a lock. What is stored then, and what the callers learn,
// must be as if the two had run one after the other.
func TestRaces(t *testing.T) {
	for _, r := range races() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if problem := runRace(t, r, storetest.PostgresDSN(t)); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// TestRacesWithoutALock checks that TestRaces notices a missing lock, in each of its pairs.
func TestRacesWithoutALock(t *testing.T) {
	for _, r := range races() {
		if r.free != "" {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			if runRace(t, r, withoutLocks(t, r.locks)) == "" {
				t.Errorf("without the locks of the levels %d, all results are as if the writes ran one after the other", r.locks)
			}
		})
	}
}

// runRace returns the difference from the writes that run one after the other, or "".
func runRace(t *testing.T, r race, dsn string) (problem string) {
	var stop stopper
	dbs := [2]*store.DB{openPatient(t, dsn, stop.before), openPatient(t, dsn, nil)}
	// A beat that is missed during the test would shift times.
	options := deployments.Options{Cap: r.cap, Sweep: time.Hour}
	p := newPlant(t, dbs[0], options)
	a, b := r.prepare(p)
	start := takeRows(t, dsn)

	// servers restores the rows, and returns two servers that remember nothing.
	servers := func() (first, second *plant) {
		start.restore()
		var plants [2]*plant
		for i, db := range dbs {
			plants[i] = &plant{t: t, db: db, org: p.org, pool: p.pool, agent: p.agent, user: p.user}
			plants[i].build(options)
		}
		return plants[0], plants[1]
	}
	serial := func(a, b write) result {
		first, second := servers()
		one := a.call(first)
		two := b.call(second)
		return result{one, two, start.now()}
	}
	ab, ba := serial(a, b), serial(b, a)
	check := func(a, b write, ab, ba result) (problem string) {
		stops := 0
		for more := true; more && problem == "" && !t.Failed(); {
			stops++
			first, second := servers()
			var got result
			var at string
			got, at, more = meet(first, second, a, b, &stop, stops, start)
			if more && got != ab && got != ba {
				problem = fmt.Sprintf("the first write was stopped before statement %d, %s\nthe callers learn %q and %q\nIf the first write is first, they learn %q and %q, and the rows differ so:\n%s\nIf the second is first, they learn %q and %q, and the rows differ so:\n%s",
					stops, at, got.a, got.b, ab.a, ab.b, difference(ab.rows, got.rows), ba.a, ba.b, difference(ba.rows, got.rows))
			}
		}
		if stops < 3 && problem == "" {
			t.Errorf("the write has %d statements", stops)
		}
		return problem
	}
	problem = check(a, b, ab, ba.swap())
	if problem == "" && !r.same {
		problem = check(b, a, ba, ab.swap())
	}
	return problem
}

// openPatient opens a database whose writes wait for minutes, and that calls a function before each of their
// statements.
func openPatient(t *testing.T, dsn string, before func(string)) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), dsn, store.Options{
		Log: storetest.Log(), Before: before,
		Timeouts: store.Timeouts{Write: 10 * time.Minute, Lock: 10 * time.Minute, Idle: 10 * time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// withoutLocks returns the address of a database in which exclusive locks of some levels have no effect.
func withoutLocks(t *testing.T, levels []scope.Level) string {
	t.Helper()
	dsn := storetest.PostgresDSN(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[scope.Level]string{scope.LevelOrganization: "organizations", scope.LevelClaims: "organizations", scope.LevelStack: "stacks"}
	var keys []string
	for _, level := range levels {
		keys = append(keys, fmt.Sprintf("SELECT hashtextextended('scope %d ' || id, 0) FROM public.%s", level, tables[level]))
	}
	for function, result := range map[string]string{"pg_advisory_xact_lock": "void", "pg_try_advisory_xact_lock": "boolean"} {
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`CREATE FUNCTION public.%s(key bigint) RETURNS %s LANGUAGE sql AS $$
			SELECT CASE WHEN key NOT IN (%s) THEN pg_catalog.%[1]s(key) %[4]s END $$`,
			function, result, strings.Join(keys, " UNION ALL "), map[string]string{"boolean": "ELSE true"}[result]))
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = db.ExecContext(t.Context(), `DO $$ DECLARE guarded regclass; BEGIN
		FOR guarded IN SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = 'guard' LOOP
			EXECUTE format('ALTER TABLE %s DISABLE TRIGGER guard', guarded);
		END LOOP; END $$`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return dsn + "&search_path=public,pg_catalog"
}

// result is the result of two writes.
type result struct{ a, b, rows string }

func (r result) swap() result { return result{r.b, r.a, r.rows} }

// meet stops a before a statement, runs b until it ends or waits, and lets both end. It reports at which
// statement, and whether a has as many.
func meet(first, second *plant, a, b write, stop *stopper, statement int, rows *rows) (got result, at string, stopped bool) {
	reached, resume := stop.set(statement)
	var wg sync.WaitGroup
	endA, endB := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		defer close(endA)
		got.a = a.call(first)
	})
	select {
	case at = <-reached:
		stopped = true
	case <-endA:
		stop.set(0)
		return got, "", false
	}
	wg.Go(func() {
		defer close(endB)
		got.b = b.call(second)
	})
	rows.waiting(endB)
	close(resume)
	wg.Wait()
	if a.settle && got.a == nothing {
		got.a = a.call(first)
	}
	if b.settle && got.b == nothing {
		got.b = b.call(second)
	}
	got.rows = rows.now()
	return got, at, stopped
}

// stopper stops the writes of a database before one of their statements.
type stopper struct {
	mu      sync.Mutex
	left    int // until the stop; 0 for none
	reached chan string
	resume  chan struct{}
}

func (s *stopper) set(statement int) (reached <-chan string, resume chan<- struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.reached, s.resume = statement, make(chan string, 1), make(chan struct{})
	return s.reached, s.resume
}

func (s *stopper) before(statement string) {
	s.mu.Lock()
	stop := s.left == 1
	if s.left > 0 {
		s.left--
	}
	reached, resume := s.reached, s.resume
	s.mu.Unlock()
	if stop {
		reached <- statement
		<-resume
	}
}

// waiting returns when a write has ended, or a statement waits for a lock.
func (r *rows) waiting(ended <-chan struct{}) {
	r.t.Helper()
	const query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for n := 0; n == 0; {
		select {
		case <-ended:
			return
		case <-time.After(time.Millisecond):
		}
		if err := r.db.QueryRowContext(ctx, query).Scan(&n); err != nil {
			r.t.Errorf("a write neither ends nor waits for a lock: %v", err)
			return
		}
	}
}
