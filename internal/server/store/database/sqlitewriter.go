package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"workflowagent/internal/guard"
)

// maxGroup is the maximum number of writes that share a commit. It limits the time that the first
// write waits for the last.
const maxGroup = 128

// sqliteWriter owns the only connection that writes to a SQLite database. It collects all waiting writes,
// runs them one after another in one transaction, each inside a savepoint, commits, and then reports the
// results. The writes thus share the cost of one sync to disk.
type sqliteWriter struct {
	db   *DB
	pool *sql.DB // of one connection

	// mu prevents requests from being closed during a send.
	mu       sync.RWMutex
	closed   bool
	requests chan *writeRequest
	done     chan struct{} // closed when the last write has ended
}

type writeRequest struct {
	ctx    context.Context
	fn     func(*Tx) error
	claim  atomic.Bool // set by the writer when it runs the request, or by a caller that stops waiting
	result chan error  // capacity 1
	tx     *Tx
	err    error
}

func newSQLiteWriter(db *DB, pool *sql.DB) *sqliteWriter {
	w := &sqliteWriter{db: db, pool: pool, requests: make(chan *writeRequest, maxGroup), done: make(chan struct{})}
	go w.loop()
	return w
}

func (w *sqliteWriter) write(ctx context.Context, fn func(*Tx) error) error {
	req := &writeRequest{ctx: ctx, fn: fn, result: make(chan error, 1)}
	if err := w.enqueue(ctx, req); err != nil {
		return err
	}
	select {
	case err := <-req.result:
		return err
	case <-ctx.Done():
		if req.claim.CompareAndSwap(false, true) {
			return fmt.Errorf("waiting to write to the database: %w", ctx.Err())
		}
		return <-req.result
	}
}

func (w *sqliteWriter) enqueue(ctx context.Context, req *writeRequest) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		return ErrClosed
	}
	select {
	case w.requests <- req:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting to write to the database: %w", ctx.Err())
	}
}

// close rejects new writes, and waits for the accepted ones.
func (w *sqliteWriter) close() error {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	if first {
		close(w.requests)
	}
	w.mu.Unlock()
	<-w.done
	return w.pool.Close()
}

func (w *sqliteWriter) loop() {
	defer close(w.done)
	for first := range w.requests {
		if group := w.gather(first); len(group) > 0 {
			w.report(group, w.transaction(group))
		}
	}
}

// gather returns the waiting writes, up to maxGroup, whose callers still wait.
func (w *sqliteWriter) gather(first *writeRequest) []*writeRequest {
	var group []*writeRequest
	for req := first; ; {
		if req.claim.CompareAndSwap(false, true) {
			group = append(group, req)
		}
		if len(group) == maxGroup {
			return group
		}
		select {
		case next, ok := <-w.requests:
			if !ok {
				return group
			}
			req = next
		default:
			return group
		}
	}
}

// report tells the callers of a group the results. A groupErr means that no write took effect, unless it
// is [ErrUnknown]. It replaces the writes' own errors, because these can follow from what another write
// of the group had changed.
func (w *sqliteWriter) report(group []*writeRequest, groupErr error) {
	if errors.Is(groupErr, ErrUnknown) {
		w.db.bus.missed() // the writes may have had something to tell
	}
	for _, req := range group {
		err := cmp.Or(groupErr, req.err)
		if err == nil {
			req.tx.afterCommit()
		}
		req.result <- err
	}
}

// transaction runs the writes and commits. If it returns an error, none of the writes took effect,
// unless the error is [ErrUnknown].
func (w *sqliteWriter) transaction(group []*writeRequest) error {
	ctx := context.Background()
	conn, err := w.pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("opening the database for writing: %w", err)
	}
	defer conn.Close() //nolint:errcheck // only returns the connection to the pool
	t, err := conn.BeginTx(ctx, nil)
	if err != nil {
		discard(conn)
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	wrote := false
	for _, req := range group {
		if _, err := t.ExecContext(ctx, "SAVEPOINT one"); err != nil {
			return fmt.Errorf("setting a savepoint: %w", err)
		}
		req.tx = &Tx{ctx: ctx, q: t, db: w.db}
		req.err = protect(req.tx, req.fn)
		end := "RELEASE one"
		if req.err != nil {
			end = "ROLLBACK TO one"
		} else {
			wrote = true
		}
		if _, err := t.ExecContext(ctx, end); err != nil {
			if IsFull(req.err) { // SQLite has rolled back the whole transaction
				err = req.err
			}
			return fmt.Errorf("releasing a savepoint: %w", err)
		}
	}
	if !wrote {
		return nil
	}
	err = t.Commit()
	if err == nil {
		return nil
	}
	// The connection may still be in the transaction, or have another view of the log than the file.
	discard(conn)
	if !refusedBySQLite(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("committing to the database: %w", err)
}

// discard makes the pool close a connection instead of using it again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// protect runs fn and converts a panic into an error, so that the panic does not crash the server. It also
// returns the error of a method without an error result, and of a failed statement that fn has ignored:
// after one, PostgreSQL accepts no other in the transaction.
func protect(tx *Tx, fn func(*Tx) error) error {
	return guard.Run(func() error {
		err := fn(tx)
		if err = cmp.Or(tx.err, err); err == nil && tx.broken != nil {
			err = fmt.Errorf("a statement of the transaction has failed: %w", tx.broken)
		}
		return err
	})
}
