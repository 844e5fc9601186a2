package blob

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"
)

// chunkSize is the size of the rows that Put writes, and the maximum size of the rows that Append
// writes, in bytes.
const chunkSize = 1 << 20

// Rows stores blobs in PostgreSQL, so that servers do not need a shared disk.
type Rows struct{ pool *sql.DB }

// NewRows returns a store in pool. It creates the table if necessary. A migration cannot create the
// table, because SQLite lacks the collation that makes key ranges match prefixes.
func NewRows(ctx context.Context, pool *sql.DB) (*Rows, error) {
	t, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the blob table: %w", err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	// Without the lock, two starting servers could both find the table missing.
	for _, stmt := range []string{
		"SELECT pg_advisory_xact_lock(4613021907)",
		`CREATE TABLE IF NOT EXISTS blob_chunks (
			blob_key TEXT COLLATE "C" NOT NULL,
			start_at BIGINT NOT NULL,
			size     BIGINT NOT NULL,
			data     BYTEA NOT NULL,
			PRIMARY KEY (blob_key, start_at))`,
		// Rows written by earlier versions receive the default value, so their age starts at the
		// first run of this version.
		"ALTER TABLE blob_chunks ADD COLUMN IF NOT EXISTS written_at TIMESTAMPTZ NOT NULL DEFAULT now()",
	} {
		if _, err := t.ExecContext(ctx, stmt); err != nil {
			return nil, fmt.Errorf("creating the blob table: %w", err)
		}
	}
	if err := t.Commit(); err != nil {
		return nil, fmt.Errorf("creating the blob table: %w", err)
	}
	return &Rows{pool}, nil
}

// begin begins a transaction whose statements see what others have committed before each statement, also
// if the database has another default. Otherwise a writer would not see what the previous holder of its
// lock has written.
func (b *Rows) begin(ctx context.Context) (*sql.Tx, error) {
	return b.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
}

// lockKey locks a key until the transaction ends, so that concurrent writers wait instead of
// failing.
func (b *Rows) lockKey(ctx context.Context, t *sql.Tx, key string) error {
	if _, err := t.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 7))", key); err != nil {
		return fmt.Errorf("locking blob %s: %w", key, err)
	}
	return nil
}

// Put implements [Store].
func (b *Rows) Put(ctx context.Context, key string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	t, err := b.begin(ctx)
	if err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	if err := b.lockKey(ctx, t, key); err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, "DELETE FROM blob_chunks WHERE blob_key = $1", key); err != nil {
		return fmt.Errorf("replacing blob %s: %w", key, err)
	}
	if err := insertChunks(ctx, t, key, r); err != nil {
		return err
	}
	if err := t.Commit(); err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	return nil
}

// insertChunks inserts the rows of a new blob.
func insertChunks(ctx context.Context, t Querier, key string, r io.Reader) error {
	buf := make([]byte, chunkSize)
	var offset int64
	for {
		n, err := io.ReadFull(r, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return fmt.Errorf("writing blob %s: %w", key, err)
		}
		// An empty blob is stored as one empty row. Without a row, the blob would not exist.
		if n > 0 || offset == 0 {
			if err := insertChunk(ctx, t, key, offset, buf[:n]); err != nil {
				return err
			}
		}
		offset += int64(n)
		if last {
			return nil
		}
	}
}

func insertChunk(ctx context.Context, t Querier, key string, offset int64, p []byte) error {
	_, err := t.ExecContext(ctx,
		"INSERT INTO blob_chunks (blob_key, start_at, size, data) VALUES ($1, $2, $3, $4)", key, offset, int64(len(p)), p)
	if err != nil {
		return fmt.Errorf("writing blob %s: %w", key, err)
	}
	return nil
}

// Get implements [Store].
func (b *Rows) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	t, err := b.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", key, err)
	}
	rows, err := t.QueryContext(ctx, "SELECT data FROM blob_chunks WHERE blob_key = $1 ORDER BY start_at", key)
	if err != nil {
		t.Rollback() //nolint:errcheck // err takes precedence
		return nil, fmt.Errorf("reading blob %s: %w", key, err)
	}
	r := &rowReader{tx: t, rows: rows}
	if !rows.Next() {
		err := errors.Join(rows.Err(), r.Close())
		if err != nil {
			return nil, fmt.Errorf("reading blob %s: %w", key, err)
		}
		return nil, fmt.Errorf("blob %s: %w", key, ErrNotFound)
	}
	if err := r.load(); err != nil {
		return nil, fmt.Errorf("reading blob %s: %w", key, errors.Join(err, r.Close()))
	}
	return r, nil
}

// rowReader streams the chunks of a blob from one consistent snapshot.
type rowReader struct {
	tx   *sql.Tx // ends with the reader; nil if it continues
	rows *sql.Rows
	buf  bytes.Reader
}

func (r *rowReader) load() error {
	var data []byte
	if err := r.rows.Scan(&data); err != nil {
		return err
	}
	r.buf.Reset(data)
	return nil
}

func (r *rowReader) Read(p []byte) (int, error) {
	for r.buf.Len() == 0 {
		if !r.rows.Next() {
			if err := r.rows.Err(); err != nil {
				return 0, err
			}
			return 0, io.EOF
		}
		if err := r.load(); err != nil {
			return 0, err
		}
	}
	return r.buf.Read(p)
}

