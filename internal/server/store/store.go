// Package store stores the control plane's data, in SQLite by default or in a PostgreSQL database
// that several servers can share. Only this package and its subpackages use SQL. A [DB] provides
// transactions ([Tx]), whose methods read and write rows. Each domain has its own file.
package store

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// The errors of package database.
var (
	ErrNotFound = database.ErrNotFound
	ErrConflict = database.ErrConflict
	ErrInvalid  = database.ErrInvalid
	ErrBusy     = database.ErrBusy
	ErrUnknown  = database.ErrUnknown
	ErrMoved    = database.ErrMoved
	ErrClosed   = database.ErrClosed
)

type (
	// Options are the options of [Open], which sets the migrations.
	Options = database.Options
	// Clock is a machine's clock; see [database.Clock].
	Clock = database.Clock
	// Timeouts bound writes on PostgreSQL; see [database.Timeouts].
	Timeouts = database.Timeouts
	// OldProgramError means that this program must not use the database; see [database.OldProgramError].
	OldProgramError = database.OldProgramError
)

// The numbers of connections to PostgreSQL; see [database.ConnsOf].
const (
	DefaultConns = database.DefaultConns
	MinConns     = database.MinConns
)

// ConnsOf returns [Options].MaxConns for a number of all connections to PostgreSQL; see [database.ConnsOf].
func ConnsOf(all int) int { return database.ConnsOf(all) }

//go:embed migrations/*.sql
var migrations embed.FS

// steps are the migrations that SQL cannot express, by version.
var steps = map[int64]database.Step{372: addBriefs, 400: renameBeats, 670: addEstate}

// DB is an open database. Its methods may be called concurrently.
type DB struct {
	*database.DB
	log      *logrus.Entry
	writable writable
}

// Tx is a transaction. It is valid only in the function to which it is passed, and only in one
// goroutine.
type Tx struct {
	*database.Tx
	log *logrus.Entry
	gap bool // [Tx.LeaseTime] has found a gap
}

// Open connects to a database, "sqlite:PATH" or "postgres://…", and migrates its schema to the
// current version.
func Open(ctx context.Context, dsn string, opts Options) (*DB, error) {
	opts, err := withMigrations(opts)
	if err != nil {
		return nil, err
	}
	opts.Owners = database.Owners{
		scope.LevelOrganization: "SELECT id, deleted_at FROM organizations WHERE id = $1",
		scope.LevelStack:        "SELECT s.org_id, o.deleted_at FROM live_stacks s JOIN organizations o ON o.id = s.org_id WHERE s.id = $1",
	}
	db, err := database.Open(ctx, dsn, opts)
	if err != nil {
		return nil, err
	}
	return &DB{DB: db, log: opts.Log}, nil
}

// errGap ends a write that must not use the stored times before they are shifted.
var errGap = errors.New("the stored times must be shifted first")

// maxGaps bounds the number of times that a write ends because the stored times must be shifted.
const maxGaps = 3

func (db *DB) adapt(fn func(*Tx) error) func(*database.Tx) error {
	return func(inner *database.Tx) error {
		tx := &Tx{Tx: inner, log: db.log}
		if err := fn(tx); !tx.gap {
			return err
		}
		return errGap
	}
}

// Read runs fn in a read-only transaction; see [database.DB.Read].
func (db *DB) Read(ctx context.Context, fn func(*Tx) error) error {
	return db.DB.Read(ctx, db.adapt(fn))
}

// ReadLong runs fn in a read-only transaction; see [database.DB.ReadLong].
func (db *DB) ReadLong(ctx context.Context, fn func(*Tx) error) error {
	return db.DB.ReadLong(ctx, db.adapt(fn))
}

// ReadOne runs fn, which runs one statement; see [database.DB.ReadOne].
func (db *DB) ReadOne(ctx context.Context, fn func(*Tx) error) error {
	return db.DB.ReadOne(ctx, db.adapt(fn))
}

