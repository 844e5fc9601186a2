package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/server/store/blob"
)

// sqliteBusyTimeout bounds the wait for a lock that another process holds, such as a backup.
const sqliteBusyTimeout = 10 * time.Second

func openSQLite(ctx context.Context, path string, opts Options) (*DB, error) {
	if path == "" {
		return nil, errors.New(`the database address "sqlite:" lacks a file name: use "sqlite:PATH"`)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("resolving the database file %s: %w", path, err)
	}
	if err := checkReceived(abs); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return nil, fmt.Errorf("creating the database directory: %w", err)
	}
	// The file contains token hashes and states. SQLite creates its journal files with the same
	// mode.
	f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the database file: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("opening the database file: %w", err)
	}
	blobs, err := blob.NewFiles(opts.BlobDir)
	if err != nil {
		return nil, err
	}

	write, err := sql.Open("sqlite", sqliteDSN(abs, false))
	if err != nil {
		return nil, fmt.Errorf("opening the database %s: %w", abs, err)
	}
	write.SetMaxOpenConns(1)
	known, err := migrate(ctx, sqliteEngine, write, opts, func(ctx context.Context, o Options) (*DB, error) { return openSQLite(ctx, path, o) })
	if err != nil {
		return nil, fmt.Errorf("preparing the database %s: %w", abs, errors.Join(err, write.Close()))
	}
	read, err := sql.Open("sqlite", sqliteDSN(abs, true))
	if err != nil {
		return nil, fmt.Errorf("opening the database %s: %w", abs, errors.Join(err, write.Close()))
	}
	conns := opts.MaxConns
	if conns <= 0 {
		conns = 8
	}
	read.SetMaxOpenConns(conns)
	read.SetMaxIdleConns(conns)

	db := &DB{
		engine: sqliteEngine, known: known, pool: read, long: longReads(conns), blobs: blobs, bus: newBus(), clock: opts.clock(), owners: opts.Owners,
		dirs: []string{filepath.Dir(abs), opts.BlobDir}, file: abs,
	}
	db.sqlite = newSQLiteWriter(db, write)
	return db, nil
}

// Checkpoint moves the contents of SQLite's write-ahead log to the database file. The file shrinks
// only then. Checkpoint does not block other callers. On PostgreSQL, it does nothing.
func (db *DB) Checkpoint(ctx context.Context) error {
	if db.engine != sqliteEngine {
		return nil
	}
	if _, err := db.pool.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		return fmt.Errorf("moving the write-ahead log to the database file: %w", err)
	}
	return nil
}

func sqliteDSN(path string, readOnly bool) string {
	q := url.Values{}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", sqliteBusyTimeout.Milliseconds()))
	q.Add("_pragma", "foreign_keys(1)")
	q.Add("_pragma", "temp_store(MEMORY)") // an image has no directory for temporary files
	if readOnly {
		q.Add("_pragma", "query_only(1)")
	} else {
		q.Add("_pragma", "cache_size(-16000)")       // readers have small caches, because each write empties them
		q.Add("_pragma", "auto_vacuum(INCREMENTAL)") // affects only new databases
		q.Add("_pragma", "journal_mode(WAL)")
		q.Add("_pragma", "synchronous(FULL)")
		q.Add("_txlock", "immediate")
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}
