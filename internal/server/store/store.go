// Package store keeps the control plane's data, in SQLite by default and in PostgreSQL where
// several servers share one database. It is the only package that uses SQL: a [DB] provides
// transactions ([Tx]), whose methods, one file per domain, read and write rows.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store/blob"
)

var (
	// ErrNotFound reports that no row or blob matches.
	ErrNotFound = blob.ErrNotFound
	// ErrConflict reports that a row with the same unique key exists, or that a guarded change
	// found the row in an unexpected state.
	ErrConflict = errors.New("conflict")
	// ErrInvalid reports a value that the database cannot hold, such as a text with NUL
	// or a number out of range.
	ErrInvalid = errors.New("a value that the database cannot hold")
	// ErrClosed reports that the database is closed.
	ErrClosed = errors.New("the database is closed")
)

// Options of [Open].
type Options struct {
	// Log is required.
	Log *logrus.Entry
	// BlobDir is SQLite's directory for blobs, created with mode 0700. PostgreSQL ignores it.
	BlobDir string
	// ReadConns bounds SQLite's reading connections (default 8) or all of PostgreSQL's (24).
	ReadConns int
	// Clock defaults to this machine's clock.
	Clock Clock
}

func (o Options) clock() Clock {
	if o.Clock != nil {
		return o.Clock
	}
	return machineClock{}
}

// DB is an open database. Its methods may be called concurrently.
type DB struct {
	engine   engine
	pool     *sql.DB  // reads; with PostgreSQL also writes
	writer   *writer  // SQLite only
	readers  *readers // SQLite only
	blobs    blob.Store
	bus      *bus
	log      *logrus.Entry
	clock    Clock
	writable writable
}

type engine string

const (
	sqliteEngine   engine = "sqlite"
	postgresEngine engine = "postgres"
)

// Open connects to a database, "sqlite:PATH" or "postgres://…", and updates its schema.
func Open(ctx context.Context, dsn string, opts Options) (*DB, error) {
	switch {
	case strings.HasPrefix(dsn, "sqlite:"):
		return openSQLite(ctx, strings.TrimPrefix(dsn, "sqlite:"), opts)
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		return openPostgres(ctx, dsn, opts)
	default:
		// The value may hold a password, so the error omits it.
		return nil, errors.New(`the database must be given as "sqlite:PATH" or "postgres://USER@HOST/NAME"`)
	}
}

// Close waits for accepted writes and closes the database.
func (db *DB) Close() error {
	db.bus.close()
	var err error
	if db.writer != nil {
		err = db.writer.close()
	}
	if db.readers != nil {
		db.readers.close()
	}
	if err := errors.Join(err, db.pool.Close()); err != nil {
		return fmt.Errorf("closing the database: %w", err)
	}
	return nil
}

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.PingContext(ctx); err != nil {
		return fmt.Errorf("asking the database: %w", err)
	}
	return nil
}

// Blobs returns this database's store of large byte strings.
func (db *DB) Blobs() blob.Store { return db.blobs }

// Shared reports whether other server processes may use this database concurrently.
func (db *DB) Shared() bool { return db.engine == postgresEngine }

// Read runs fn in a read-only transaction that sees one state of the database.
func (db *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if db.readers != nil {
		return db.readers.read(ctx, db, fn)
	}
	t, err := db.pool.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("beginning to read the database: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // nothing was written
	tx := &Tx{ctx: ctx, q: t, engine: db.engine, db: db}
	err = fn(tx)
	if tx.err != nil {
		return tx.err
	}
	return err
}

// Write runs fn in a transaction; when Write returns nil, the change is on disk. fn may run more
// than once, so it must change nothing but the database and variables that it assigns anew on every
// run. An error of fn rolls back its writes and is returned unchanged. If ctx ends before fn
// starts, fn does not run; a started write is never interrupted.
func (db *DB) Write(ctx context.Context, fn func(*Tx) error) error {
	if db.writer != nil {
		return db.writer.do(ctx, fn)
	}
	return db.writePostgres(ctx, fn)
}

const perPiece = 500

// WriteInPieces repeats a change of many rows, each time in its own transaction so that other
// writers can run in between, until it changes fewer rows than its limit.
func (db *DB) WriteInPieces(ctx context.Context, change func(tx *Tx, limit int) (int64, error)) error {
	for n := int64(perPiece); n >= perPiece; {
		err := db.Write(ctx, func(tx *Tx) (err error) {
			n, err = change(tx, perPiece)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Tx is a transaction. It is valid only inside the function it is passed to, in one goroutine.
type Tx struct {
	ctx        context.Context
	q          querier
	engine     engine
	db         *DB
	notes      []note
	now        time.Time     // the database's time, once read
	err        error         // of reading the time; the transaction fails with it
	away, step time.Duration // by how much [Tx.LeaseTime] shifted stored times
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// exec runs a statement and returns the changed rows; a violated unique key is [ErrConflict].
func (tx *Tx) exec(query string, args ...any) (int64, error) {
	res, err := tx.q.ExecContext(tx.ctx, query, args...)
	if err != nil {
		return 0, translate(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("counting changed rows: %w", err)
	}
	return n, nil
}

// execOne is exec for a statement that must change a row, else it returns [ErrNotFound].
func (tx *Tx) execOne(query string, args ...any) error {
	n, err := tx.exec(query, args...)
	if err != nil {
		return err
	}
	if n == 0 {
		return ErrNotFound
	}
	return nil
}

// queryOne scans the first row of a query into dest, or returns [ErrNotFound].
func (tx *Tx) queryOne(query string, args []any, dest ...any) error {
	rows, err := tx.q.QueryContext(tx.ctx, query, args...)
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return translate(err)
		}
		return ErrNotFound
	}
	if err := rows.Scan(dest...); err != nil {
		return fmt.Errorf("reading a row: %w", err)
	}
	return translate(rows.Err())
}

type scanFunc func(dest ...any) error

func (tx *Tx) queryEach(query string, args []any, each func(scan scanFunc) error) error {
	rows, err := tx.q.QueryContext(tx.ctx, query, args...)
	if err != nil {
		return translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return translate(rows.Err())
}

func collect[T any](tx *Tx, read func(scanFunc) (T, error), query string, args ...any) ([]T, error) {
	var out []T
	err := tx.queryEach(query, args, func(scan scanFunc) error {
		v, err := read(scan)
		if err != nil {
			return err
		}
		out = append(out, v)
		return nil
	})
	return out, err
}

// one returns what read makes of a query's first row, or [ErrNotFound].
func one[T any](tx *Tx, read func(scanFunc) (T, error), query string, args ...any) (T, error) {
	all, err := collect(tx, read, query, args...)
	if err != nil || len(all) == 0 {
		var zero T
		if err == nil {
			err = ErrNotFound
		}
		return zero, err
	}
	return all[0], nil
}

// micros is the stored form of a time: microseconds since 1970, 0 for no time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
