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
	"github.com/jackc/pgx/v5/pgconn"

	"workflowagent/internal/retry"
)

const (
	// concurrentGroups is the number of transactions that one server runs at once. PostgreSQL detects
	// conflicts by page, so in small tables and indexes nearly all concurrent writes conflict.
	concurrentGroups = 2
	// groupPatience is the time after which waiting writes no longer wait for the transaction that
	// started last, because one of its writes or the way to the database is slow.
	groupPatience = 500 * time.Millisecond
	// groupTime is the time after which a transaction runs no further writes. They run in the next.
	groupTime = 50 * time.Millisecond
	// groupWrites is the maximum number of writes in a transaction. If it takes too long, the reads ahead
	// of those that run in the next are repeated.
	groupWrites = 32
)

// postgresWrites is the retry policy of writes. Replicas that serve the same update conflict for
// seconds on a busy database.
var postgresWrites = retry.Policy{First: 2 * time.Millisecond, Max: 200 * time.Millisecond, Tries: 40}

// groupWriter runs writes on PostgreSQL under SERIALIZABLE isolation, so that they need not handle
// concurrency. Waiting writes share a transaction. This saves most of the statements that begin and
// commit transactions, and the conflicts between the writes of one server.
//
// A write joins only a transaction that begins later, so it sees everything that was committed before
// it was requested.
type groupWriter struct {
	writeQueue
	db       *DB
	cfg      *pgx.ConnConfig
	pool     *sql.DB // for writes only, because each connection plans its statements itself
	timeouts Timeouts
	ended    chan struct{} // receives a value when a group has ended
	wg       sync.WaitGroup
}

func newGroupWriter(db *DB, cfg *pgx.ConnConfig, timeouts Timeouts) *groupWriter {
	w := &groupWriter{
		writeQueue: newWriteQueue(), db: db, cfg: cfg, pool: newPool(cfg, concurrentGroups), timeouts: timeouts,
		ended: make(chan struct{}, concurrentGroups),
	}
	go w.loop()
	return w
}

func (w *groupWriter) close() error {
	w.writeQueue.close()
	return w.pool.Close()
}

func (w *groupWriter) loop() {
	defer close(w.done)
	defer w.wg.Wait()
	running, started := 0, time.Time{}
	for first := range w.requests {
		for running > 0 {
			var slow <-chan time.Time // nil: too many transactions run
			if running < concurrentGroups {
				slow = time.After(groupPatience - time.Since(started))
			}
			select {
			case <-w.ended:
				running--
				continue
			case <-slow:
			}
			break
		}
		group := w.gather([]*writeRequest{first})
		running, started = running+1, time.Now()
		w.wg.Go(func() {
			w.run(group)
			w.ended <- struct{}{}
		})
	}
}

// run runs the writes of a group in as few transactions as possible, and reports their results.
func (w *groupWriter) run(group []*writeRequest) {
	group = begun(group)
	apart := false // the writes need savepoints, because one of them fails
	for failures := 0; len(group) > 0; {
		// Large groups that conflict with those of other servers would do so again.
		t := &groupTx{db: w.db, writer: w, apart: apart, memo: memo{}}
		n, err := t.run(group[:max(1, min(len(group), groupWrites)>>failures)])
		switch {
		case errors.Is(err, errApart):
			apart = true
			continue
		case isPostgresRetryable(err) && !errors.Is(err, ErrUnknown):
			err = fmt.Errorf("%w: %w", ErrBusy, err)
			if failures++; failures < postgresWrites.Tries {
				_ = postgresWrites.Wait(context.Background(), failures-1, nil) // a bounded wait
				group = giveUp(group, err)
				continue
			}
		}
		w.db.report(group[:n], err)
		group, apart, failures = group[n:], false, 0
	}
}

// giveUp reports err to those callers in a group who no longer wait, and returns the others.
func giveUp(group []*writeRequest, err error) []*writeRequest {
	var left []*writeRequest
	for _, req := range group {
		if req.ctx.Err() == nil {
			left = append(left, req)
		} else {
			req.result <- err
		}
	}
	return left
}

