package store_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// onBoth runs a test with the address of an empty database of each engine.
func onBoth(t *testing.T, test func(t *testing.T, dsn string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, storetest.PostgresURL(t)) })
}

// release is a program with the migrations of this one and further ones.
func release(t *testing.T, more map[string]string) database.Options {
	t.Helper()
	files := storetest.Migrations(t, "migrations", "9").(fstest.MapFS)
	for name, text := range more {
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text + ";\n")}
	}
	return database.Options{
		Log: storetest.Log(), BlobDir: t.TempDir(), Migrations: files, Timeouts: database.Timeouts{Older: time.Millisecond},
		Steps: map[int64]database.Step{372: nothing, 400: renameBeats, 670: nothing},
	}
}

// nothing and renameBeats stand for the steps of package store, which new databases do not need.
func nothing(context.Context, *sql.Tx, bool) error { return nil }

func renameBeats(ctx context.Context, tx *sql.Tx, _ bool) error {
	_, err := tx.ExecContext(ctx, "ALTER TABLE server_beat RENAME TO server_beats")
	return err
}

// The migrations of later releases. The first adds what replaces an old part; the second says that programs
// must know it; the third removes the old part.
var (
	expand   = map[string]string{"9910_expand.sql": "CREATE TABLE later (id BIGINT)"}
	exclude  = map[string]string{"9920_exclude.sql": "INSERT INTO oldest_programs (migration, release) VALUES (9910, 'v7.1.0')"}
	contract = map[string]string{"9930_contract.sql": "DROP TABLE used_challenges"}
)

func all(parts ...map[string]string) map[string]string {
	together := map[string]string{}
	for _, part := range parts {
		maps.Copy(together, part)
	}
	return together
}

func openRelease(t *testing.T, dsn string, more map[string]string) (*database.DB, error) {
	t.Helper()
	return database.Open(t.Context(), dsn, release(t, more))
}

func openThis(t *testing.T, dsn string, existing bool) error {
	t.Helper()
	db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: t.TempDir(), Existing: existing})
	if err == nil {
		err = db.Close()
	}
	return err
}

// TestDowngrade opens the database of a newer release with this program, and with one between the two.
func TestDowngrade(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		// The next release only adds, so that this program may use the database, also its commands.
		newer := must.Get(openRelease(t, dsn, expand))(t)
		must.OK(t, newer.Close())
		for _, existing := range []bool{false, true} {
			if err := openThis(t, dsn, existing); err != nil {
				t.Errorf("after an addition (existing: %v): %v", existing, err)
			}
		}
		// The release after it contracts.
		newest := must.Get(openRelease(t, dsn, all(expand, exclude, contract)))(t)
		must.OK(t, newest.Close())
		for _, existing := range []bool{false, true} {
			err := openThis(t, dsn, existing)
			old, ok := errors.AsType[*store.OldProgramError](err)
			if !ok || old.Oldest != "v7.1.0" || !strings.Contains(err.Error(), "install v7.1.0 or later, or restore a backup") {
				t.Errorf("after a contraction (existing: %v): %v", existing, err)
			}
		}
		between := must.Get(openRelease(t, dsn, expand))(t)
		if err := between.CheckProgram(t.Context()); err != nil {
			t.Errorf("the release that the contraction names: %v", err)
		}
		must.OK(t, between.Close())
		// A program of another branch knows neither all migrations nor the newest.
		if _, err := openRelease(t, dsn, map[string]string{"9915_branch.sql": "CREATE TABLE branch (id BIGINT)", "9910_expand.sql": "SELECT 1"}); err == nil || !strings.Contains(err.Error(), "another workflow-server") {
			t.Errorf("a program of another branch: %v", err)
		}
	})
}

