package backup_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
)

// target is an empty installation of an engine.
type target struct {
	backup.Target
	open func() *store.DB
}

func newTarget(t *testing.T, engine string) target {
	t.Helper()
	dir := t.TempDir()
	to := backup.Target{
		DSN: "sqlite:" + filepath.Join(dir, "server.db"), MasterKey: keyring.Source{File: filepath.Join(dir, "master-key")},
		Options: store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")}, WithoutKey: true,
	}
	if engine == "postgres" {
		to.DSN = storetest.PostgresURL(t)
	}
	return target{to, func() *store.DB {
		t.Helper()
		o := to.Options
		o.Existing = true
		db := must.Get(store.Open(t.Context(), to.DSN, o))(t)
		t.Cleanup(func() { must.OK(t, db.Close()) })
		return db
	}}
}

func engines(t *testing.T) map[string]func(t *testing.T) *store.DB {
	t.Helper()
	return map[string]func(t *testing.T) *store.DB{
		"sqlite":   func(t *testing.T) *store.DB { t.Helper(); return storetest.SQLite(t) },
		"postgres": func(t *testing.T) *store.DB { t.Helper(); return storetest.Postgres(t) },
	}
}

// TestRestore backs up each engine, and restores to each.
func TestRestore(t *testing.T) {
	for from, open := range engines(t) {
		t.Run(from, func(t *testing.T) {
			s := newSite(t, open(t))
			secret := must.Get(s.ring.Encrypt(t.Context(), "s0", []byte("secret")))(t)
			s.write(func(tx *store.Tx) error {
				return errors.Join(
					tx.InsertPolicyPack(store.PolicyPack{ID: "pack", OrgID: "org", Name: "aws"}),
					tx.InsertPackVersion(store.PolicyPackVersion{ID: "v", PackID: "pack", Number: 1, Status: store.PackComplete, Blob: "policy-packs/v/1"}),
					tx.InsertPackVersion(store.PolicyPackVersion{ID: "w", PackID: "pack", Number: 2, Status: store.PackIncomplete}),
					tx.InsertEnvironment(store.Environment{ID: "env", OrgID: "org", Project: "app", Name: "prod", SealedKey: secret, LastNumber: 1}),
					tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: "env", Number: 1, Definition: "a: {fn::secret: {ciphertext: x}}\n"}),
					tx.SetInstallation("longest", bytes.Repeat([]byte("0123456789"), 200_000)),
				)
			})
			must.OK(t, s.db.Blobs().Put(t.Context(), "policy-packs/v/1", strings.NewReader("a pack")))
			must.OK(t, s.db.Blobs().Put(t.Context(), "stacks/s0/unnamed", strings.NewReader("a state whose row was not written yet")))
			must.OK(t, s.ring.Present(t.Context(), "id", "a server that does not run after a restore"))
			result := s.backup(backup.Request{Passphrase: passphrase})
			must.OK(t, s.ring.Absent(t.Context(), "id"))
			if n := result.Manifest.Blobs.Count; n != 10 {
				t.Errorf("the backup has %d blobs, want 10", n)
			}
			must.OK(t, s.db.Blobs().Delete(t.Context(), "stacks/s0/unnamed"))
			want := content(t, s.db, "stacks", "logs", "policy-packs")
			report := must.Get(backup.Verify(t.Context(), s.backups, ""))(t)
			if report.Path != result.Path || report.Manifest.Engine != from {
				t.Errorf("verified %s of %s, want %s of %s", report.Path, report.Manifest.Engine, result.Path, from)
			}
			for to := range engines(t) {
				t.Run(to, func(t *testing.T) {
					target := newTarget(t, to)
					target.Passphrase = passphrase
					restored := must.Get(backup.Restore(t.Context(), s.backups, target.Target))(t)
					if !restored.Key {
						t.Error("the key was not restored")
					}
					db := target.open()
					compare(t, content(t, db, "stacks", "logs", "policy-packs"), want)
					ring := must.Get(keyring.Open(t.Context(), db, must.Get((keyring.Source{File: target.MasterKey.File}).Load(t.Context()))(t)))(t)
					if text := must.Get(ring.Decrypt(t.Context(), "s0", secret))(t); string(text) != "secret" {
						t.Errorf("the secret is %q", text)
					}
					if _, err := backup.Restore(t.Context(), s.backups, target.Target); err == nil || !strings.Contains(err.Error(), "restore only into an empty") {
						t.Errorf("restoring twice: %v", err)
					}
				})
			}
		})
	}
}

// TestStrangeText checks that SQLite's text that is not UTF-8 survives, and that PostgreSQL refuses it.
func TestStrangeText(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	s.write(func(tx *store.Tx) error {
		if _, err := tx.Exec("UPDATE organizations SET display_name = $1", "not \xff UTF-8"); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE users SET name = $1", "nul \x00 inside")
		return err
	})
	s.backup(backup.Request{})
	to := newTarget(t, "sqlite")
	if restored := must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t); restored.Key {
		t.Error("the key was restored without being in the backup")
	}
	compare(t, content(t, to.open()), content(t, s.db))
	refusing := newTarget(t, "postgres")
	if _, err := backup.Restore(t.Context(), s.backups, refusing.Target); err == nil || !strings.Contains(err.Error(), "PostgreSQL cannot store one of its texts") {
		t.Errorf("PostgreSQL: %v", err)
	}
	// After the failure, the database is still empty.
	must.OK(t, os.RemoveAll(s.backups))
	s.write(func(tx *store.Tx) error {
		if _, err := tx.Exec("UPDATE organizations SET display_name = ''"); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE users SET name = ''")
		return err
	})
	s.backup(backup.Request{})
	must.Get(backup.Restore(t.Context(), s.backups, refusing.Target))(t)
}
