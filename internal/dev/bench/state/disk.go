package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/dev/bench/site"
	"workflowagent/internal/dev/lab/child"
)

// disk is the size of the product's data, in bytes.
type disk struct{ states, events float64 }

// storedBytes returns the size of all rows and blobs. Engine events are counted separately, because they
// are kept for a shorter time.
func storedBytes(ctx context.Context, s *site.Site) (d disk, err error) {
	db, err := s.OpenSQLite("mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return d, err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT name, SUM(pgsize - unused) FROM dbstat GROUP BY name")
	if err != nil {
		return d, fmt.Errorf("reading table sizes: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table string
		var size float64
		if err := rows.Scan(&table, &size); err != nil {
			return d, fmt.Errorf("reading table sizes: %w", err)
		}
		if strings.Contains(table, "event") {
			d.events += size
		} else {
			d.states += size
		}
	}
	if err := rows.Err(); err != nil {
		return d, fmt.Errorf("reading table sizes: %w", err)
	}
	err = filepath.WalkDir(filepath.Join(s.Servers[0].DataDir, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the file has been removed
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case strings.Contains(path, "event"):
			d.events += float64(info.Size())
		default:
			d.states += float64(info.Size())
		}
		return nil
	})
	return d, err
}

const (
	// quiet is the time without changes after which the server is considered idle.
	quiet        = 3 * time.Second
	diskPatience = 2 * time.Minute
)

// settled waits until the server no longer stores or removes data, and returns the data's size.
func settled(ctx context.Context, s *site.Site) (disk, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, diskPatience, fmt.Errorf("the server still changes its files after %s", diskPatience))
	defer cancel()
	var before disk
	var since time.Time
	err := child.Poll(ctx, 500*time.Millisecond, func() (bool, error) {
		now, err := storedBytes(ctx, s)
		if err != nil || now != before {
			before, since = now, time.Now()
			return false, err
		}
		return time.Since(since) >= quiet, nil
	})
	return before, err
}
