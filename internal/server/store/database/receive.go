package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"

	"workflowagent/internal/server/store/blob"
)

// NotEmptyError means that a database, or its directory, contains something, so that nothing may be restored to it.
type NotEmptyError struct{ What string }

func (e *NotEmptyError) Error() string {
	return e.What + ": restore only into an empty database, or an empty data directory"
}

// NewerSchemaError means that a program does not know a migration of the schema that it should create.
type NewerSchemaError struct{ Version int64 }

func (e *NewerSchemaError) Error() string {
	return fmt.Sprintf("this workflow-server does not know version %d of the schema: use the program of the server that wrote it, or a later one", e.Version)
}

// receivingSuffix follows the name of a SQLite database that is not complete yet. A crash can leave it.
const receivingSuffix = ".restoring"

// Receiver is a new database that receives the content of another one. It is used in one goroutine.
type Receiver struct {
	Blobs     blob.Writer
	Relations []Relation // in an order in which rows follow those to which they refer

	load func(ctx context.Context, r Relation, rows iter.Seq2[[]any, error]) error
}

// Load adds the rows of a table. The columns can have another order than in Relations.
func (r *Receiver) Load(ctx context.Context, rel Relation, rows iter.Seq2[[]any, error]) error {
	if err := r.load(ctx, rel, rows); err != nil {
		err = translate(err)
		if errors.Is(err, ErrInvalid) {
			err = fmt.Errorf("PostgreSQL cannot store one of its texts: restore to SQLite, find it there, and correct it: %w", err)
		}
		return fmt.Errorf("writing the table %s: %w", rel.Name, err)
	}
	return nil
}

// Receive creates the database of an address with exactly the migrations of a schema, after check, and calls fill. The
// database exists only if both return nil. It returns a [NotEmptyError] if the database contains anything. With SQLite, no
// server starts after a Receive that was interrupted, also during check, until the next one.
func Receive(ctx context.Context, dsn string, opts Options, schema []int64, check func() error, fill func(*Receiver) error) error {
	opts, err := only(opts, schema)
	if err != nil {
		return err
	}
	if path, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		return receiveSQLite(ctx, path, opts, check, fill)
	}
	if err := check(); err != nil {
		return err
	}
	return receivePostgres(ctx, dsn, opts, schema, fill)
}

// TablesOf returns the tables that exactly the migrations of a schema create.
func TablesOf(ctx context.Context, opts Options, schema []int64) (tables []Relation, err error) {
	opts, err = only(opts, schema)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("creating a schema: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // each connection has its own memory
	m, err := newMigration(sqliteEngine, db, opts)
	if err != nil {
		return nil, err
	}
	if err := m.up(ctx); err != nil {
		return nil, err
	}
	return relations(ctx, db, sqliteEngine)
}

// only returns options with the migrations of a schema.
func only(opts Options, schema []int64) (Options, error) {
	wanted := versions{}
	for _, v := range schema {
		wanted[v] = true
	}
	known := versions{}
	steps := map[int64]Step{}
	for v, step := range opts.Steps {
		if known[v] = true; wanted[v] {
			steps[v] = step
		}
	}
	files, err := fs.ReadDir(opts.Migrations, ".")
	if err != nil {
		return opts, fmt.Errorf("reading the migrations: %w", err)
	}
	for _, f := range files {
		if v, err := goose.NumericComponent(f.Name()); err == nil {
			known[v] = true
		}
	}
	if v := wanted.without(known); v != 0 {
		return opts, &NewerSchemaError{v}
	}
	opts.Migrations, opts.Steps = selected{opts.Migrations, wanted}, steps
	return opts, nil
}

// selected are the migrations with wanted versions.
type selected struct {
	fs.FS
	wanted versions
}

// ReadDir implements [fs.ReadDirFS].
func (s selected) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		v, err := goose.NumericComponent(e.Name())
		return err != nil || !s.wanted[v]
	}), err
}
