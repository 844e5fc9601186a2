package store

import (
	"context"
	"database/sql"
)

// maxPrepared bounds the statements that are kept. The program has fewer texts; only lists of varying length could exceed it.
const maxPrepared = 500

// prepared runs statements on one connection and keeps them compiled: parsing
// costs SQLite as much as running what is typical here. It is used by one
// goroutine, and rows of a statement are read to their end before the
// statement is run again.
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

// close gives the connection back.
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

// ExecContext runs a statement within the connection's transaction.
func (p *prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time; forget closes it
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// QueryContext runs a query within the connection's transaction.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := p.stmt(ctx, query) //nolint:sqlclosecheck // kept for the next time; forget closes it
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}
