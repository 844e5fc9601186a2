package database

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

// readers run reads in separate goroutines: SQLite needs large stacks, which the many goroutines
// that hold requests would keep.
type readers struct {
	pool     *sql.DB
	requests chan readRequest
	closing  chan struct{}
	stop     sync.Once
	wg       sync.WaitGroup
}

type readRequest struct {
	ctx    context.Context
	db     *DB
	fn     func(*Tx) error
	single bool       // fn runs one statement, which needs no transaction
	result chan error // capacity 1
}

func newReaders(pool *sql.DB, n int) *readers {
	r := &readers{pool: pool, requests: make(chan readRequest), closing: make(chan struct{})}
	for range n {
		r.wg.Go(r.loop)
	}
	return r
}

// read runs fn on one snapshot of the database: in a transaction, unless fn runs a single statement.
func (r *readers) read(ctx context.Context, db *DB, fn func(*Tx) error, single bool) error {
	req := readRequest{ctx, db, fn, single, make(chan error, 1)}
	select {
	case r.requests <- req:
		return <-req.result
	case <-ctx.Done():
		return fmt.Errorf("waiting to read the database: %w", ctx.Err())
	case <-r.closing:
		return ErrClosed
	}
}

// loop serves reads on one connection, which it opens for the first read.
func (r *readers) loop() {
	var p *prepared
	defer func() {
		if p != nil {
			p.close()
		}
	}()
	for {
		select {
		case req := <-r.requests:
			var err error
			p, err = r.run(p, req)
			req.result <- err
		case <-r.closing:
			return
		}
	}
}

// run serves a read. It returns the connection for the next read, or nil after a failure, because
// the connection's state is then unknown. The driver does not support read-only transactions, so the
// connections are opened with the pragma query_only.
func (r *readers) run(p *prepared, req readRequest) (*prepared, error) {
	if p == nil {
		var err error
		if p, err = newPrepared(req.ctx, r.pool); err != nil {
			return nil, fmt.Errorf("opening the database for reading: %w", err)
		}
	}
	end := func() error { return nil }
	if !req.single {
		t, err := p.conn.BeginTx(req.ctx, nil)
		if err != nil {
			p.close()
			return nil, fmt.Errorf("starting a read transaction: %w", err)
		}
		end = t.Rollback
	}
	err := protect(&Tx{ctx: req.ctx, q: p, engine: sqliteEngine, db: req.db}, req.fn)
	if end() != nil || req.ctx.Err() != nil {
		p.close()
		p = nil
	}
	return p, err
}

func (r *readers) close() {
	r.stop.Do(func() { close(r.closing) })
	r.wg.Wait()
}

// maxPrepared bounds the number of a connection's prepared statements. Only queries with lists of
// varying length can exceed it.
const maxPrepared = 500

// prepared caches the prepared statements of a connection, because SQLite takes as long to parse a
// typical statement as to run it. Only one goroutine may use prepared, and it must read all rows of
// a statement before running that statement again.
type prepared struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func newPrepared(ctx context.Context, db *sql.DB) (*prepared, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &prepared{conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (p *prepared) close() {
	p.forget()
	_ = p.conn.Close()
}

func (p *prepared) forget() {
	for _, stmt := range p.stmts {
		_ = stmt.Close()
	}
	clear(p.stmts)
}

func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := p.stmts[query]; stmt != nil {
		return stmt, nil
	}
	if len(p.stmts) >= maxPrepared {
		p.forget()
	}
	stmt, err := p.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.stmts[query] = stmt
	return stmt, nil
}

func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := p.stmt(ctx, query) //nolint:sqlclosecheck // forget closes the cached statement
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := p.stmt(ctx, query) //nolint:sqlclosecheck // forget closes the cached statement
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}
