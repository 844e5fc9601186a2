package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/store/scope"
)

// repeats is the policy for writes that the database has given up because of a deadlock, or whose
// connection was lost before COMMIT was sent.
var repeats = retry.Policy{First: 5 * time.Millisecond, Max: 200 * time.Millisecond, Tries: 5}

// Owners are queries for the organizations of owners, by level. Each has the owner's key as its only
// argument, and returns the organization's id and the time of its deletion, 0 if it exists.
type Owners map[scope.Level]string

// postgresWriter runs each write in its own transaction under READ COMMITTED isolation. Locks on the
// owners that a write names come first, so that writes of one owner run one after another on all servers.
type postgresWriter struct {
	db       *DB
	cfg      *pgx.ConnConfig
	timeouts Timeouts
	before   func(statement string) // see [Options]; nil except in tests
	locks    *lockTable
	conns    int64               // for writes; the others remain for reads
	slots    *semaphore.Weighted // one for each of conns
	shares   sync.Map            // of the slots, a *semaphore.Weighted for each organization

	mu      sync.RWMutex // prevents a write from starting during close
	closed  bool
	running sync.WaitGroup
}

func newPostgresWriter(db *DB, cfg *pgx.ConnConfig, conns int, opts Options) *postgresWriter {
	writing := int64(max(1, conns*2/3))
	return &postgresWriter{
		db: db, cfg: cfg, timeouts: opts.Timeouts.orDefault(), before: opts.Before,
		locks: newLockTable(), conns: writing, slots: semaphore.NewWeighted(writing),
	}
}

// close rejects new writes, and waits for the accepted ones.
func (w *postgresWriter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.running.Wait()
}

func (w *postgresWriter) enter() bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if !w.closed {
		w.running.Add(1)
	}
	return !w.closed
}

func (w *postgresWriter) write(ctx context.Context, scopes scope.Set, fn func(*Tx) error) error {
	if !w.enter() {
		return ErrClosed
	}
	defer w.running.Done()
	end := time.Now().Add(w.timeouts.Write)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for failures := 1; ; failures++ {
		err := w.once(ctx, end, scopes, fn)
		if !errors.Is(err, errRepeat) || failures >= repeats.Tries || repeats.Wait(ctx, failures-1, nil) != nil {
			return err
		}
	}
}

// errRepeat reports that a write has not taken effect and can be repeated.
var errRepeat = errors.New("the database has given up a transaction")

// once attempts a write, which must send COMMIT before end.
func (w *postgresWriter) once(ctx context.Context, end time.Time, scopes scope.Set, fn func(*Tx) error) error {
	if w.before != nil {
		w.before("BEGIN")
	}
	locks := scopes.Locks()
	conn, release, err := w.admit(ctx, locks, scopes)
	defer release()
	if err != nil {
		return err
	}
	caller := ctx
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	defer cancel()
	tx := &Tx{ctx: ctx, q: conn, db: w.db, locks: locks}
	defer func() { w.locks.release(tx.tried) }() // when the transaction has ended
	t := &transaction{conn: conn}
	defer t.end(ctx)
	if err := t.beginWrite(ctx, scopes, w.db.owners, w.timeouts); err != nil {
		return w.classify(ctx, t, err, fmt.Errorf("beginning a transaction: %w", translate(err)))
	}
	if err := caller.Err(); err != nil {
		return fmt.Errorf("waiting to write to the database: %w", err)
	}
	tx.now = t.now()
	if w.before != nil {
		tx.q = watched{conn, w.before}
	}
	if err = protect(tx, fn); err != nil {
		return w.classify(ctx, t, cmp.Or(tx.broken, err), err)
	}
	if w.before != nil {
		w.before("COMMIT")
	}
	err = t.commit(ctx)
	if err != nil && !refused(err) {
		discard(t.conn) // so that a transaction without COMMIT ends
		t.ended = true
		err = w.outcome(t.id, err)
	}
	if err == nil || errors.Is(err, ErrUnknown) {
		w.db.notices.send(tx.notices)
	}
	if err != nil {
		return w.classify(ctx, t, err, fmt.Errorf("committing to the database: %w", translate(err)))
	}
	tx.afterCommit()
	return nil
}

