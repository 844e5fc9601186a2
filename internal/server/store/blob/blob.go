// Package blob stores byte strings too large or too many for ordinary rows: in files next to a
// SQLite database, in chunks of rows in PostgreSQL.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// ErrNotFound reports that no blob has the key.
var ErrNotFound = errors.New("not found")

// ErrGap reports a refused append beyond the end. The returned size is where to continue.
var ErrGap = errors.New("the offset is beyond the end of the blob")

// Store stores logs, which grow, and checkpoints, which are replaced. Keys are paths such as
// "logs/JOB/3", whose segments consist of letters, digits, '-', '_' and '.'. Methods may be called
// concurrently, also for one key.
type Store interface {
	// Put atomically stores all of r under key: readers see the old or the new bytes, and the new
	// ones are durable when Put returns nil.
	Put(ctx context.Context, key string, r io.Reader) error
	// Get opens a blob for reading, or returns [ErrNotFound].
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// ReadAt reads at most limit bytes, fewer only at the end. A missing blob reads as empty.
	ReadAt(ctx context.Context, key string, offset int64, limit int) ([]byte, error)
	// Append writes p at offset, creating the blob if necessary, and returns its size. It keeps
	// existing bytes, refuses a gap with [ErrGap], and is durable after Sync.
	Append(ctx context.Context, key string, offset int64, p []byte) (size int64, err error)
	// Size returns the size of a blob, 0 if it is missing.
	Size(ctx context.Context, key string) (int64, error)
	// Sync makes all earlier appends to key durable and returns the durable size.
	Sync(ctx context.Context, key string) (durable int64, err error)
	// Delete removes the blob named prefix and those below prefix + "/", if any.
	Delete(ctx context.Context, prefix string) error
	// Sweep removes unnamed blobs below prefix + "/" last written longer than age ago and returns
	// their number. named receives some keys at a time and returns those to keep.
	Sweep(ctx context.Context, prefix string, age time.Duration, named func(keys []string) (map[string]bool, error)) (int, error)
}

const sweepPiece = 100

func deleteUnnamed(ctx context.Context, b Store, keys []string, named func(keys []string) (map[string]bool, error)) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	stay, err := named(keys)
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, key := range keys {
		if stay[key] {
			continue
		}
		if err := b.Delete(ctx, key); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

var segment = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$`)

// checkKey refuses keys that could leave the blobs' directory.
func checkKey(key string) error {
	for seg := range strings.SplitSeq(key, "/") {
		if !segment.MatchString(seg) {
			return fmt.Errorf("the blob key %q is not made of plain path segments", key)
		}
	}
	return nil
}
