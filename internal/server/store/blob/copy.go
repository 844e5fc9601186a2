package blob

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/sys/durable"
)

// Info describes a blob.
type Info struct {
	Size     int64
	Modified time.Time // of the last write
}

// Reader reads the blobs of a snapshot of the database.
type Reader interface {
	// Keys returns the keys below prefix + "/" in the order of [Compare].
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Stat describes a blob, or returns [ErrNotFound].
	Stat(ctx context.Context, key string) (Info, error)
	// Open opens a blob, or returns [ErrNotFound]. The caller must close it before it uses the snapshot again.
	Open(ctx context.Context, key string) (io.ReadCloser, error)
}

// Writer adds blobs to a new database.
type Writer interface {
	// Add adds a blob. It is durable only when the database is.
	Add(ctx context.Context, key string, r io.Reader) error
}

// Compare orders keys by their segments, like a walk through the directories of [Files].
func Compare(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// CheckKey returns an error for a key that no blob can have.
func CheckKey(key string) error { return checkKey(key) }

// Writer returns a writer of files, which [Files.SyncAll] makes durable.
func (b *Files) Writer() Writer { return fileWriter{b} }

type fileWriter struct{ files *Files }

// Add implements [Writer].
func (w fileWriter) Add(_ context.Context, key string, r io.Reader) error {
	path, err := w.files.path(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	return nil
}

// SyncAll makes all blobs durable.
func (b *Files) SyncAll(ctx context.Context) error {
	err := filepath.WalkDir(b.dir, func(path string, entry fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		if entry.IsDir() || entry.Type().IsRegular() {
			return durable.SyncDir(path) // a file is synced like a directory
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("syncing the blobs to disk: %w", err)
	}
	return nil
}

// Querier runs statements in a transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// RowsTable is the table of [Rows].
const RowsTable = "blob_chunks"

// ReadRows returns a reader of the blobs in PostgreSQL that a transaction sees.
func ReadRows(q Querier) Reader { return transactionReader{q} }

type transactionReader struct{ q Querier }

// Keys implements [Reader].
func (r transactionReader) Keys(ctx context.Context, prefix string) ([]string, error) {
	if err := checkKey(prefix); err != nil {
		return nil, err
	}
	rows, err := r.q.QueryContext(ctx, "SELECT DISTINCT blob_key FROM blob_chunks WHERE blob_key > $1 AND blob_key < $2", prefix+"/", prefix+"0")
	if err != nil {
		return nil, fmt.Errorf("listing the blobs of %s: %w", prefix, err)
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, fmt.Errorf("listing the blobs of %s: %w", prefix, err)
		}
		keys = append(keys, key)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("listing the blobs of %s: %w", prefix, err)
	}
	slices.SortFunc(keys, Compare)
	return keys, nil
}

// Stat implements [Reader].
func (r transactionReader) Stat(ctx context.Context, key string) (Info, error) {
	rows, err := r.q.QueryContext(ctx, `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT), MAX(written_at) FROM blob_chunks WHERE blob_key = $1`, key)
	if err != nil {
		return Info{}, fmt.Errorf("reading blob %s: %w", key, err)
	}
	defer rows.Close()
	var info Info
	var written sql.NullTime
	for rows.Next() {
		err = rows.Scan(&info.Size, &written)
	}
	if err = errors.Join(err, rows.Err()); err != nil {
		return Info{}, fmt.Errorf("reading blob %s: %w", key, err)
	}
	if !written.Valid {
		return Info{}, fmt.Errorf("blob %s: %w", key, ErrNotFound)
	}
	info.Modified = written.Time.UTC()
	return info, nil
}

// Open implements [Reader].
func (r transactionReader) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	rows, err := r.q.QueryContext(ctx, "SELECT data FROM blob_chunks WHERE blob_key = $1 ORDER BY start_at", key)
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", key, err)
	}
	reader := &rowReader{rows: rows}
	if rows.Next() {
		if err = reader.load(); err == nil {
			return reader, nil
		}
	} else if err = rows.Err(); err == nil {
		err = ErrNotFound
	}
	return nil, fmt.Errorf("reading blob %s: %w", key, errors.Join(err, reader.Close()))
}

// WriteRows returns a writer of blobs to PostgreSQL in a transaction.
func WriteRows(q Querier) Writer { return transactionWriter{q} }

type transactionWriter struct{ q Querier }

// Add implements [Writer].
func (w transactionWriter) Add(ctx context.Context, key string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return insertChunks(ctx, w.q, key, r)
}
