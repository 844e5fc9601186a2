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
	"strings"

	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/sys/durable"
)

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

// checkReceived returns an error if no database exists, but the files of an interrupted [Receive] do. A new database
// next to them would make the next one fail.
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
