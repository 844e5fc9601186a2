// Package database runs transactions on SQLite or PostgreSQL and maps rows to structs. Package
// store defines the schema and the queries.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store/blob"
)

// Options are the options of [Open].
type Options struct {
	// Migrations contains the schema's goose migrations. It is required.
	Migrations fs.FS
	// Steps are further migrations, by version.
	Steps map[int64]Step
	// Existing makes [Open] return an error instead of creating or updating the schema.
	Existing bool
	// Log receives warnings. It is required.
	Log *logrus.Entry
	// BlobDir is the directory for blobs with SQLite, created with mode 0700. PostgreSQL ignores
	// it.
	BlobDir string
	// ReadConns is the maximum number of connections: with SQLite the read connections (default 8),
	// with PostgreSQL all connections (default 24).
	ReadConns int
	// Clock is the clock to use. The default is this machine's clock.
	Clock Clock
	// Timeouts bound the waits for PostgreSQL. The zero values stand for the defaults.
	Timeouts Timeouts
}

// Step is a migration in Go.
type Step func(ctx context.Context, tx *sql.Tx) error

// Timeouts bound the waits for PostgreSQL.
type Timeouts struct {
	Write   time.Duration // of a transaction (default 30 s)
	Outcome time.Duration // of the question whether a transaction was committed (default 5 s)
	Answer  time.Duration // in which the database sends the next part of an answer, also to reads (default 1 min)
}

func (o Options) clock() Clock {
	if o.Clock != nil {
		return o.Clock
	}
	return machineClock{}
}

// DB is an open database. Its methods may be called concurrently.
type DB struct {
	engine  engine
	pool    *sql.DB      // read connections; with PostgreSQL also write connections
	writer  *writer      // SQLite only
	readers *readers     // SQLite only
	groups  *groupWriter // PostgreSQL only
	blobs   blob.Store
	bus     *bus
	clock   Clock
	dirs    []string
}

type engine string

const (
	sqliteEngine   engine = "sqlite"
	postgresEngine engine = "postgres"
)

// Open connects to a database, "sqlite:PATH" or "postgres://…", and migrates its schema to the
// current version.
func Open(ctx context.Context, dsn string, opts Options) (*DB, error) {
	switch {
	case strings.HasPrefix(dsn, "sqlite:"):
		return openSQLite(ctx, strings.TrimPrefix(dsn, "sqlite:"), opts)
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		return openPostgres(ctx, dsn, opts)
	default:
		// The address can contain a password, so the error omits it.
		return nil, errors.New(`the database address must be "sqlite:PATH" or "postgres://USER@HOST/NAME"`)
	}
}

// Close waits until accepted writes have finished and closes the database.
func (db *DB) Close() error {
	db.bus.close()
	var err error
	if db.writer != nil {
		err = db.writer.close()
	}
	if db.readers != nil {
		db.readers.close()
	}
	if db.groups != nil {
		err = errors.Join(err, db.groups.close())
	}
	if err := errors.Join(err, db.pool.Close()); err != nil {
		return fmt.Errorf("closing the database: %w", err)
	}
	return nil
}

// Ping returns an error if the database does not respond.
func (db *DB) Ping(ctx context.Context) error {
	if err := db.pool.PingContext(ctx); err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	return nil
}

// Blobs returns the database's blob store.
func (db *DB) Blobs() blob.Store { return db.blobs }

// Dirs returns the directories that contain the data, or none with PostgreSQL.
func (db *DB) Dirs() []string { return db.dirs }

// Shared reports whether several server processes can use this database concurrently.
func (db *DB) Shared() bool { return db.engine == postgresEngine }

// Read runs fn in a read-only transaction on one snapshot of the database.
func (db *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	if db.readers != nil {
		return db.readers.read(ctx, db, fn, false)
	}
	t, err := begin(ctx, db.pool, beginRead, nil)
	if err != nil {
		return fmt.Errorf("starting a read transaction: %w", err)
	}
	defer t.end(ctx)
	tx := &Tx{ctx: ctx, q: t.conn, engine: db.engine, db: db, now: t.now()}
	err = fn(tx)
	return cmp.Or(tx.err, err)
}