func (r *rowReader) Close() error {
	err := r.rows.Close()
	if r.tx != nil {
		r.tx.Rollback() //nolint:errcheck // a read-only transaction
	}
	return err
}

// ReadAt implements [Store].
func (b *Rows) ReadAt(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	if offset < 0 || len(p) == 0 {
		return 0, nil
	}
	rows, err := b.pool.QueryContext(ctx,
		`SELECT start_at, data FROM blob_chunks
		 WHERE blob_key = $1 AND start_at + size > $2 AND start_at < $3 ORDER BY start_at`,
		key, offset, offset+int64(len(p)))
	if err != nil {
		return 0, fmt.Errorf("reading blob %s: %w", key, err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var start int64
		var data sql.RawBytes
		if err := rows.Scan(&start, &data); err != nil {
			return 0, fmt.Errorf("reading blob %s: %w", key, err)
		}
		if start < offset {
			data = data[offset-start:]
		}
		n += copy(p[n:], data)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("reading blob %s: %w", key, err)
	}
	return n, nil
}

// Append implements [Store].
func (b *Rows) Append(ctx context.Context, key string, offset int64, p []byte) (size, added int64, err error) {
	if err := checkKey(key); err != nil {
		return 0, 0, err
	}
	t, err := b.begin(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("writing blob %s: %w", key, err)
	}
	defer t.Rollback() //nolint:errcheck // no effect after Commit
	if err := b.lockKey(ctx, t, key); err != nil {
		return 0, 0, err
	}
	if size, err = blobSize(ctx, t, key); err != nil {
		return 0, 0, err
	}
	if offset < 0 || offset > size {
		return size, 0, ErrGap
	}
	have := size - offset
	if int64(len(p)) <= have {
		return size, 0, nil
	}
	for p = p[have:]; len(p) > 0; {
		n := min(len(p), chunkSize)
		if err := insertChunk(ctx, t, key, size, p[:n]); err != nil {
			return 0, 0, err
		}
		size += int64(n)
		added += int64(n)
		p = p[n:]
	}
	if err := t.Commit(); err != nil {
		return 0, 0, fmt.Errorf("writing blob %s: %w", key, err)
	}
	return size, added, nil
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func blobSize(ctx context.Context, q rowQuerier, key string) (int64, error) {
	var size int64
	err := q.QueryRowContext(ctx,
		"SELECT start_at + size FROM blob_chunks WHERE blob_key = $1 ORDER BY start_at DESC LIMIT 1", key).Scan(&size)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the size of blob %s: %w", key, err)
	}
	return size, nil
}

// Size implements [Store].
func (b *Rows) Size(ctx context.Context, key string) (int64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	return blobSize(ctx, b.pool, key)
}

// Total implements [Store].
func (b *Rows) Total(ctx context.Context, prefix string) (int64, error) {
	if err := checkKey(prefix); err != nil {
		return 0, err
	}
	var total int64
	err := b.pool.QueryRowContext(ctx, `SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM blob_chunks
		WHERE blob_key = $1 OR (blob_key > $2 AND blob_key < $3)`, prefix, prefix+"/", prefix+"0").Scan(&total)
	if err != nil {
		return 0, fmt.Errorf("measuring blobs of %s: %w", prefix, err)
	}
	return total, nil
}

// Sync returns the blob's size. It has nothing to sync, because a committed row is durable.
func (b *Rows) Sync(ctx context.Context, key string, _ int64) (int64, error) {
	return b.Size(ctx, key)
}

// Delete implements [Store].
func (b *Rows) Delete(ctx context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	// '0' follows '/' in ASCII, so this range contains all keys below prefix.
	_, err := b.pool.ExecContext(ctx,
		"DELETE FROM blob_chunks WHERE blob_key = $1 OR (blob_key > $2 AND blob_key < $3)", prefix, prefix+"/", prefix+"0")
	if err != nil {
		return fmt.Errorf("removing blobs of %s: %w", prefix, err)
	}
	return nil
}

// Sweep implements [Store]. It measures ages by the database's clock.
func (b *Rows) Sweep(ctx context.Context, prefix string, age time.Duration, named func(keys []string) ([]string, error)) (int, error) {
	if err := checkKey(prefix); err != nil {
		return 0, err
	}
	removed := 0
	after := prefix + "/"
	for {
		keys, err := b.olderThan(ctx, after, prefix+"0", age)
		if err != nil {
			return removed, fmt.Errorf("removing unused blobs: %w", err)
		}
		n, err := deleteUnnamed(ctx, b, keys, named)
		removed += n
		if err != nil {
			return removed, fmt.Errorf("removing unused blobs: %w", err)
		}
		if len(keys) < sweepPiece {
			return removed, nil
		}
		after = keys[len(keys)-1]
	}
}

// olderThan returns, in order, a batch of the keys within a range whose newest row is older than
// age.
func (b *Rows) olderThan(ctx context.Context, after, end string, age time.Duration) ([]string, error) {
	rows, err := b.pool.QueryContext(ctx, fmt.Sprintf(`SELECT blob_key FROM blob_chunks WHERE blob_key > $1 AND blob_key < $2
		GROUP BY blob_key HAVING MAX(written_at) < now() - $3 * interval '1 microsecond' ORDER BY blob_key LIMIT %d`, sweepPiece),
		after, end, age.Microseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}