// errApart reports that a write failed after it had changed something, so that the transaction can
// not commit the other writes.
var errApart = errors.New("a write must be rolled back alone")

// groupTx is one attempt to run writes in one transaction.
type groupTx struct {
	*transaction
	db     *DB
	writer *groupWriter
	apart  bool // run each write inside a savepoint
	memo   memo

	later []string // statements that [Tx.Later] has queued
	args  [][]any  // their arguments
}

// run runs the first writes of a group and returns their number. After an error, none of them took
// effect, unless the error is [ErrUnknown].
func (t *groupTx) run(group []*writeRequest) (n int, err error) {
	// Cancellation must not interrupt a commit, because the outcome of the commit would be unknown.
	ctx, cancel := context.WithTimeout(context.Background(), t.writer.timeouts.Write)
	defer cancel()
	if t.transaction, err = begin(ctx, t.writer.pool, beginWrite, t.ahead(ctx, group)); err != nil {
		return len(group), fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.end(ctx)
	wrote := false
	var notices []string
	for n < len(group) && (n == 0 || time.Since(t.began) < groupTime) {
		req := group[n]
		n++
		if err := t.one(ctx, req, len(group)); err != nil {
			return n, err
		}
		if req.err == nil {
			wrote = wrote || req.tx.wrote
			notices = append(notices, req.tx.notices...)
		}
	}
	if !wrote && len(t.later) == 0 && len(notices) == 0 {
		return n, nil
	}
	err = t.commit(ctx, notices)
	switch {
	case err == nil:
		return n, nil
	case !refused(err):
		t.discard() // so that a transaction without COMMIT ends
		t.ended = true
		if err = t.writer.outcome(t.id, err); err != nil {
			err = fmt.Errorf("committing to the database: %w", err)
		}
		return n, err
	case errors.Is(err, errQueued) && n > 1 && !isPostgresRetryable(err):
		return n, errApart
	case errors.Is(err, errQueued):
		return n, translate(err)
	default:
		return n, fmt.Errorf("committing to the database: %w", err)
	}
}

// ahead returns the queries that the writes of a group are expected to run. Writes with savepoints
// run them one by one.
func (t *groupTx) ahead(ctx context.Context, group []*writeRequest) []question {
	var all questions
	if t.apart {
		return nil
	}
	tx := asking(ctx, t.db, &all)
	for _, req := range group {
		for _, ahead := range req.ahead {
			ahead(tx)
		}
	}
	return all.list
}

// one runs a write. It returns an error if the transaction cannot continue.
func (t *groupTx) one(ctx context.Context, req *writeRequest, together int) error {
	if t.apart {
		if _, err := t.conn.ExecContext(ctx, "SAVEPOINT one"); err != nil {
			return fmt.Errorf("setting a savepoint: %w", err)
		}
	}
	tx := &Tx{ctx: ctx, q: t.conn, engine: postgresEngine, db: t.db, group: t, mark: len(t.later), memo: t.memo, now: t.now()}
	req.tx = tx
	req.err = protect(tx, req.fn)
	if req.err == nil && t.apart {
		req.err = tx.flush()
	}
	req.err = cmp.Or(tx.err, req.err)
	if req.err != nil {
		t.later, t.args = t.later[:tx.mark], t.args[:tx.mark]
	}
	if isPostgresRetryable(tx.broken) {
		return tx.broken
	}
	if req.err == nil && tx.broken != nil {
		req.err = fmt.Errorf("the database has given up a transaction: %w", tx.broken)
	}
	if isPostgresRetryable(req.err) {
		return req.err
	}
	failed := req.err != nil && (tx.wrote || tx.broken != nil)
	switch {
	case t.apart && failed:
		if _, err := t.conn.ExecContext(ctx, "ROLLBACK TO one"); err != nil {
			return fmt.Errorf("rolling back to a savepoint: %w", err)
		}
	case t.apart:
		if _, err := t.conn.ExecContext(ctx, "RELEASE one"); err != nil {
			return fmt.Errorf("releasing a savepoint: %w", err)
		}
	case failed && together > 1:
		return errApart
	case failed:
		return req.err
	}
	return nil
}

// errQueued reports that a queued statement of one of the writes has failed.
var errQueued = errors.New("running a queued statement")

// commit runs the queued statements and commits the transaction, with its notifications. Unless the
// error is [refused], the database may have committed.
func (t *groupTx) commit(ctx context.Context, notices []string) error {
	queued, ran := len(t.later), 0
	err := withPgx(t.conn, func(conn *pgx.Conn) error {
		var b pgx.Batch
		t.queueLater(&b, func(pgconn.CommandTag) error { ran++; return nil })
		if len(notices) > 0 {
			slices.Sort(notices)
			b.Queue("SELECT pg_notify($1, notice) FROM unnest($2::text[]) AS notice", postgresChannel, slices.Compact(notices))
		}
		b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
			if tag.String() != "COMMIT" {
				return errRolledBack
			}
			return nil
		})
		return conn.SendBatch(ctx, &b).Close()
	})
	t.ended = err == nil
	if err != nil && ran < queued {
		err = fmt.Errorf("%w: %w", errQueued, err)
	}
	return err
}

