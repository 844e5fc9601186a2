package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// maxGroup is the maximum number of writes that share a commit. It limits the time that the first
// write waits for the last.
const maxGroup = 128

// writeQueue holds the writes that wait for a writer. A writer collects all waiting writes, runs them
// one after another in one transaction, commits, and then reports the results. The writes thus share
// the cost of one sync to disk.
type writeQueue struct {
	// mu prevents requests from being closed during a send.
	mu       sync.RWMutex
	closed   bool
	requests chan *writeRequest
	done     chan struct{} // closed when the last write has ended
}

type writeRequest struct {
	ctx    context.Context
	fn     func(*Tx) error
	ahead  []func(*Tx) // reads to make at the begin of the transaction
	claim  atomic.Bool // set by the writer when it runs the request, or by a caller that stops waiting
	result chan error  // capacity 1
	tx     *Tx         // transaction of the last run
	err    error
}

func newWriteQueue() writeQueue {
	return writeQueue{requests: make(chan *writeRequest, maxGroup), done: make(chan struct{})}
}

func (w *writeQueue) do(ctx context.Context, fn func(*Tx) error, ahead []func(*Tx)) error {
	req := &writeRequest{ctx: ctx, fn: fn, ahead: ahead, result: make(chan error, 1)}
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

func (w *writeQueue) enqueue(ctx context.Context, req *writeRequest) error {
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

// close rejects new writes, and waits for the accepted ones. It reports whether it was the first call.
func (w *writeQueue) close() bool {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	if first {
		close(w.requests)
	}
	w.mu.Unlock()
	<-w.done
	return first
}

// gather adds waiting writes to a group, up to maxGroup.
func (w *writeQueue) gather(group []*writeRequest) []*writeRequest {
	for len(group) < maxGroup {
		select {
		case next, ok := <-w.requests:
			if !ok {
				return group
			}
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

// begun claims the writes of a group whose callers still wait, and returns them.
func begun(group []*writeRequest) []*writeRequest {
	live := group[:0]
	for _, req := range group {
		if req.claim.CompareAndSwap(false, true) {
			live = append(live, req)
		}
	}
	return live
}

// report tells the callers of a group the results. A groupErr means that no write took effect, unless it
// is [ErrUnknown]. It replaces the writes' own errors, because these can follow from what another write
// of the group had changed.
func (db *DB) report(group []*writeRequest, groupErr error) {
	if errors.Is(groupErr, ErrUnknown) {
		db.bus.missed() // the writes may have had something to tell
	}
	for _, req := range group {
		err := cmp.Or(groupErr, req.err)
		if err == nil {
			req.tx.afterCommit()
		}
		req.result <- err
	}
}

// writer owns the only connection that writes to a SQLite database. It runs each write inside a
// savepoint.
type writer struct {
	writeQueue
	db   *DB
	conn *sql.DB
	// session is the connection and its prepared statements. It is nil before it is opened and
	// after a failure. Only the writer's goroutine uses it.
	session *prepared
}

func newWriter(db *DB, conn *sql.DB) *writer {
	w := &writer{writeQueue: newWriteQueue(), db: db, conn: conn}
	go w.loop()
	return w
}

func (w *writer) close() error {
	if !w.writeQueue.close() {
		return nil
	}
	return w.conn.Close()
}

func (w *writer) loop() {
	defer close(w.done)
	defer func() {
		if w.session != nil {
			w.session.close()
		}
	}()
	for first := range w.requests {
		if live := begun(w.gather([]*writeRequest{first})); len(live) > 0 {
			w.db.report(live, w.transaction(live))
		}
	}
}

func (w *writer) begin(ctx context.Context) (*sql.Tx, error) {
	if w.session == nil {
		session, err := newPrepared(ctx, w.conn)
		if err != nil {
			return nil, err
		}
		w.session = session
	}
	t, err := w.session.conn.BeginTx(ctx, nil)
	if err != nil {
		w.replace()
	}
	return t, err
}

// replace closes the connection. The next write opens another.
func (w *writer) replace() {
	w.session.forget()                                                   // the driver keeps a connection open that has statements
	_ = w.session.conn.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	w.session.close()
	w.session = nil
}

// transaction runs the writes and commits. If it returns an error, none of the writes took effect,
// unless the error is [ErrUnknown].
func (w *writer) transaction(group []*writeRequest) error {
	ctx := context.Background()
	t, err := w.begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	wrote := false
	checked := memo{}
	for _, req := range group {
		if _, err := w.session.ExecContext(ctx, "SAVEPOINT one"); err != nil {
			return fmt.Errorf("setting a savepoint: %w", err)
		}
		req.tx = &Tx{ctx: ctx, q: w.session, engine: sqliteEngine, db: w.db, memo: checked}
		req.err = protect(req.tx, req.fn)
		end := "RELEASE one"
		if req.err != nil {
			end = "ROLLBACK TO one"
		} else {
			wrote = true
		}
		if _, err := w.session.ExecContext(ctx, end); err != nil {
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
	w.replace()
	if !refusedBySQLite(err) {
		err = fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return fmt.Errorf("committing to the database: %w", err)
}

// protect runs fn and converts a panic into an error, so that the panic does not crash the server.
func protect(tx *Tx, fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a database transaction panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(tx)
}
