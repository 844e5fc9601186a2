package database

import (
	"context"
	"database/sql"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// maxGroup is the maximum number of writes that share a commit. It limits the time that the first
// write waits for the last.
const maxGroup = 128

// writer owns the only connection that writes to a SQLite database. Its goroutine collects all
// waiting writes, runs each inside a savepoint of one transaction, commits, and then reports the
// results. The writes thus share the cost of one sync to disk.
type writer struct {
	db   *DB
	conn *sql.DB
	// session is the connection and its prepared statements. It is nil before it is opened and
	// after a failure. Only the writer's goroutine uses it.
	session *prepared

	// mu prevents requests from being closed during a send.
	mu       sync.RWMutex
	closed   bool
	requests chan *writeRequest
	done     chan struct{}
}

type writeRequest struct {
	fn     func(*Tx) error
	claim  atomic.Bool // set by the writer when it runs the request, or by a caller that stops waiting
	result chan error  // capacity 1
	tx     *Tx         // transaction of the last run
	err    error
}

func newWriter(db *DB, conn *sql.DB) *writer {
	w := &writer{db: db, conn: conn, requests: make(chan *writeRequest, maxGroup), done: make(chan struct{})}
	go w.loop()
	return w
}

func (w *writer) do(ctx context.Context, fn func(*Tx) error) error {
	req := &writeRequest{fn: fn, result: make(chan error, 1)}
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

func (w *writer) enqueue(ctx context.Context, req *writeRequest) error {
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

func (w *writer) close() error {
	w.mu.Lock()
	already := w.closed
	w.closed = true
	if !already {
		close(w.requests)
	}
	w.mu.Unlock()
	<-w.done
	if already {
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
		group := []*writeRequest{first}
	gather:
		for len(group) < maxGroup {
			select {
			case next, ok := <-w.requests:
				if !ok {
					break gather
				}
				group = append(group, next)
			default:
				break gather
			}
		}
		w.run(group)
	}
}

func (w *writer) run(group []*writeRequest) {
	live := group[:0]
	for _, req := range group {
		if req.claim.CompareAndSwap(false, true) {
			live = append(live, req)
		}
	}
	if len(live) == 0 {
		return
	}
	groupErr := w.transaction(live)
	for _, req := range live {
		err := req.err
		if groupErr != nil && err == nil {
			err = groupErr
		}
		if err == nil {
			req.tx.afterCommit()
		}
		req.result <- err
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
		w.session.close()
		w.session = nil
	}
	return t, err
}

// transaction runs the writes and commits. If it returns an error, none of the writes took effect.
func (w *writer) transaction(group []*writeRequest) error {
	ctx := context.Background()
	t, err := w.begin(ctx)
	if err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	wrote := false
	for _, req := range group {
		if _, err := w.session.ExecContext(ctx, "SAVEPOINT one"); err != nil {
			return fmt.Errorf("setting a savepoint: %w", err)
		}
		req.tx = &Tx{ctx: ctx, q: w.session, engine: sqliteEngine, db: w.db}
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
	if err := t.Commit(); err != nil {
		return fmt.Errorf("committing to the database: %w", err)
	}
	return nil
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
