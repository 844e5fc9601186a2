// Package storetest opens databases of both engines for tests.
package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // for the admin connection that creates databases
	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/lab/memdir"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/server/store"
)

// PostgresEnv is the environment variable with the connection string of a PostgreSQL superuser. If
// it is not set, the tests start their own server, if PostgreSQL is installed.
const PostgresEnv = "WORKFLOW_TEST_POSTGRES"

// OnlyPostgresEnv is the environment variable that makes [OnSQLite] skip its tests. The race detector's tier sets no
// such variable, so a test of its packages runs once with each engine, except those that call [Unraced].
const OnlyPostgresEnv = "WORKFLOW_TEST_ONLY_POSTGRES"

// OnSQLite skips a test that does not need PostgreSQL if this run only repeats tests with PostgreSQL.
func OnSQLite(t testing.TB) {
	t.Helper()
	if os.Getenv(OnlyPostgresEnv) != "" {
		t.Skip("this run only repeats tests with PostgreSQL")
	}
}

// Unraced skips a test without concurrency if the race detector makes it slow and another run has it: that with a
// running PostgreSQL and without the race detector. The test must not call [OnSQLite], which would skip it there.
func Unraced(t testing.TB) {
	t.Helper()
	if raceDetector && os.Getenv(PostgresEnv) != "" {
		t.Skip("the tier postgres runs this test, without the race detector")
	}
}

// SQLiteUnraced is like [SQLite], for the tests of [Unraced].
func SQLiteUnraced(t testing.TB) *store.DB {
	t.Helper()
	Unraced(t)
	return sqliteAt(t, nil)
}

// Log returns a logger that discards its entries.
func Log() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// SQLite opens an empty SQLite database that is removed when the test finishes.
func SQLite(t testing.TB) *store.DB {
	t.Helper()
	return SQLiteAt(t, nil)
}

// SQLiteAt is like [SQLite], but the database uses clock.
func SQLiteAt(t testing.TB, clock store.Clock) *store.DB {
	t.Helper()
	OnSQLite(t)
	return sqliteAt(t, clock)
}

func sqliteAt(t testing.TB, clock store.Clock) *store.DB {
	t.Helper()
	dir := tempDir(t)
	file := filepath.Join(dir, "server.db")
	content, err := migratedFile()
	if err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	return open(t, "sqlite:"+file, filepath.Join(dir, "blobs"), clock)
}

// TemplatesEnv is the environment variable with a directory in which the packages of one run share what is the same
// for all of them. The run has one version of the migrations.
const TemplatesEnv = "WORKFLOW_TEST_TEMPLATES"

// migratedFile returns an SQLite database with the tables of the server, but without rows. Tests
// copy it, because a migration takes longer than most tests.
var migratedFile = sync.OnceValues(func() ([]byte, error) {
	templates := os.Getenv(TemplatesEnv)
	if templates == "" {
		return newMigratedFile()
	}
	path := filepath.Join(templates, "server.db")
	if content, err := os.ReadFile(path); err == nil {
		return content, nil
	}
	content, err := newMigratedFile()
	if err != nil {
		return nil, err
	}
	draft := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		return nil, err
	}
	return content, os.Rename(draft, path) // several packages can do this at the same time
})

func newMigratedFile() ([]byte, error) {
	dir, err := os.MkdirTemp(memdir.Parent(), "storetest-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "server.db")
	if err := migrate("sqlite:"+file, dir); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func migrate(dsn, blobs string) error {
	db, err := store.Open(context.Background(), dsn, store.Options{Log: Log(), BlobDir: blobs})
	if err != nil {
		return err
	}
	return db.Close()
}

// tempDir is like t.TempDir, but the directory is in memory if enough memory is free, because these
// tests mostly wait for disk syncs.
func tempDir(t testing.TB) string {
	t.Helper()
	parent := memdir.Parent()
	if parent == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(parent, "storetest-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing a directory in memory: %v", err)
		}
	})
	return dir
}

// Postgres opens an empty PostgreSQL database that is removed when the test finishes. It skips the
// test if no server is available. Packages that use it must call [Main].
func Postgres(t testing.TB) *store.DB {
	t.Helper()
	return open(t, PostgresDSN(t), "", nil)
}

// PostgresURL returns the address of a PostgreSQL database without tables, for upgrade tests. The
// database is removed when the test finishes.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return shared.database(t, "template1")
}

// PostgresPair opens one empty PostgreSQL database twice, like two servers.
func PostgresPair(t testing.TB) (first, second *store.DB) {
	t.Helper()
	dsn := PostgresDSN(t)
	return open(t, dsn, "", nil), open(t, dsn, "", nil)
}

// PostgresDSN creates an empty PostgreSQL database that is removed when the test finishes. It
// returns the database's address, for tests that run servers as processes.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	return shared.database(t, shared.migrated(t))
}

// PostgresOwn starts a PostgreSQL server with settings that stops when the test finishes. It returns the address of a
// database without tables.
func PostgresOwn(t testing.TB, settings ...string) string {
	t.Helper()
	shared.require(t)
	dsn, stop, err := postgres.Start(t.Context(), t.TempDir(), settings...)
	if err != nil {
		t.Fatalf("starting PostgreSQL: %v", err)
	}
	t.Cleanup(stop)
	return dsn
}

