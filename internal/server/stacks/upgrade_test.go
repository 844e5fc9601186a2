package stacks_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
)

// migrationsUntil returns the migrations of an earlier version, whose last migration is given.
func migrationsUntil(t *testing.T, last string) fs.FS {
	t.Helper()
	dir := filepath.Join("..", "store", "migrations")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := fstest.MapFS{}
	for _, f := range files {
		if f.Name() > last {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = &fstest.MapFile{Data: data}
	}
	return out
}

// TestStatesFromBeforeTheJournal opens a database whose schema predates journals and in which every
// state is stored whole. The exports of these states must not change.
func TestStatesFromBeforeTheJournal(t *testing.T) {
	for engine, address := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
		"postgres": func(t *testing.T) string { t.Helper(); return storetest.PostgresURL(t) },
	} {
		t.Run(engine, func(t *testing.T) {
			dsn, blobs := address(t), t.TempDir()
			old := storeOldStates(t, dsn, blobs)
			db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: blobs})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s := &stackTest{t: t, db: db, stack: store.Stack{ID: "s1"}}
			s.service = s.replica(db)
			s.stack = s.reloaded()
			s.user = identity.Principal{Kind: identity.KindOrg, Org: store.Organization{ID: "o1"}}
			for version, want := range old {
				if got := s.exported(version); got != want {
					t.Errorf("version %d is %.200s, want %.200s", version, got, want)
				}
			}
			u := s.start(stacks.KindUpdate, 1)
			s.record(u, replaces(1, 1, 0, "new"))
			s.finish(u)
			running := s.exported(3)
			s.fold()
			if row := s.row(3); row.Form != store.Delta || row.Parent != "stacks/s1/k2" {
				t.Errorf("the next version is a %s of %q", row.Form, row.Parent)
			}
			if n, err := s.service.SweepStatesOlder(t.Context(), -time.Hour); n != 0 || err != nil {
				t.Errorf("%d blobs were removed, %v", n, err)
			}
			old[3] = running
			for version, want := range old {
				if got := s.exported(version); got != want {
					t.Errorf("after the next update, version %d is %.200s, want %.200s", version, got, want)
				}
			}
		})
	}
}

// storeOldStates creates a database with a stack of two versions, and returns their exports.
func storeOldStates(t *testing.T, dsn, blobs string) map[int64]string {
	t.Helper()
	db, err := database.Open(t.Context(), dsn, database.Options{
		Log: storetest.Log(), BlobDir: blobs, Migrations: migrationsUntil(t, "0081"),
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[int64]string{}
	statements := []string{
		"INSERT INTO organizations (id, name, display_name, created_at) VALUES ('o1', 'acme', 'acme', 1)",
		`INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version, state_blob, state_schema, resource_count,
			active_update, last_update_at, config) VALUES ('s1', 'o1', 'proj', 'dev', '', 1, 2, 'stacks/s1/k2', 3, 200, '', 1, '')`,
	}
	for version, n := range map[int64]int{1: 100, 2: 200} {
		var list []string
		for _, name := range names(n) {
			list = append(list, resource(name))
		}
		out[version] = `{"version":3,"deployment":{"resources":[` + strings.Join(list, ",") + `]}}`
		digit := string(rune('0' + version))
		if err := db.Blobs().Put(t.Context(), "stacks/s1/k"+digit, packed(t, out[version])); err != nil {
			t.Fatal(err)
		}
		statements = append(statements, `INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id,
			program, created_at, started_at, finished_at, lease_hash, lease_expires_at, reason, state_blob, state_schema, resource_count,
			resource_changes, next_sequence) VALUES ('u`+digit+`', 's1', 'update', 0, 'succeeded', `+digit+`, '', '', '{}', 1, 1, 1, '', 1, '',
			'stacks/s1/k`+digit+`', 3, 100, '', 0)`)
	}
	err = db.Write(t.Context(), func(tx *database.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func packed(t *testing.T, text string) io.Reader {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}
