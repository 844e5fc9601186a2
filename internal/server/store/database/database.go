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
	"golang.org/x/sync/semaphore"

	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/server/store/scope"
)

// Options are the options of [Open].
type Options struct {
	// Migrations contains the schema's goose migrations. It is required.
	Migrations fs.FS
	// Steps are further migrations, by version.
	Steps map[int64]Step
	// Existing makes [Open] return an error instead of creating or updating the schema.
	Existing bool
	// BeforeUpdate, unless nil, is called before the schema of an existing database is updated, with that database. If it
	// returns an error, the schema stays as it is. Of several servers that start together, only one calls it.
	BeforeUpdate func(ctx context.Context, db *DB) error
	// Log receives warnings. It is required.
	Log *logrus.Entry
	// BlobDir is the directory for blobs with SQLite, created with mode 0700. PostgreSQL ignores
	// it.
	BlobDir string
	// MaxConns is the maximum number of connections: with SQLite the read connections (default 8),
	// with PostgreSQL those for transactions (default 22); see [ConnsOf].
	MaxConns int
	// Clock is the clock to use. The default is this machine's clock.
	Clock Clock
	// Timeouts bound the waits for PostgreSQL. The zero values stand for the defaults.
	Timeouts Timeouts
	// Owners are the queries that find the organizations of owners.
	Owners Owners
	// Before, unless nil, is called before each statement of a write on PostgreSQL, also BEGIN and COMMIT.
	// Tests use it to stop a write between two statements.
	Before func(statement string)

	asIs bool // neither compares nor updates the schema
}

// Step is a migration in Go. Several servers can share the database if shared is true.
type Step func(ctx context.Context, tx *sql.Tx, shared bool) error

// Timeouts bound the waits for PostgreSQL. A write takes at most Write until it sends COMMIT, which includes
// its waits for other writes and for a connection, and its repetitions. It then waits at most Answer for the
// answer to COMMIT, and, without one, Outcome.
type Timeouts struct {
	Write   time.Duration // (default 30 s)
	Lock    time.Duration // for each lock that a write of another server holds (default 15 s)
	Idle    time.Duration // after which the database ends a write whose server sends nothing (default 10 s)
	Answer  time.Duration // in which the database sends the next part of an answer, also to reads (default 1 min)
	Outcome time.Duration // of the question whether a transaction was committed (default 5 s)
	Older   time.Duration // of a migration for servers of earlier versions, which must stop (default 15 s)
}

func (o Options) clock() Clock {
	if o.Clock != nil {
		return o.Clock
	}
	return machineClock{}
}

// DB is an open database. Its methods may be called concurrently.
type DB struct {
	engine engine
	known  versions            // of the migrations that this program contains
	pool   *sql.DB             // with SQLite for reads only
	long   *semaphore.Weighted // a part of the pool's connections; see [DB.ReadLong]
	blobs  blob.Store
	bus    *bus
	clock  Clock
	owners Owners
	dirs   []string
	file   string // of SQLite

	sqlite *sqliteWriter // nil with PostgreSQL

	// The following fields are nil with SQLite.

	postgres *postgresWriter
	notices  *notices
	session  *session
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
	if db.sqlite != nil {
		err = db.sqlite.close()
	} else {
		db.postgres.close()
		db.notices.close()
		db.session.close()
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

// Shared is [DB.Shared].
func (tx *Tx) Shared() bool { return tx.db.Shared() }

// Read runs fn in a read-only transaction on one snapshot of the database.
func (db *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	tx := &Tx{ctx: ctx, db: db}
	if db.Shared() {
		t, err := beginRead(ctx, db.pool)
		if err != nil {
			return fmt.Errorf("starting a read transaction: %w", err)
		}
		defer t.end(ctx)
		tx.q, tx.now = t.conn, t.now()
	} else {
		// The driver does not support read-only transactions, so the connections have the pragma query_only.
		t, err := db.pool.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("starting a read transaction: %w", err)
		}
		defer t.Rollback() //nolint:errcheck // nothing has changed
		tx.q = t
	}
	err := fn(tx)
	return cmp.Or(tx.err, err)
}

// ReadLong is like [DB.Read], for reads of rows whose number users determine. Half of the connections remain for other
// reads, so that one user who repeats long ones delays no others by seconds.
func (db *DB) ReadLong(ctx context.Context, fn func(*Tx) error) error {
	if err := db.long.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for other long reads of the database: %w", err)
	}
	defer db.long.Release(1)
	return db.Read(ctx, fn)
}

