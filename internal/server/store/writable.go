package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// writableFor is how long a result of [DB.Writable] is valid.
	writableFor     = 5 * time.Second
	writableTimeout = 5 * time.Second
	// minFree is the free space that the disks of the database and blobs need, in bytes.
	minFree = 32 << 20
)

type writable struct {
	mu   sync.Mutex
	at   time.Time
	err  error
	dirs []string // that must have free space
}

// Writable reports whether the database and its disk take writes, caching the result for seconds.
func (db *DB) Writable(ctx context.Context) error {
	w := &db.writable
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() && time.Since(w.at) < writableFor {
		return w.err
	}
	// Other callers share the result, so it must not depend on this caller's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writableTimeout)
	defer cancel()
	w.err = db.tryWriting(ctx)
	w.at = time.Now()
	return w.err
}

func (db *DB) tryWriting(ctx context.Context) error {
	for _, dir := range db.writable.dirs {
		if err := hasSpace(dir); err != nil {
			return err
		}
	}
	// Only a commit proves that the disk takes writes, or that a replica was promoted.
	err := db.Write(ctx, func(tx *Tx) error {
		return tx.SetInstallation("writable", []byte(time.Now().UTC().Format(time.RFC3339)))
	})
	if err != nil {
		return fmt.Errorf("trying to write to the database: %w", err)
	}
	return nil
}

func hasSpace(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("checking the disk of %s: %w", dir, err)
	}
	free := uint64(st.Bavail) * uint64(st.Bsize) //nolint:unconvert // the types differ by system
	if free < minFree {
		return fmt.Errorf("the disk of %s has only %d MiB left; make room, the server needs %d MiB", dir, free>>20, minFree>>20)
	}
	return nil
}

func dataDirs(file, blobs string) []string {
	if filepath.Dir(file) == blobs {
		return []string{blobs}
	}
	return []string{filepath.Dir(file), blobs}
}

// IsFull reports whether err means that the disk of the database or its blobs is full.
func IsFull(err error) bool {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return true
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()&0xff == sqlite3.SQLITE_FULL
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "53100" // disk_full
}