// Write runs fn in a transaction. scopes names all owners of the rows that fn changes or depends on;
// writes with a common scope run one after another. See [database.DB.Write]. After an error of the
// kind [fault.KindOutcomeUnknown], the change may have been made. Callers must not undo or remove
// anything then. If a stack has moved to another organization since scopes was made, the error is of the
// kind [fault.KindConflict]: what the caller may do with the stack was decided for the earlier one. If an
// organization of scopes is deleted, it is of the kind [fault.KindNotFound], unless only what remains of it matters.
func (db *DB) Write(ctx context.Context, scopes scope.Set, fn func(*Tx) error) error {
	err := db.write(ctx, scopes, fn)
	switch {
	case errors.Is(err, database.ErrMoved):
		err = fault.Wrap(fault.KindConflict, err, "%s", database.ErrMoved.Error())
	case errors.Is(err, database.ErrDeleted):
		err = fault.Wrap(fault.KindNotFound, err, "the organization does not exist any more")
	case errors.Is(err, ErrUnknown):
		err = fault.Wrap(fault.KindOutcomeUnknown, err, "outcome_unknown: the database did not say whether it has stored the change; look whether it has before you repeat the request")
	}
	return err
}

// write runs fn, and shifts the stored times first if fn needs that.
func (db *DB) write(ctx context.Context, scopes scope.Set, fn func(*Tx) error) error {
	for gaps := 0; ; gaps++ {
		err := db.DB.Write(ctx, scopes, db.adapt(fn))
		if !errors.Is(err, errGap) || gaps == maxGaps {
			return err
		}
		if err := db.DB.Write(ctx, scope.Server(), db.adapt((*Tx).shift)); err != nil {
			return fmt.Errorf("shifting leases: %w", err)
		}
	}
}

// Read runs fn with [DB.Read] and returns the result of fn.
func Read[T any](ctx context.Context, db *DB, fn func(*Tx) (T, error)) (T, error) {
	var v T
	err := db.Read(ctx, func(tx *Tx) (err error) {
		v, err = fn(tx)
		return err
	})
	return v, err
}

// ReadLong runs fn with [DB.ReadLong] and returns the result of fn.
func ReadLong[T any](ctx context.Context, db *DB, fn func(*Tx) (T, error)) (T, error) {
	var v T
	err := db.ReadLong(ctx, func(tx *Tx) (err error) {
		v, err = fn(tx)
		return err
	})
	return v, err
}

// ReadOne runs fn with [DB.ReadOne] and returns the result of fn.
func ReadOne[T any](ctx context.Context, db *DB, fn func(*Tx) (T, error)) (T, error) {
	var v T
	err := db.ReadOne(ctx, func(tx *Tx) (err error) {
		v, err = fn(tx)
		return err
	})
	return v, err
}

// Write runs fn with [DB.Write] and returns the result of fn.
func Write[T any](ctx context.Context, db *DB, scopes scope.Set, fn func(*Tx) (T, error)) (T, error) {
	var v T
	err := db.Write(ctx, scopes, func(tx *Tx) (err error) {
		v, err = fn(tx)
		return err
	})
	return v, err
}

// IfMissing returns other if err is [ErrNotFound], and err otherwise.
func IfMissing(err, other error) error {
	if errors.Is(err, ErrNotFound) {
		return other
	}
	return err
}

// IgnoreMissing returns nil if err is [ErrNotFound], and err otherwise.
func IgnoreMissing(err error) error { return IfMissing(err, nil) }

// IfConflict returns other if err is [ErrConflict], and err otherwise.
func IfConflict(err, other error) error {
	if errors.Is(err, ErrConflict) {
		return other
	}
	return err
}

const perPiece = 500

// WriteInPieces changes many rows in several transactions, so that other writers can run in
// between. It calls change until a call changes fewer rows than the limit.
func (db *DB) WriteInPieces(ctx context.Context, scopes scope.Set, change func(tx *Tx, limit int) (int64, error)) error {
	for n := int64(perPiece); n >= perPiece; {
		err := db.Write(ctx, scopes, func(tx *Tx) (err error) {
			n, err = change(tx, perPiece)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
