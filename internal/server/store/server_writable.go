package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/sys/diskspace"
	"workflowagent/internal/words"
)

const (
	// writableFor is the time for which a result of [DB.Writable] is valid.
	writableFor     = 5 * time.Second
	writableTimeout = 5 * time.Second
	// LeastSpace is the minimum free space on the disks of the database and the blobs, in bytes.
	LeastSpace = 32 << 20
)

type writable struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// Writable returns an error if the database or its disk rejects writes. It caches the result for a
// few seconds.
func (db *DB) Writable(ctx context.Context) error {
	w := &db.writable
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() && time.Since(w.at) < writableFor {
		return w.err
	}
	// Other callers share the result, so the check must not depend on this caller's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writableTimeout)
	defer cancel()
	w.err = db.tryWriting(ctx)
	w.at = time.Now()
	return w.err
}

func (db *DB) tryWriting(ctx context.Context) error {
	for _, dir := range db.Dirs() {
		if err := hasSpace(dir); err != nil {
			return err
		}
	}
	// Only a commit proves that the disk accepts writes, or that a replica was promoted.
	err := db.Write(ctx, scope.Free, func(tx *Tx) error {
		return tx.SetInstallation("writable", []byte(time.Now().UTC().Format(time.RFC3339)))
	})
	return fault.While(err, "testing whether the database accepts writes")
}

func hasSpace(dir string) error {
	_, free, err := diskspace.Of(dir)
	if err != nil {
		return fmt.Errorf("checking free disk space in %s: %w", dir, err)
	}
	if free < LeastSpace {
		return fmt.Errorf("the disk of %s has only %s of free space: free up space until %s are available", dir, words.Bytes(free), words.Bytes(LeastSpace))
	}
	return nil
}

// IsFull reports whether err was caused by a full disk, either the database's or the blobs'.
func IsFull(err error) bool { return database.IsFull(err) }
