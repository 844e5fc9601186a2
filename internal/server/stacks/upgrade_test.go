package stacks_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

// engines contains functions that return the address of a new database.
var engines = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "a.db") },
	"postgres": func(t *testing.T) string { t.Helper(); return storetest.PostgresURL(t) },
}

// TestStatesFromBeforeTheJournal opens a database whose schema predates journals and in which every
// state is stored whole. The exports of these states must not change.
func TestStatesFromBeforeTheJournal(t *testing.T) {
	for engine, address := range engines {
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
	out, states := map[int64]string{}, map[string]io.Reader{}
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
		states["stacks/s1/k"+digit] = packed(t, out[version])
		statements = append(statements, `INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id,
			program, created_at, started_at, finished_at, lease_hash, lease_expires_at, reason, state_blob, state_schema, resource_count,
			resource_changes, next_sequence) VALUES ('u`+digit+`', 's1', 'update', 0, 'succeeded', `+digit+`, '', '', '{}', 1, 1, 1, '', 1, '',
			'stacks/s1/k`+digit+`', 3, 100, '', 0)`)
	}
	storeOld(t, dsn, blobs, "0081", statements, states)
	return out
}

// storeOld creates a database of an earlier version, whose last migration is given, and fills it.
func storeOld(t *testing.T, dsn, dir, last string, statements []string, blobs map[string]io.Reader) {
	t.Helper()
	db, err := database.Open(t.Context(), dsn, database.Options{Log: storetest.Log(), BlobDir: dir, Migrations: storetest.Migrations(t, filepath.Join("..", "store", "migrations"), last)})
	if err != nil {
		t.Fatal(err)
	}
	for key, content := range blobs {
		if err := db.Blobs().Put(t.Context(), key, content); err != nil {
			t.Fatal(err)
		}
	}
	err = db.Write(t.Context(), scope.Server(), func(tx *database.Tx) error {
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

// TestEventsFromBeforeBatches opens a database that stores each event in a row. Clients continue the
// update, and resend events that an earlier version has stored.
func TestEventsFromBeforeBatches(t *testing.T) {
	for engine, address := range engines {
		t.Run(engine, func(t *testing.T) {
			dsn, blobs := address(t), t.TempDir()
			statements := []string{
				"INSERT INTO organizations (id, name, display_name, created_at) VALUES ('o1', 'acme', 'acme', 1)",
				`INSERT INTO stacks (id, org_id, project, name, created_by, created_at, version, state_blob, state_schema, resource_count,
					active_update, last_update_at, config) VALUES ('s1', 'o1', 'proj', 'dev', '', 1, 0, '', 0, 0, '', 1, '')`,
				`INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id, program, created_at,
					started_at, finished_at, lease_hash, lease_expires_at, reason, state_blob, state_schema, resource_count, resource_changes,
					next_sequence) VALUES ('u1', 's1', 'preview', 1, 'running', 1, '', '', '{}', 1, 1, 0, '', 9000000000000000, '', '', 0, 0, '', 3)`,
			}
			for _, sequence := range []int{0, 1, 2, 5, 6} {
				statements = append(statements, fmt.Sprintf("INSERT INTO engine_events (update_id, sequence, body) VALUES ('u1', %d, '%s')",
					sequence, sent(sequence, 1)))
			}
			storeOld(t, dsn, blobs, "0099", statements, nil)
			db, err := store.Open(t.Context(), dsn, store.Options{Log: storetest.Log(), BlobDir: blobs})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			s := &stackTest{t: t, db: db, stack: store.Stack{ID: "s1"}}
			s.service = s.replica(db)
			u := s.reload(store.Update{ID: "u1"})
			check := func(token string, want ...json.RawMessage) {
				t.Helper()
				got, _ := s.events(u, token, "")
				if diff := cmp.Diff(want, raw(got)); diff != "" {
					t.Errorf("events from %q on (-want +got):\n%s", token, diff)
				}
			}
			check("", sent(0, 1), sent(1, 1), sent(2, 1))
			batch := []json.RawMessage{}
			for sequence := range 9 {
				batch = append(batch, sent(sequence, 2))
			}
			s.must(s.service.RecordEvents(t.Context(), u, batch))
			check("1", sent(1, 1), sent(2, 1), sent(3, 2), sent(4, 2), sent(5, 1), sent(6, 1), sent(7, 2), sent(8, 2))
			var left int64
			s.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				if _, err := tx.ExpireEvents("u1", 100); err != nil {
					return err
				}
				left, err = tx.LastSequence("u1")
				return err
			}))
			if left != -1 {
				t.Errorf("event %d was not removed", left)
			}
		})
	}
}

func raw(list []string) []json.RawMessage {
	var out []json.RawMessage
	for _, e := range list {
		out = append(out, json.RawMessage(e))
	}
	return out
}