// TestRunningPrograms upgrades a database that an older program has open.
func TestRunningPrograms(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		older := must.Get(store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: t.TempDir()}))(t)
		defer older.Close()
		must.OK(t, older.CheckProgram(t.Context()))
		next := must.Get(openRelease(t, dsn, expand))(t)
		must.OK(t, next.Close())
		must.OK(t, older.CheckProgram(t.Context()))
		newest := must.Get(openRelease(t, dsn, all(expand, exclude, contract)))(t)
		defer newest.Close()
		must.OK(t, newest.CheckProgram(t.Context()))
		if _, ok := errors.AsType[*store.OldProgramError](older.CheckProgram(t.Context())); !ok {
			t.Error("the older program may still use the database")
		}
	})
}

// TestContractionWaits checks that servers of earlier versions learn that they must stop before the schema
// changes, and have time to do so.
func TestContractionWaits(t *testing.T) {
	const pause = 300 * time.Millisecond
	dsn := storetest.PostgresURL(t)
	older := must.Get(store.Open(t.Context(), dsn, store.Options{Log: storetest.Log()}))(t)
	defer older.Close()
	o := release(t, expand)
	o.Timeouts.Older = pause
	var excluded time.Time
	o.Steps[9920] = func(ctx context.Context, tx *sql.Tx, _ bool) error {
		excluded = time.Now()
		_, err := tx.ExecContext(ctx, exclude["9920_exclude.sql"])
		return err
	}
	var contracted time.Time
	var known error
	o.Steps[9930] = func(ctx context.Context, _ *sql.Tx, _ bool) error {
		contracted, known = time.Now(), older.CheckProgram(ctx)
		return nil
	}
	newest := must.Get(database.Open(t.Context(), dsn, o))(t)
	defer newest.Close()
	if _, ok := errors.AsType[*store.OldProgramError](known); !ok {
		t.Errorf("when the schema changes, the older program learns %v", known)
	}
	if waited := contracted.Sub(excluded); waited < pause {
		t.Errorf("the migration waited only %s", waited)
	}
	must.OK(t, newest.Write(t.Context(), scope.Free, func(tx *database.Tx) error {
		_, err := tx.Exec("INSERT INTO later (id) VALUES (1)")
		return err
	}))
}

// TestMigrationsNameOlderPrograms checks that the author of each migration has decided whether older programs
// may use the schema after it.
func TestMigrationsNameOlderPrograms(t *testing.T) {
	files := must.Get(os.ReadDir("migrations"))(t)
	checked := 0
	for _, f := range files {
		if f.Name() <= "0590_oldest_programs.sql" {
			continue
		}
		checked++
		text := string(must.Get(os.ReadFile(filepath.Join("migrations", f.Name())))(t))
		if !strings.Contains(text, "INSERT INTO oldest_programs") && !strings.Contains(text, "\n-- Older programs can use the schema after this.\n") {
			t.Errorf(`%s neither adds a row to oldest_programs nor has the line "-- Older programs can use the schema after this."; see docs/adr/0058-oldest-programs.md`, f.Name())
		}
	}
	t.Logf("checked %d migrations", checked)
}

// TestBeforeUpdate checks when the function before an update is called, and that its error prevents the update.
func TestBeforeUpdate(t *testing.T) {
	onBoth(t, func(t *testing.T, dsn string) {
		calls := 0
		var fails error
		open := func(more map[string]string) error {
			o := release(t, more)
			o.BeforeUpdate = func(ctx context.Context, db *database.DB) error {
				calls++
				if err := db.Snapshot(ctx, func(*database.Snapshot) error { return nil }); err != nil {
					return err
				}
				return fails
			}
			db, err := database.Open(t.Context(), dsn, o)
			if err == nil {
				err = db.Close()
			}
			return err
		}
		must.OK(t, open(nil))
		must.OK(t, open(nil))
		if calls != 0 {
			t.Errorf("called %d times for an empty and a current database", calls)
		}
		fails = errors.New("no room")
		if err := open(expand); !errors.Is(err, fails) || calls != 1 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		fails = nil
		must.OK(t, open(expand))
		must.OK(t, open(expand))
		if calls != 2 {
			t.Errorf("called %d times, want 2", calls)
		}
	})
}