// queueLater moves the statements that the writes have queued to a batch. It calls done after each.
func (t *groupTx) queueLater(b *pgx.Batch, done func(pgconn.CommandTag) error) {
	for i, query := range t.later {
		b.Queue(query, t.args[i]...).Exec(done)
	}
	t.later, t.args = nil, nil
}

// flush runs the statements that the writes have queued, and then queries.
func (t *groupTx) flush(ctx context.Context, ahead ...question) error {
	var b pgx.Batch
	t.queueLater(&b, func(pgconn.CommandTag) error { return nil })
	queueQuestions(&b, ahead, &t.answers)
	if b.Len() == 0 {
		return nil
	}
	return withPgx(t.conn, func(conn *pgx.Conn) error { return conn.SendBatch(ctx, &b).Close() })
}

// Later runs a statement before the next other statement at the latest, and together with those that
// Later has queued before, also in other writes of the transaction. An error of the statement makes
// the write fail.
func (tx *Tx) Later(query string, args ...any) error {
	if tx.group != nil {
		tx.group.answers.forgetFor(query)
	}
	return tx.enqueue(query, args)
}

// LaterOn is like [Tx.Later], but states that the statement changes only rows of a table with one of
// the pins; see [Table.OneOf]. Without pins, it can change all rows of the table.
func (tx *Tx) LaterOn(table string, pins []string, query string, args ...any) error {
	if tx.group != nil {
		tx.group.answers.forget(table, pins...)
	}
	return tx.enqueue(query, args)
}

func (tx *Tx) enqueue(query string, args []any) error {
	if tx.group == nil {
		_, err := tx.Exec(query, args...)
		return err
	}
	tx.queued = true
	tx.group.later, tx.group.args = append(tx.group.later, query), append(tx.group.args, encode(args))
	return nil
}

// Together makes reads in one round trip with PostgreSQL, as [DB.Write] does at the begin of the
// transaction. With SQLite, or if the write might be rolled back without the others, it does nothing.
func (tx *Tx) Together(ahead func(*Tx)) error {
	if tx.group == nil || tx.group.apart {
		return nil
	}
	var all questions
	ahead(asking(tx.ctx, tx.db, &all))
	return tx.flush(all.list...)
}

// flush runs the statements that the writes of the transaction have queued, and then queries.
func (tx *Tx) flush(ahead ...question) error {
	if tx.group == nil || len(tx.group.later)+len(ahead) == 0 {
		return nil
	}
	if len(tx.group.later) > 0 {
		tx.mark, tx.wrote = 0, tx.wrote || tx.queued
	}
	err := tx.group.flush(tx.ctx, ahead...)
	if err != nil {
		tx.broken = cmp.Or(tx.broken, err)
	}
	return translate(err)
}
