package site

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of PostgreSQL
	_ "modernc.org/sqlite"             // the product's database

	"workflowagent/internal/dev/bench/figures"
	"workflowagent/internal/dev/lab/postgres"
)

// Database is PostgreSQL, which syncs its writes as SQLite does.
type Database struct {
	dsn  string
	log  string // file
	pid  int
	db   *sql.DB
	stop func()
}

func startDatabase(ctx context.Context, dir string, settings []string) (*Database, error) {
	dir = filepath.Join(dir, "postgres")
	settings = append([]string{"fsync=on", "shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_utility=on"}, settings...)
	dsn, stop, err := postgres.Start(ctx, dir, settings...)
	if err != nil {
		return nil, err
	}
	d := &Database{dsn: dsn, log: filepath.Join(dir, "postgres.log"), stop: stop}
	if d.db, err = sql.Open("pgx", dsn); err != nil {
		stop()
		return nil, fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	var file string
	if _, err = d.db.ExecContext(ctx, "CREATE EXTENSION pg_stat_statements"); err == nil {
		err = d.db.QueryRowContext(ctx, "SELECT pg_read_file('postmaster.pid')").Scan(&file)
	}
	if err == nil {
		first, _, _ := strings.Cut(file, "\n")
		d.pid, err = strconv.Atoi(first)
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("preparing PostgreSQL: %w", err)
	}
	return d, nil
}

// SQL returns the connections of the bench to the database.
func (d *Database) SQL() *sql.DB { return d.db }

func (d *Database) close() {
	_ = d.db.Close()
	d.stop()
}

// Work is what PostgreSQL has done since its start.
type Work struct {
	CPU        time.Duration
	Statements float64
	// Claims is the number of queries for claimable jobs, and each attempt to claim makes one.
	Claims float64
	// Repeated is the number of transactions that failed because of another, and Deadlocks that of
	// those that waited for each other.
	Repeated, Deadlocks float64
}

// Work reads the database's counters.
func (d *Database) Work(ctx context.Context) (w Work, err error) {
	const query = `SELECT COALESCE(SUM(calls), 0),
		COALESCE(SUM(calls) FILTER (WHERE query ~ 'FROM jobs j.*stack_queues.*ORDER BY j\.queued_at.*LIMIT'), 0) FROM pg_stat_statements`
	if err := d.db.QueryRowContext(ctx, query).Scan(&w.Statements, &w.Claims); err != nil {
		return w, fmt.Errorf("reading the statements of PostgreSQL: %w", err)
	}
	log, err := os.ReadFile(d.log)
	if err != nil {
		return w, fmt.Errorf("reading the log of PostgreSQL: %w", err)
	}
	w.Repeated = float64(strings.Count(string(log), "ERROR:  could not serialize access"))
	w.Deadlocks = float64(strings.Count(string(log), "ERROR:  deadlock detected"))
	w.CPU, err = figures.TreeCPU(d.pid)
	return w, err
}

// Used returns the work between two readings.
func (w Work) Used(since Work) Work {
	return Work{w.CPU - since.CPU, w.Statements - since.Statements, w.Claims - since.Claims, w.Repeated - since.Repeated, w.Deadlocks - since.Deadlocks}
}

// OpenSQLite opens the SQLite database of the first server, with parameters of the driver.
func (s *Site) OpenSQLite(parameters string) (*sql.DB, error) {
	files, err := filepath.Glob(filepath.Join(s.Servers[0].DataDir, "*.db"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("finding the server's database: %v: %w", files, errors.Join(err, os.ErrNotExist))
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?"+parameters)
	if err != nil {
		return nil, fmt.Errorf("opening the server's database: %w", err)
	}
	return db, nil
}
