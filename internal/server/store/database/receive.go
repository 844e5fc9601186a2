package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/sys/durable"
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

func receiveSQLite(ctx context.Context, path string, opts Options, check func() error, fill func(*Receiver) error) (err error) {
	partial := path + receivingSuffix
	if err := clearSQLite(path, opts.BlobDir); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(path), opts.BlobDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the data directory: %w", err)
		}
	}
	if err := os.WriteFile(partial, nil, 0o600); err != nil { // before the blobs, which it makes known as incomplete
		return fmt.Errorf("creating the database: %w", err)
	}
	defer func() {
		if err != nil && ctx.Err() == nil { // what was interrupted is to be repeated
			err = errors.Join(err, removeSQLite(partial, opts.BlobDir))
		}
	}()
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	files, err := blob.NewFiles(opts.BlobDir)
	if err != nil {
		return err
	}
	if err := fillSQLite(ctx, partial, opts, files, fill); err != nil {
		return err
	}
	if err := files.SyncAll(ctx); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("naming the restored database: %w", err)
	}
	return durable.SyncDir(filepath.Dir(path))
}

// clearSQLite removes what an interrupted [Receive] has left, and returns a [NotEmptyError] if anything else exists.
func clearSQLite(path, blobs string) error {
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if _, err := os.Lstat(path + suffix); err == nil {
			return &NotEmptyError{"the file " + path + suffix + " exists"}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for a database: %w", err)
		}
	}
	if _, err := os.Lstat(path + receivingSuffix); err == nil {
		return removeSQLite(path+receivingSuffix, blobs)
	}
	entries, err := os.ReadDir(blobs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for blobs: %w", err)
	case len(entries) > 0:
		return &NotEmptyError{"the directory " + blobs + " is not empty"}
	}
	return nil
}

// checkReceived returns an error if no database exists, but the rest of an interrupted [Receive]. A new database beside it
// would refuse the next one.
func checkReceived(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the file explains an error
	}
	partial := path + receivingSuffix
	if _, err := os.Lstat(partial); err != nil {
		return nil //nolint:nilerr // no rest
	}
	return fmt.Errorf("not creating the database %s: a restore to it was interrupted: run workflow-server restore again, or remove %s to begin a new installation", path, partial)
}

// removeSQLite removes an incomplete database. Its file is the last, because only with it are the blobs known to be
// incomplete.
func removeSQLite(partial, blobs string) error {
	if err := os.RemoveAll(blobs); err != nil {
		return fmt.Errorf("removing an incomplete restore: %w", err)
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(partial + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an incomplete restore: %w", err)
		}
	}
	return nil
}

