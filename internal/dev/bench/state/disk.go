package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the product's default database

	"workflowagent/internal/dev/lab"
)

// disk is the size of the product's data, in bytes.
type disk struct{ states, events float64 }

// openDatabase opens the product's database for reading.
func (p *product) openDatabase() (*sql.DB, error) {
	files, err := filepath.Glob(filepath.Join(p.DataDir, "*.db"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("finding the server's database: %v in %s: %w", files, p.DataDir, errors.Join(err, os.ErrNotExist))
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?mode=ro&_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return nil, fmt.Errorf("opening the server's database: %w", err)
	}
	return db, nil
}

// stored returns the size of all rows and blobs. Engine events are counted separately, because they
// are kept for a shorter time.
func (p *product) stored(ctx context.Context) (d disk, err error) {
	db, err := p.openDatabase()
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
	err = filepath.WalkDir(filepath.Join(p.DataDir, "blobs"), func(path string, entry fs.DirEntry, err error) error {
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
func (p *product) settled(ctx context.Context) (disk, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, diskPatience, fmt.Errorf("the server still changes its files after %s", diskPatience))
	defer cancel()
	var before disk
	var since time.Time
	err := lab.Poll(ctx, 500*time.Millisecond, func() (bool, error) {
		now, err := p.stored(ctx)
		if err != nil || now != before {
			before, since = now, time.Now()
			return false, err
		}
		return time.Since(since) >= quiet, nil
	})
	return before, err
}
