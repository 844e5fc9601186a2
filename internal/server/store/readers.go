package store

import (
	"context"
	"database/sql"
	"fmt"
)

// readers are the connections that read from a SQLite database, each with its
// compiled statements.
type readers struct {
	pool *sql.DB
	free chan *prepared // nil entries are connections that are not open yet
}

func newReaders(pool *sql.DB, n int) *readers {
	r := &readers{pool: pool, free: make(chan *prepared, n)}
	for range n {
		r.free <- nil
	}
	return r
}

// read runs fn in a transaction that sees one state of the database. The
// driver knows no read-only transactions; the connections are opened with
// query_only instead.
func (r *readers) read(ctx context.Context, db *DB, fn func(*Tx) error) error {
	var p *prepared
	select {
	case p = <-r.free:
	case <-ctx.Done():
		return fmt.Errorf("waiting to read the database: %w", ctx.Err())
	}
	// Whatever goes wrong, a panic of fn included, costs the connection, which
	// is cheap; one in an unknown state would not be.
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
			return fmt.Errorf("opening the database to read: %w", err)
		}
	}
	t, err := p.conn.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning to read the database: %w", err)
	}
	err = fn(&Tx{ctx: ctx, q: p, engine: sqliteEngine, db: db})
	sound = t.Rollback() == nil && ctx.Err() == nil
	return err
}

// close closes the idle connections. The others end with the
// pool.
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
