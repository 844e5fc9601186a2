// Package storetest opens databases of both engines for tests.
package storetest

import (
	"context"
	"database/sql"
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
	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/server/store"
)

// PostgresEnv is the environment variable with the connection string of a PostgreSQL superuser. If
// it is not set, the tests start their own server, if PostgreSQL is installed.
const PostgresEnv = "WORKFLOW_TEST_POSTGRES"

// Log returns a logger that discards its entries.
func Log() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

// SQLite opens an empty SQLite database that is removed when the test finishes.
func SQLite(t testing.TB) *store.DB {
	t.Helper()
	dir := tempDir(t)
	return open(t, "sqlite:"+filepath.Join(dir, "server.db"), filepath.Join(dir, "blobs"), nil)
}

// SQLiteAt is like [SQLite], but the database uses clock.
func SQLiteAt(t testing.TB, clock store.Clock) *store.DB {
	t.Helper()
	dir := tempDir(t)
	return open(t, "sqlite:"+filepath.Join(dir, "server.db"), filepath.Join(dir, "blobs"), clock)
}

// tempDir is like t.TempDir, but the directory is in memory if enough memory is free, because these
// tests mostly wait for disk syncs.
func tempDir(t testing.TB) string {
	t.Helper()
	const memory, enough = "/dev/shm", 2 << 30
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < enough {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "storetest-")
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
	return open(t, postgres.database(t), "", nil)
}

// PostgresURL returns the address of a PostgreSQL database without tables, for upgrade tests. The
// database is removed when the test finishes.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return postgres.database(t)
}

// PostgresPair opens one empty PostgreSQL database twice, like two servers.
func PostgresPair(t testing.TB) (first, second *store.DB) {
	t.Helper()
	dsn := postgres.database(t)
	return open(t, dsn, "", nil), open(t, dsn, "", nil)
}

// PostgresDSN creates an empty PostgreSQL database that is removed when the test finishes. It
// returns the database's address, for tests that run servers as processes.
func PostgresDSN(t testing.TB) string {
	t.Helper()
	return postgres.database(t)
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
	defer postgres.stop()
	return m.Run()
}

func open(t testing.TB, dsn, blobs string, clock store.Clock) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), dsn, store.Options{Log: Log(), BlobDir: blobs, Clock: clock})
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

// postgres is the server that all tests of a test binary share.
var postgres server

type server struct {
	once    sync.Once
	dsn     string
	skip    string
	err     error
	halt    func()
	dir     string
	counter atomic.Int64
}

func (s *server) start() {
	if s.dsn = os.Getenv(PostgresEnv); s.dsn != "" {
		return
	}
	if reason, ok := lab.PostgresAvailable(); !ok {
		s.skip = "PostgreSQL cannot be started on this machine (" + reason + "); set " + PostgresEnv + " to use a running server"
		return
	}
	if s.dir, s.err = os.MkdirTemp("", "storetest"); s.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s.dsn, s.halt, s.err = lab.StartPostgres(ctx, s.dir)
}

func (s *server) stop() {
	if s.halt != nil {
		s.halt()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

func (s *server) database(t testing.TB) string {
	t.Helper()
	s.once.Do(s.start)
	if s.skip != "" {
		t.Skip(s.skip)
	}
	if s.err != nil {
		t.Fatalf("starting PostgreSQL: %v", s.err)
	}
	u, err := url.Parse(s.dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		t.Fatalf("%s must be a postgres:// address", PostgresEnv)
	}
	name := fmt.Sprintf("storetest_%d_%d", os.Getpid(), s.counter.Add(1))
	admin, err := sql.Open("pgx", s.dsn)
	if err != nil {
		t.Fatalf("connecting to PostgreSQL: %v", err)
	}
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatalf("creating a database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := admin.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("removing the database: %v", err)
		}
		if err := admin.Close(); err != nil {
			t.Errorf("closing the admin connection: %v", err)
		}
	})
	u.Path = "/" + name
	return u.String()
}
