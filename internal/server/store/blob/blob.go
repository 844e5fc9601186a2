// Package blob stores byte strings that are too large or too numerous for ordinary rows. It stores
// them as files next to a SQLite database, or as chunks in rows of PostgreSQL.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/workflow"
)

// ErrNotFound reports that no blob has the key.
var ErrNotFound = errors.New("not found")

// ErrGap reports an append at an offset beyond the blob's end. Append then returns the blob's size,
// which is the next valid offset.
var ErrGap = errors.New("the offset is beyond the end of the blob")

// Store stores blobs: logs, which grow, and checkpoints, which are replaced. Keys are paths such as
// "logs/JOB/3", whose segments consist of letters, digits, '-', '_' and '.'. Methods may be called
// concurrently, even for the same key.
type Store interface {
	// Put atomically replaces the blob under key with the contents of r. Concurrent readers receive
	// either the old or the new contents. The new contents are durable when Put returns nil.
	Put(ctx context.Context, key string, r io.Reader) error
	// Get opens a blob for reading, or returns [ErrNotFound].
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// ReadAt fills p from an offset and returns the number of bytes, which is less than len(p) only
	// at the blob's end. A missing blob reads as empty.
	ReadAt(ctx context.Context, key string, offset int64, p []byte) (int, error)
	// Append writes p at offset and returns the blob's size. It creates the blob if necessary. It
	// never overwrites existing bytes: only the last added bytes of p were written, which are the
	// last of the blob. It returns [ErrGap] if offset is beyond the end. The bytes are durable
	// after Sync.
	Append(ctx context.Context, key string, offset int64, p []byte) (size, added int64, err error)
	// Size returns the size of a blob, or 0 if the blob is missing.
	Size(ctx context.Context, key string) (int64, error)
	// Total returns the size of the blob whose key is prefix and of all blobs below prefix + "/".
	Total(ctx context.Context, prefix string) (int64, error)
	// Sync makes all earlier appends to key durable and returns the size of the durable part. The
	// caller knows that safe bytes are durable already. If the disk fails, Sync removes the bytes after
	// them, because the operating system may discard them and let the next sync succeed.
	Sync(ctx context.Context, key string, safe int64) (durable int64, err error)
	// Delete removes the blob whose key is prefix and all blobs below prefix + "/", if any.
	Delete(ctx context.Context, prefix string) error
	// Sweep removes unreferenced blobs below prefix + "/" that were last written longer than age
	// ago. It returns their number. named receives keys in batches and returns the keys to retain.
	Sweep(ctx context.Context, prefix string, age time.Duration, named func(keys []string) ([]string, error)) (int, error)
}

const sweepPiece = 100

func deleteUnnamed(ctx context.Context, b Store, keys []string, named func(keys []string) ([]string, error)) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	stay, err := named(keys)
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, key := range keys {
		if slices.Contains(stay, key) {
			continue
		}
		if err := b.Delete(ctx, key); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// checkKey returns an error for a key that could escape the blob directory.
func checkKey(key string) error {
	for seg := range strings.SplitSeq(key, "/") {
		if !workflow.MadeOf(seg, 128, "_-", "_.-") {
			return fmt.Errorf("invalid blob key %q: segments must consist of letters, digits, '-', '_' and '.'", key)
		}
	}
	return nil
}