// PostgresAt opens the PostgreSQL database at an address, which can be that of a proxy.
func PostgresAt(t testing.TB, dsn string, timeouts store.Timeouts) *store.DB {
	t.Helper()
	return openWith(t, dsn, store.Options{Timeouts: timeouts})
}

// PostgresAlone is like [PostgresAt], but has a single connection for writes, reads and blobs. A write during
// which something else needs the database therefore never ends.
func PostgresAlone(t testing.TB, dsn string, timeouts store.Timeouts) *store.DB {
	t.Helper()
	return openWith(t, dsn, store.Options{Timeouts: timeouts, MaxConns: 1})
}

// Each runs a test with an empty database of each engine.
func Each(t *testing.T, test func(t *testing.T, db *store.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// Main runs a package's tests, and stops the PostgreSQL server if the tests started one. TestMain
// must pass the result to os.Exit.
func Main(m *testing.M) int {
	defer shared.stop()
	return m.Run()
}

func open(t testing.TB, dsn, blobs string, clock store.Clock) *store.DB {
	t.Helper()
	return openWith(t, dsn, store.Options{BlobDir: blobs, Clock: clock})
}

func openWith(t testing.TB, dsn string, o store.Options) *store.DB {
	t.Helper()
	o.Log = Log()
	db, err := store.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatalf("opening the database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing the database: %v", err)
		}
	})
	return db
}

// shared is the server that all tests of a test binary share.
var shared server

type server struct {
	once     sync.Once
	dsn      string
	skip     string
	err      error
	halt     func()
	dir      string
	counter  atomic.Int64
	template struct {
		once sync.Once
		name string // of a database with the tables of the server, but without rows
		err  error
	}
}

func (s *server) start() {
	if s.dsn = os.Getenv(PostgresEnv); s.dsn != "" {
		return
	}
	if reason, ok := postgres.Available(); !ok {
		s.skip = "PostgreSQL cannot be started on this machine (" + reason + "); set " + PostgresEnv + " to use a running server"
		return
	}
	if s.dir, s.err = os.MkdirTemp("", "storetest"); s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s.dsn, s.halt, s.err = postgres.StartInMemory(ctx, s.dir)
}

func (s *server) stop() {
	if s.template.name != "" {
		_ = s.admin(context.Background(), "DROP DATABASE IF EXISTS "+s.template.name+" WITH (FORCE)")
	}
	if s.halt != nil {
		s.halt()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// require starts the server, or skips the test if the machine has none or tests must be short.
func (s *server) require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("tests with -short use SQLite only")
	}
	s.once.Do(s.start)
	if s.skip != "" {
		t.Skip(s.skip)
	}
	if s.err != nil {
		t.Fatalf("starting PostgreSQL: %v", s.err)
	}
}

// migrated returns the name of the template database, which it creates if necessary.
func (s *server) migrated(t testing.TB) string {
	t.Helper()
	s.require(t)
	s.template.once.Do(func() {
		s.template.name = fmt.Sprintf("storetest_%d_template", os.Getpid())
		if s.template.err = s.admin(t.Context(), "CREATE DATABASE "+s.template.name); s.template.err == nil {
			dsn := s.address(t, s.template.name)
			if s.template.err = migrate(dsn, ""); s.template.err == nil {
				s.template.err = guard(t.Context(), dsn)
			}
		}
	})
	if s.template.err != nil {
		t.Fatalf("creating the template of databases: %v", s.template.err)
	}
	return s.template.name
}

// database creates a copy of a database and returns its address.
func (s *server) database(t testing.TB, template string) string {
	t.Helper()
	s.require(t)
	name := fmt.Sprintf("storetest_%d_%d", os.Getpid(), s.counter.Add(1))
	if err := s.admin(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+template); err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if n, err := s.deadlocks(ctx, name); err != nil || n > 0 {
			t.Errorf("the writes of the test met %d deadlocks (%v), want none", n, err)
		}
		if err := s.admin(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("removing the database: %v", err)
		}
	})
	return s.address(t, name)
}

// closeTime bounds the wait for the end of the connections that a test has closed.
const closeTime = 5 * time.Second

// deadlocks returns the number of deadlocks in a database since its creation. A connection reports its own
// when it has ended, so deadlocks waits for the connections that a test has closed.
func (s *server) deadlocks(ctx context.Context, database string) (n int, err error) {
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const query = "SELECT deadlocks, numbackends FROM pg_stat_database WHERE datname = $1"
	for began, open := time.Now(), 1; open > 0 && time.Since(began) < closeTime; <-time.After(time.Millisecond) {
		if err = db.QueryRowContext(ctx, query, database).Scan(&n, &open); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *server) address(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(s.dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		t.Fatalf("%s must be a postgres:// address", PostgresEnv)
	}
	u.Path = "/" + database
	return u.String()
}

// admin runs a statement on a connection of the superuser.
func (s *server) admin(ctx context.Context, statement string) error {
	return Execute(ctx, s.dsn, statement)
}

// Execute runs a statement on the PostgreSQL database at an address, as an operator does.
func Execute(ctx context.Context, dsn, statement string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