// longReads returns the limit of [DB.ReadLong] for a number of connections.
func longReads(conns int) *semaphore.Weighted { return semaphore.NewWeighted(int64(max(1, conns/2))) }

// ReadOne is like [DB.Read], but fn must run only one statement and must not call [Tx.Now]. Such a
// read needs no transaction, which would begin and end with further statements.
func (db *DB) ReadOne(ctx context.Context, fn func(*Tx) error) error {
	return fn(&Tx{ctx: ctx, q: &single{pool: db.pool}, db: db})
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

// Write runs fn in a transaction. scopes names all owners of the rows that fn changes or depends on; writes
// with a common scope run one after another. Write returns [ErrMoved] if an owner has moved to another
// organization than scopes says, [ErrDeleted] if its organization is deleted, unless only its remains matter, and
// [ErrNotFound] if a known one is missing. When Write returns nil, the
// change is durable. fn might run more than once, so its only side effects must be database changes and
// variables that it reassigns on every run. fn must not call Write, Read or a blob, and must not wait for anything else. If fn returns an
// error, its writes are rolled back and Write returns the error. If ctx is canceled before fn starts, fn
// does not run. A started write is never interrupted. After [ErrUnknown], the change may have been made, or
// may still be made. After every other error, it is not made.
func (db *DB) Write(ctx context.Context, scopes scope.Set, fn func(*Tx) error) error {
	if db.sqlite != nil { // all writes run one after another
		return db.sqlite.write(ctx, func(tx *Tx) error {
			if err := tx.checkOwners(scopes); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	return db.postgres.write(ctx, scopes, fn)
}

// Tx is a transaction. It is valid only in the function to which it is passed, and only in one
// goroutine. Statements name their arguments $1, $2, …; see [Table] for the stored forms of
// arguments.
type Tx struct {
	ctx       context.Context
	q         querier
	db        *DB
	committed []func()
	now       time.Time // the database's time, with SQLite after its first use
	err       error     // error of a method without an error result; it fails the transaction
	broken    error     // error of a statement, which fails a write

	// The following fields are for writes on PostgreSQL.

	locks   []scope.Lock // of the scopes of the write
	tried   []scope.Lock // of [Tx.TryLock]
	notices []string     // payloads of [Tx.Notify]
}

// checkOwners does for SQLite what [transaction.beginWrite] does.
func (tx *Tx) checkOwners(scopes scope.Set) error {
	for _, s := range scopes {
		if query := tx.db.owners[s.Level]; query != "" && s.Org != "" {
			found, err := Collect(tx, func(scan Scan) (o organization, err error) {
				err = scan(&o.id, &o.deletedAt)
				return o, err
			}, query, s.Key)
			if err := cmp.Or(err, checkOwner(s, found)); err != nil {
				return err
			}
		}
	}
	return nil
}

// organization is the organization of an owner.
type organization struct {
	id        string
	deletedAt int64 // 0 if it exists
}

// checkOwner compares a scope with the owner's organization, which is missing if the owner is.
func checkOwner(s scope.Scope, found []organization) error {
	switch {
	case len(found) == 0 && s.Known:
		return ErrNotFound
	case len(found) == 0:
		return nil
	case found[0].id != s.Org:
		return ErrMoved
	case found[0].deletedAt != 0 && !s.Remaining:
		return ErrDeleted
	}
	return nil
}

// OnCommit calls fn after the transaction has committed.
func (tx *Tx) OnCommit(fn func()) { tx.committed = append(tx.committed, fn) }

func (tx *Tx) afterCommit() {
	for _, fn := range tx.committed {
		fn()
	}
}

// watched calls a function before each statement; see [Options].
type watched struct {
	querier
	before func(statement string)
}

func (w watched) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	w.before(query)
	return w.querier.ExecContext(ctx, query, args...)
}

func (w watched) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	w.before(query)
	return w.querier.QueryContext(ctx, query, args...)
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Exec runs a statement and returns the number of changed rows. It returns [ErrConflict] if the
// statement violates a unique key.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
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
func Collect[T any](tx *Tx, read func(Scan) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := tx.q.QueryContext(tx.ctx, query, encode(args)...)
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
	all, err := Collect(tx, read, query, args...)
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