// ReadOne is like [DB.Read], but fn must run only one statement and must not call [Tx.Now]. Such a
// read needs no transaction, which would begin and end with further statements.
func (db *DB) ReadOne(ctx context.Context, fn func(*Tx) error) error {
	if db.readers != nil {
		return db.readers.read(ctx, db, fn, true)
	}
	return fn(&Tx{ctx: ctx, q: &single{pool: db.pool}, engine: db.engine, db: db})
}

// single runs one statement without a transaction.
type single struct {
	pool *sql.DB
	used bool
}

var errSingle = errors.New("a read of one statement has run another statement")

// ExecContext implements querier.
func (*single) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errSingle
}

// QueryContext implements querier.
func (s *single) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s.used {
		return nil, errSingle
	}
	s.used = true
	return s.pool.QueryContext(ctx, query, args...)
}

// Write runs fn in a transaction, together with other waiting writes. When Write returns nil, the
// change is durable. fn might run more than once, so its only side effects must be database changes
// and variables that it reassigns on every run. fn must not call Write. If fn returns an error, its
// writes are rolled back and Write returns the error unchanged. If ctx is canceled before fn starts, fn
// does not run. A started write is never interrupted. After [ErrUnknown], the change may have been made,
// or may still be made. After every other error, it is not made.
//
// With PostgreSQL, the reads that ahead makes are sent together at the begin of the transaction, with
// those of the other writes. fn then makes the same reads without a round trip. ahead must not change
// anything, receives no rows, and must not depend on the time. Without savepoints between the writes,
// fn's queued statements are also sent with those of the other writes; see [Tx.Later].
func (db *DB) Write(ctx context.Context, fn func(*Tx) error, ahead ...func(*Tx)) error {
	if db.writer != nil {
		return db.writer.do(ctx, fn, nil)
	}
	return db.groups.do(ctx, fn, ahead)
}

// Tx is a transaction. It is valid only in the function to which it is passed, and only in one
// goroutine. Statements name their arguments $1, $2, …; see [Table] for the stored forms of
// arguments.
type Tx struct {
	ctx       context.Context
	q         querier
	engine    engine
	db        *DB
	committed []func()
	now       time.Time // the database's time after its first use
	err       error     // error of a method without an error result; it fails the transaction
	memo      memo      // nil in a read

	// The following fields are for writes on PostgreSQL.

	asks    *questions // records queries instead of running them, if not nil
	group   *groupTx
	queued  bool     // fn has called [Tx.Later]
	mark    int      // number of the group's queued statements that are not fn's
	wrote   bool     // a statement of fn might have changed rows
	broken  error    // error of a statement, after which PostgreSQL accepts no more in the transaction
	notices []string // payloads of [Tx.Notify]
}

// memo is what the writes that share a transaction have already checked, by name.
type memo map[string]bool

// Checked reports whether a write in the same transaction has called check with the same name. The
// fact that a name stands for must not depend on changes that the write made, because these can be
// rolled back without the other writes.
func (tx *Tx) Checked(name string) bool { return tx.memo[name] }

// Check makes [Tx.Checked] true for later writes in this transaction.
func (tx *Tx) Check(name string) {
	if tx.memo != nil {
		tx.memo[name] = true
	}
}

// OnCommit calls fn after the transaction has committed.
func (tx *Tx) OnCommit(fn func()) { tx.committed = append(tx.committed, fn) }

func (tx *Tx) afterCommit() {
	for _, fn := range tx.committed {
		fn()
	}
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Exec runs a statement and returns the number of changed rows. It returns [ErrConflict] if the
// statement violates a unique key.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	if tx.group != nil {
		tx.group.answers.forgetFor(query)
	}
	return tx.exec(query, args)
}

