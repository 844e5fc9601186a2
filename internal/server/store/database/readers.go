package database

import (
	"context"
	"database/sql"
	"fmt"
)

type readers struct {
	pool *sql.DB
	free chan *prepared // a nil entry is a connection that is not open yet
}

func newReaders(pool *sql.DB, n int) *readers {
	r := &readers{pool: pool, free: make(chan *prepared, n)}
	for range n {
		r.free <- nil
	}
	return r
}

// read runs fn in a transaction on one snapshot of the database. The driver does not support
// read-only transactions, so the connections are opened with the pragma query_only.
func (r *readers) read(ctx context.Context, db *DB, fn func(*Tx) error) error {
	var p *prepared
	select {
	case p = <-r.free:
	case <-ctx.Done():
		return fmt.Errorf("waiting to read the database: %w", ctx.Err())
	}
	// After any failure, including a panic in fn, the connection is discarded, because its state is
	// unknown.
	sound := false
	defer func() {
		if !sound && p != nil {
			p.close()
			p = nil
		}
		r.free <- p
	}()
	if p == nil {
		var err error
		if p, err = newPrepared(ctx, r.pool); err != nil {
			return fmt.Errorf("opening the database for reading: %w", err)
		}
	}
	t, err := p.conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("starting a read transaction: %w", err)
	}
	err = fn(&Tx{ctx: ctx, q: p, engine: sqliteEngine, db: db})
	sound = t.Rollback() == nil && ctx.Err() == nil
	return err
}

func (r *readers) close() {
	for range cap(r.free) {
		select {
		case p := <-r.free:
			if p != nil {
				p.close()
			}
		default:
		}
	}
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
