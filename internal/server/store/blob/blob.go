// Package blob keeps byte strings that are too large or too many for rows: in files
// next to a SQLite database, in chunks of rows in PostgreSQL.
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

// ErrNotFound says that no blob has the key.
var ErrNotFound = errors.New("not found")

// ErrGap says that an append would have left a hole. The append was
// refused and the returned size is the offset at which to continue.
var ErrGap = errors.New("the offset is beyond the end of the blob")

// Store keeps byte strings too large or too many for rows: logs that grow and
// checkpoints that are replaced. Keys are paths such as "logs/JOB/3" of
// segments of letters, digits, '-', '_' and '.'. Methods may be called
// concurrently, also for one key.
type Store interface {
	// Put stores all of r under key at once, replacing what was there: a
	// reader sees the old or the new bytes, and when Put returns nil the new
	// ones are durable.
	Put(ctx context.Context, key string, r io.Reader) error
	// Get opens a blob for reading, or returns [ErrNotFound].
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// ReadAt reads at most max bytes from offset on; fewer only at the end.
	// A missing blob reads as empty.
	ReadAt(ctx context.Context, key string, offset int64, limit int) ([]byte, error)
	// Append writes p at offset of a growing blob, which is created if
	// necessary, and returns the blob's size. Existing bytes are kept; an offset beyond the end is refused with [ErrGap].
	// What was appended is durable after Sync.
	Append(ctx context.Context, key string, offset int64, p []byte) (size int64, err error)
	// Size returns the size of a blob, 0 when there is none.
	Size(ctx context.Context, key string) (int64, error)
	// Sync makes all earlier appends to key durable and returns the size up
	// to which the blob now is.
	Sync(ctx context.Context, key string) (durable int64, err error)
	// Delete removes the blob named prefix and all blobs below prefix + "/".
	// Removing a missing blob is no error.
	Delete(ctx context.Context, prefix string) error
	// Sweep removes the blobs below prefix + "/" that nothing names and that were
	// last written longer ago than age, and returns how many those were. named is
	// asked about some keys at a time, and returns those that must stay.
	Sweep(ctx context.Context, prefix string, age time.Duration, named func(keys []string) (map[string]bool, error)) (int, error)
}

// sweepPiece is how many keys Sweep asks about at a time.
const sweepPiece = 100

// deleteUnnamed removes those of some blobs that nothing names.
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

// checkKey refuses keys that could leave the directory of the blobs.
func checkKey(key string) error {
	for seg := range strings.SplitSeq(key, "/") {
		if !segment.MatchString(seg) {
			return fmt.Errorf("the blob key %q is not made of plain path segments", key)
		}
	}
	return nil
}