// execOn is [Tx.Exec] for a statement that changes only rows of a table with one of the pins.
func (tx *Tx) execOn(table string, pins []string, query string, args []any) (int64, error) {
	if tx.group != nil {
		tx.group.answers.forget(table, pins...)
	}
	return tx.exec(query, args)
}

func (tx *Tx) exec(query string, args []any) (int64, error) {
	if err := tx.flush(); err != nil {
		return 0, err
	}
	tx.wrote = true
	res, err := tx.q.ExecContext(tx.ctx, query, encode(args)...)
	if err != nil {
		tx.broken = cmp.Or(tx.broken, err)
		return 0, translate(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("counting changed rows: %w", err)
	}
	return n, nil
}

// ExecOne is like [Tx.Exec], but it returns [ErrNotFound] if the statement changes no row.
func (tx *Tx) ExecOne(query string, args ...any) error {
	n, err := tx.Exec(query, args...)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	return err
}

// Scan is a function that reads the columns of a row.
type Scan func(dest ...any) error

// Collect runs a query and returns its rows, each read with read.
func Collect[T any](tx *Tx, read func(Scan) (T, error), query string, args ...any) ([]T, error) {
	return collect(tx, pin{}, read, query, args)
}

// collect is [Collect] with a pin; see [Table.OneOf].
func collect[T any](tx *Tx, of pin, read func(Scan) (T, error), query string, args []any) (out []T, err error) {
	args = encode(args)
	if tx.asks != nil {
		tx.asks.add(query, args, of)
		return nil, nil
	}
	if tx.group != nil {
		if known, ok := tx.group.answers.find(query, args); ok {
			for _, row := range known {
				v, err := read(scanRow(row))
				if err != nil {
					return nil, fmt.Errorf("reading a row: %w", err)
				}
				out = append(out, v)
			}
			return out, nil
		}
	}
	if err := tx.flush(); err != nil {
		return nil, err
	}
	rows, err := tx.q.QueryContext(tx.ctx, query, args...)
	if err != nil {
		tx.broken = cmp.Or(tx.broken, err)
		return nil, translate(err)
	}
	defer rows.Close()
	for rows.Next() {
		v, err := read(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("reading a row: %w", err)
		}
		out = append(out, v)
	}
	if err := rows.Err(); err != nil {
		tx.broken = cmp.Or(tx.broken, err)
		return out, translate(err)
	}
	return out, nil
}

// One returns the first row of a query, or [ErrNotFound].
func One[T any](tx *Tx, read func(Scan) (T, error), query string, args ...any) (v T, err error) {
	return one(tx, pin{}, read, query, args)
}

func one[T any](tx *Tx, of pin, read func(Scan) (T, error), query string, args []any) (v T, err error) {
	all, err := collect(tx, of, read, query, args)
	switch {
	case err != nil:
		return v, err
	case len(all) == 0:
		return v, ErrNotFound
	}
	return all[0], nil
}

func scanScalar[T any](scan Scan) (v T, err error) {
	err = scan(&v)
	return v, err
}

// Scalars returns the values of a query's only column.
func Scalars[T any](tx *Tx, query string, args ...any) ([]T, error) {
	return Collect(tx, scanScalar[T], query, args...)
}

// Scalar returns the only column of a query's first row, or [ErrNotFound].
func Scalar[T any](tx *Tx, query string, args ...any) (T, error) {
	return One(tx, scanScalar[T], query, args...)
}

// ScalarOf is like [Scalar], with a pin of a table as in [Table.OneOf].
func ScalarOf[T any](tx *Tx, table, value, query string, args ...any) (T, error) {
	return one(tx, pin{table, value}, scanScalar[T], query, args)
}

// Pairs returns a map from the first column of a query's rows to the second.
func Pairs[K comparable, V any](tx *Tx, query string, args ...any) (map[K]V, error) {
	out := map[K]V{}
	_, err := Collect(tx, func(scan Scan) (_ struct{}, err error) {
		var k K
		var v V
		err = scan(&k, &v)
		out[k] = v
		return struct{}{}, err
	}, query, args...)
	return out, err
}