// classify returns the error of a write whose transaction has failed with cause, and states whether the write
// can be repeated.
func (w *postgresWriter) classify(ctx context.Context, t *transaction, cause, err error) error {
	switch code := postgresCode(cause); {
	case t.ended: // the outcome is known
		return err
	case ctx.Err() != nil: // the time is over
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case code == "40P01", code == "40001": // deadlock_detected, serialization_failure
		return fmt.Errorf("%w: %w: %w", ErrBusy, errRepeat, err)
	case t.lost():
		return fmt.Errorf("%w: %w", errRepeat, err)
	}
	return err
}

// admit waits for the other writes of this server that hold the locks, and then for a connection. The caller
// must call release, also after an error.
func (w *postgresWriter) admit(ctx context.Context, locks []scope.Lock, scopes scope.Set) (conn *sql.Conn, release func(), err error) {
	var acquired []func()
	release = func() {
		for _, undo := range slices.Backward(acquired) {
			undo()
		}
	}
	share := w.share(scopes)
	for _, step := range []struct {
		acquire func() error
		undo    func()
	}{
		{ctx.Err, func() {}},
		{func() error { return w.locks.acquire(ctx, locks) }, func() { w.locks.release(locks) }},
		{func() error { return share.Acquire(ctx, 1) }, func() { share.Release(1) }},
		{func() error { return w.slots.Acquire(ctx, 1) }, func() { w.slots.Release(1) }},
		{func() (err error) { conn, err = w.db.pool.Conn(ctx); return err }, func() {}},
	} {
		if err := step.acquire(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %w", ErrBusy, err)
			}
			return nil, release, fmt.Errorf("waiting to write to the database: %w", err)
		}
		acquired = append(acquired, step.undo)
	}
	return conn, release, nil
}

// share bounds the slots that the writes of one organization use, to three quarters. So the writes of the
// others go on although those of one organization wait for a lock, or are many.
func (w *postgresWriter) share(scopes scope.Set) *semaphore.Weighted {
	org := ""
	for _, s := range scopes {
		org = cmp.Or(org, s.Org)
	}
	share, known := w.shares.Load(org)
	if !known {
		share, _ = w.shares.LoadOrStore(org, semaphore.NewWeighted(max(1, w.conns*3/4)))
	}
	return share.(*semaphore.Weighted) //nolint:forcetypeassert // the map has only these
}

// TryLock acquires the locks of further owners if no other write holds them, and reports whether it
// has. It never waits. With SQLite, where writes run one after another, it returns true.
func (tx *Tx) TryLock(scopes scope.Set) (bool, error) {
	w := tx.db.postgres
	if w == nil {
		return true, nil
	}
	var missing []scope.Lock
	for _, lock := range scopes.Locks() {
		if !tx.holds(lock) {
			missing = append(missing, lock)
		}
	}
	if !w.locks.try(missing) {
		return false, nil
	}
	for i, lock := range missing {
		got, err := Scalar[bool](tx, lockStatement("pg_try_advisory_xact_lock", lock), lockName(lock))
		if err != nil || !got {
			w.locks.release(missing[i:])
			tx.tried = append(tx.tried, missing[:i]...) // the transaction holds these until it ends
			return false, err
		}
	}
	tx.tried = append(tx.tried, missing...)
	return true, nil
}

// holds reports whether the transaction holds a lock. A lock of the server includes all others.
func (tx *Tx) holds(lock scope.Lock) bool {
	for _, held := range slices.Concat(tx.locks, tx.tried) {
		same := held.Level == lock.Level && held.Key == lock.Key || held.Level == scope.LevelServer && !held.Shared
		if same && (lock.Shared || !held.Shared) {
			return true
		}
	}
	return false
}