func fillSQLite(ctx context.Context, path string, opts Options, files *blob.Files, fill func(*Receiver) error) (err error) {
	db, err := sql.Open("sqlite", sqliteDSN(path, false))
	if err != nil {
		return fmt.Errorf("creating the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	// A crash makes the whole file useless, so nothing is synced before the end.
	if _, err := db.ExecContext(ctx, "PRAGMA synchronous = OFF"); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	m, err := newMigration(sqliteEngine, db, opts)
	if err != nil {
		return err
	}
	if err := m.up(ctx); err != nil {
		return err
	}
	// Rows can come before those to which they refer.
	if _, err := db.ExecContext(ctx, "PRAGMA foreign_keys = 0"); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	tables, err := relations(ctx, db, sqliteEngine)
	if err != nil {
		return err
	}
	for _, t := range tables { // migrations can have added rows
		if _, err := db.ExecContext(ctx, "DELETE FROM "+quoted(t.Name)); err != nil { //nolint:gosec // a name of the schema
			return fmt.Errorf("emptying the table %s: %w", t.Name, err)
		}
	}
	r := &Receiver{Relations: tables, Blobs: files.Writer(), load: func(ctx context.Context, rel Relation, rows iter.Seq2[[]any, error]) error {
		return insertSQLite(ctx, db, rel, rows)
	}}
	if err := fill(r); err != nil {
		return err
	}
	return finishSQLite(ctx, db)
}

// rowsPerCommit bounds the size of SQLite's write-ahead log.
const rowsPerCommit = 5000

func insertSQLite(ctx context.Context, db *sql.DB, rel Relation, rows iter.Seq2[[]any, error]) error {
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // no effect after Commit; t is the last transaction
	n := 0
	statement := insertStatement(rel)
	for values, err := range rows {
		if err != nil {
			return err
		}
		if _, err := t.ExecContext(ctx, statement, values...); err != nil {
			return err
		}
		if n++; n%rowsPerCommit > 0 {
			continue
		}
		if err := t.Commit(); err != nil {
			return err
		}
		next, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		t = next
	}
	return t.Commit()
}

func insertStatement(rel Relation) string {
	marks := make([]string, len(rel.Columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	return "INSERT INTO " + quoted(rel.Name) + " (" + columnList(rel) + ") VALUES (" + strings.Join(marks, ", ") + ")"
}

// finishSQLite makes a filled database durable and complete in one file.
func finishSQLite(ctx context.Context, db *sql.DB) error {
	var table string
	err := db.QueryRowContext(ctx, `SELECT "table" FROM pragma_foreign_key_check LIMIT 1`).Scan(&table)
	if err == nil {
		return fmt.Errorf("a row of the table %s refers to a missing one", table)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("checking the references between rows: %w", err)
	}
	for _, pragma := range []string{"synchronous = FULL", "wal_checkpoint(TRUNCATE)"} {
		if _, err := db.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return fmt.Errorf("completing the database: %w", err)
		}
	}
	return nil
}

func receivePostgres(ctx context.Context, dsn string, opts Options, schema []int64, fill func(*Receiver) error) (err error) {
	cfg, failed := parse(dsn)
	if failed != nil {
		return fmt.Errorf("%s: %w", failed.Advice, failed)
	}
	db := newPool(connectTo(cfg, migrationTime), 2)
	defer func() { err = errors.Join(explain(err, cfg), db.Close()) }()
	if err := requireSessions(ctx, db); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	if err := createSchema(ctx, db, opts, schema); err != nil {
		return err
	}
	if _, err := blob.NewRows(ctx, db); err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	t := &transaction{conn: conn}
	if _, err := conn.ExecContext(ctx, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	defer t.end(ctx)
	if err := fillPostgres(ctx, conn, fill); err != nil {
		return err
	}
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "COMMIT"); err != nil {
		return fmt.Errorf("committing; look whether the database contains the restored data before you repeat the command: %w", err)
	}
	t.ended = true
	return nil
}

// createSchema applies the migrations of a schema. An interrupted restore can have applied some of them.
func createSchema(ctx context.Context, db *sql.DB, opts Options, schema []int64) (err error) {
	m, err := newMigration(postgresEngine, db, opts)
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return fmt.Errorf("preparing the migration lock: %w", err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer discard(conn)
	if err := locker.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("waiting for a server that updates the schema: %w", err)
	}
	defer func() { err = errors.Join(err, locker.SessionUnlock(context.WithoutCancel(ctx), conn)) }()
	applied, err := schemaVersions(ctx, postgresEngine, db)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if v := applied.without(m.known); v != 0 {
		return &NotEmptyError{fmt.Sprintf("the database has version %d of the schema, which the backup does not have", v)}
	}
	if len(applied) > 0 {
		tables, err := relations(ctx, db, postgresEngine)
		if err != nil {
			return err
		}
		if err := requireEmpty(ctx, db, tables); err != nil {
			return err
		}
	}
	if len(applied) > len(schema) { // includes version 0
		return nil
	}
	return m.up(ctx)
}

// mayHaveRows are tables in which migrations can add rows. An installation with an organization also has a user.
var mayHaveRows = []string{oldestTable, "organizations"}

func requireEmpty(ctx context.Context, q querier, tables []Relation) error {
	for _, t := range tables {
		if slices.Contains(mayHaveRows, t.Name) {
			continue
		}
		found, err := hasRows(ctx, q, t.Name)
		if err != nil {
			return fmt.Errorf("reading the table %s: %w", t.Name, err)
		}
		if found {
			return &NotEmptyError{"the table " + t.Name + " of the database contains rows"}
		}
	}
	return nil
}

func hasRows(ctx context.Context, q querier, table string) (bool, error) {
	rows, err := q.QueryContext(ctx, "SELECT 1 FROM "+quoted(table)+" LIMIT 1")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	return rows.Next(), rows.Err()
}

func fillPostgres(ctx context.Context, conn *sql.Conn, fill func(*Receiver) error) error {
	tables, err := relations(ctx, conn, postgresEngine)
	if err != nil {
		return err
	}
	if tables, err = inOrder(ctx, conn, tables); err != nil {
		return err
	}
	all := append(slices.Clone(tables), Relation{Name: blob.RowsTable})
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = quoted(t.Name)
	}
	// A server that starts meanwhile waits, and finds the restored installation. The transaction waits for input longer
	// than an administrator may allow others to.
	for _, statement := range []string{
		"SET LOCAL lock_timeout = '15s'",
		"LOCK TABLE " + strings.Join(names, ", ") + " IN ACCESS EXCLUSIVE MODE",
		"SELECT set_config('lock_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true)",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("locking the tables: %w", translate(err))
		}
	}
	if err := requireEmpty(ctx, conn, all); err != nil {
		return err
	}
	for _, t := range slices.Backward(tables) {
		if _, err := conn.ExecContext(ctx, "DELETE FROM "+quoted(t.Name)); err != nil { //nolint:gosec // a name of the schema
			return fmt.Errorf("emptying the table %s: %w", t.Name, err)
		}
	}
	return fill(&Receiver{Relations: tables, Blobs: blob.WriteRows(conn), load: func(ctx context.Context, rel Relation, rows iter.Seq2[[]any, error]) error {
		return withPgx(conn, func(c *pgx.Conn) error { return copyIn(ctx, c, rel, rows) })
	}})
}

func copyIn(ctx context.Context, conn *pgx.Conn, rel Relation, rows iter.Seq2[[]any, error]) error {
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = c.Name
	}
	next, stop := iter.Pull2(rows)
	defer stop()
	_, err := conn.CopyFrom(ctx, pgx.Identifier{rel.Name}, names, pgx.CopyFromFunc(func() ([]any, error) {
		values, err, ok := next()
		if !ok {
			return nil, nil
		}
		return values, err
	}))
	return err
}

// inOrder returns the tables in an order in which each follows the tables to which it refers.
func inOrder(ctx context.Context, q querier, tables []Relation) ([]Relation, error) {
	rows, err := q.QueryContext(ctx, `SELECT c.relname, r.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE k.contype = 'f' AND n.nspname = current_schema() AND c.oid <> r.oid`)
	if err != nil {
		return nil, fmt.Errorf("reading the references between tables: %w", err)
	}
	defer rows.Close()
	needs := map[string][]string{}
	for rows.Next() {
		var table, needed string
		if err := rows.Scan(&table, &needed); err != nil {
			return nil, fmt.Errorf("reading the references between tables: %w", err)
		}
		needs[table] = append(needs[table], needed)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading the references between tables: %w", err)
	}
	var ordered []Relation
	done := map[string]bool{}
	for len(ordered) < len(tables) {
		before := len(ordered)
		for _, t := range tables {
			if !done[t.Name] && !slices.ContainsFunc(needs[t.Name], func(n string) bool { return !done[n] }) {
				done[t.Name], ordered = true, append(ordered, t)
			}
		}
		if len(ordered) == before {
			return nil, errors.New("the tables refer to each other in a circle")
		}
	}
	return ordered, nil
}
