package postgres

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"testing"

	"workflowagent/internal/dev/must"

	"github.com/jackc/pgx/v5"
)

func TestStart(t *testing.T) { testStart(t, Start) }

func TestStartInMemory(t *testing.T) { testStart(t, StartInMemory) }

func testStart(t *testing.T, start func(ctx context.Context, dir string, settings ...string) (string, func(), error)) {
	t.Helper()
	t.Parallel()
	if reason, ok := Available(); !ok {
		t.Skip(reason)
	}
	dsn, stop, err := start(t.Context(), t.TempDir(), "application_name=tried")
	must.OK(t, err)
	defer stop()
	conn := must.Get(pgx.Connect(t.Context(), dsn))(t)
	var fsync, encoding, data string
	var super bool
	err = conn.QueryRow(t.Context(), `SELECT current_setting('fsync'), current_setting('server_encoding'), current_setting('data_directory'), rolsuper
		FROM pg_roles WHERE rolname = current_user`).Scan(&fsync, &encoding, &data, &super)
	must.OK(t, err)
	if fsync != "off" || encoding != "UTF8" || !super {
		t.Errorf("fsync %s, encoding %s, superuser %v; want off, UTF8, true", fsync, encoding, super)
	}
	config := conn.Config().Copy()
	config.Password = "wrong"
	if other, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		_ = other.Close(t.Context())
		t.Error("a wrong password was accepted")
	}
	stop() // a client is still connected
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the server still answers after it was stopped")
	}
	if _, err := os.Stat(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the server's data is still in %s: %v", data, err)
	}
}

func TestStartReportsWhyItCannotStart(t *testing.T) {
	t.Parallel()
	if reason, ok := Available(); !ok {
		t.Skip(reason)
	}
	_, stop, err := Start(t.Context(), t.TempDir(), "no_such_setting=1")
	if err == nil {
		stop()
		t.Fatal("a server with a wrong setting started")
	}
	t.Log(err)
}
