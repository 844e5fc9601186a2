package storetest

import (
	"context"
	"database/sql"
	"strings"
	"testing"
)

// Occupy blocks writes to the database until release is called. dsn has the form of the server's
// setting.
func Occupy(t testing.TB, dsn string) (release func()) {
	t.Helper()
	driver, name, statements := "pgx", dsn, []string{"BEGIN", "LOCK TABLE updates, server_beats IN EXCLUSIVE MODE"}
	if file, ok := strings.CutPrefix(dsn, "sqlite:"); ok {
		driver, name, statements = "sqlite", file, []string{"PRAGMA busy_timeout = 10000", "BEGIN IMMEDIATE"}
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatalf("opening the database: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("closing the database: %v", err)
		}
	})
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatalf("connecting to the database: %v", err)
	}
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return func() {
		if _, err := conn.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK"); err != nil {
			t.Errorf("releasing the database: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: %v", err)
		}
	}
}
