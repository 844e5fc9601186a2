package backup_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) {
	backup.LowerSealWork()
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	os.Exit(storetest.Main(m))
}

const passphrase = "correct horse battery staple"

// site is an installation with a master key and a directory for backups.
type site struct {
	t       *testing.T
	db      *store.DB
	ring    *keyring.Ring
	key     string // the file of the master key
	backups string
}

func newSite(t *testing.T, db *store.DB) site {
	t.Helper()
	dir := t.TempDir()
	s := site{t: t, db: db, key: filepath.Join(dir, "master-key"), backups: filepath.Join(dir, "backups")}
	s.ring = must.Get(keyring.Open(t.Context(), db, must.Get((keyring.Source{File: s.key, Create: true}).Load(t.Context()))(t)))(t)
	s.write(func(tx *store.Tx) error {
		// A row for each kind of value that is hard to copy.
		for name, value := range map[string][]byte{"empty": {}, "zero": {0}, "binary": {0xff, 0xfe, '\n', '"', 0}, "long": bytes.Repeat([]byte("0123456789"), 10_000)} {
			if err := tx.SetInstallation(name, value); err != nil {
				return err
			}
		}
		if err := tx.InsertOrganization(store.Organization{ID: "org", Name: "acme", DisplayName: "\u2028 <é> \\ \"quoted\" \t\r\n"}); err != nil {
			return err
		}
		return tx.InsertUser(store.User{ID: "user", Login: "ann"})
	})
	for i := range 3 {
		s.addStack(fmt.Sprint("s", i))
	}
	s.write(func(tx *store.Tx) error { return tx.DeleteStack("s2", "ann") }) // can be restored, so backups contain it
	return s
}

func (s site) write(fn func(*store.Tx) error) {
	s.t.Helper()
	must.OK(s.t, s.db.Write(s.t.Context(), scope.Server(), fn))
}

// addStack adds a stack with two states and the log of a job.
func (s site) addStack(id string) {
	s.t.Helper()
	must.OK(s.t, addStack(s.t.Context(), s.db, id))
}

func addStack(ctx context.Context, db *store.DB, id string) error {
	key := "stacks/" + id + "/"
	for _, name := range []string{"b", "a"} {
		if err := db.Blobs().Put(ctx, key+name, strings.NewReader("state "+name+" of "+id+strings.Repeat("x", 100))); err != nil {
			return err
		}
	}
	if _, _, err := db.Blobs().Append(ctx, "logs/job-"+id+"/1/0", 0, []byte("line\n")); err != nil {
		return err
	}
	return db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		if err := tx.InsertStack(store.Stack{ID: id, OrgID: "org", Project: "p", Name: id, StateBlob: key + "a"}); err != nil {
			return err
		}
		for _, name := range []string{"a", "b"} {
			if err := tx.InsertState(store.State{Key: key + name, StackID: id, Form: store.Full, Blob: key + name}); err != nil {
				return err
			}
		}
		if err := tx.InsertDeployment(store.Deployment{ID: "deployment-" + id, OrgID: "org", StackID: id}); err != nil {
			return err
		}
		return tx.InsertJob(store.Job{ID: "job-" + id, DeploymentID: "deployment-" + id, OrgID: "org", StackID: id})
	})
}

func (s site) source() backup.Source {
	return backup.Source{DB: s.db, Version: "v1", MasterKey: keyring.Source{File: s.key}, Log: storetest.Log()}
}

func (s site) backup(q backup.Request) backup.Result {
	s.t.Helper()
	q.Dir = s.backups
	return must.Get(backup.Write(s.t.Context(), s.source(), q, func(backup.Progress) {}))(s.t)
}

// content returns the rows of all tables and the blobs, as text.
func content(t *testing.T, db *store.DB, prefixes ...string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	must.OK(t, db.Snapshot(t.Context(), func(s *store.Snapshot) error {
		relations, err := s.Relations()
		if err != nil {
			return err
		}
		for _, r := range relations {
			// The order of columns can differ.
			slices.SortFunc(r.Columns, func(a, b store.Column) int { return strings.Compare(a.Name, b.Name) })
			rows := []string{}
			err := s.EachRow(r, func(values []any) error { rows = append(rows, fmt.Sprintf("%q", values)); return nil })
			if err != nil {
				return err
			}
			slices.Sort(rows)
			all[r.Name] = rows
		}
		for _, prefix := range prefixes {
			keys, err := s.Blobs.Keys(t.Context(), prefix)
			if err != nil {
				return err
			}
			for _, key := range keys {
				r, err := s.Blobs.Open(t.Context(), key)
				if err != nil {
					return err
				}
				data, err := io.ReadAll(r)
				if err := errors.Join(err, r.Close()); err != nil {
					return err
				}
				all["blobs"] = append(all["blobs"], key+" "+string(data))
			}
		}
		return nil
	}))
	// Only a restore adds it.
	all["installation"] = slices.DeleteFunc(all["installation"], func(row string) bool { return strings.HasPrefix(row, `["restored"`) })
	return all
}

func compare(t *testing.T, got, want map[string][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d tables, want %d", len(got), len(want))
	}
	for name := range want {
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s: got %.2000q, want %.2000q", name, got[name], want[name])
		}
	}
}

// TestWriters backs up while writers add stacks, and remove blobs. The backup contains each stack with all that belongs
// to it, or not at all.
func TestWriters(t *testing.T) {
	for engine, open := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, open(t))
			var writers sync.WaitGroup
			written := make(chan struct{}, 1)
			for n := range 3 {
				writers.Go(func() {
					for i := range 40 {
						id := fmt.Sprintf("w%d-%d", n, i)
						if err := addStack(t.Context(), s.db, id); err != nil {
							t.Error(err)
							return
						}
						if i%2 == 1 {
							if err := removeStack(t.Context(), s.db, id); err != nil {
								t.Error(err)
								return
							}
						}
						select {
						case written <- struct{}{}:
						default:
						}
					}
				})
			}
			<-written
			result := s.backup(backup.Request{})
			writers.Wait()
			if len(result.Manifest.Missing) > 0 {
				t.Errorf("the backup misses %v", result.Manifest.Missing)
			}
			to := newTarget(t, "sqlite")
			must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t)
			checkComplete(t, to.open())
		})
	}
}

func removeStack(ctx context.Context, db *store.DB, id string) error {
	err := db.Write(ctx, scope.Server(), func(tx *store.Tx) error {
		for _, table := range []string{"jobs", "deployments", "states"} {
			if _, err := tx.Exec("DELETE FROM "+table+" WHERE stack_id = $1", id); err != nil {
				return err
			}
		}
		_, err := tx.Exec("DELETE FROM stacks WHERE id = $1", id)
		return err
	})
	return errors.Join(err, db.Blobs().Delete(ctx, "stacks/"+id), db.Blobs().Delete(ctx, "logs/job-"+id))
}

// checkComplete checks that each stack has its states and its log.
func checkComplete(t *testing.T, db *store.DB) {
	t.Helper()
	must.OK(t, db.Snapshot(t.Context(), func(s *store.Snapshot) error {
		ids, err := s.StackIDs("", 1_000_000)
		if err != nil || len(ids) < 3 {
			t.Errorf("the stacks are %v, %v", ids, err)
		}
		for _, id := range ids {
			for _, key := range []string{"stacks/" + id + "/a", "stacks/" + id + "/b", "logs/job-" + id + "/1/0"} {
				if _, err := s.Blobs.Stat(t.Context(), key); err != nil {
					t.Errorf("the blob %s: %v", key, err)
				}
			}
		}
		return nil
	}))
}

// TestUnchangedBlobs checks that a backup shares unchanged blobs with the previous one, and no others.
func TestUnchangedBlobs(t *testing.T) {
	for engine, open := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			s := newSite(t, open(t))
			first := s.backup(backup.Request{})
			s.addStack("new")
			if _, _, err := s.db.Blobs().Append(t.Context(), "logs/job-s1/1/0", 5, []byte("more\n")); err != nil {
				t.Fatal(err)
			}
			must.OK(t, s.db.Blobs().Put(t.Context(), "stacks/s2/a", strings.NewReader("STATE a of s2"+strings.Repeat("x", 100)))) // of the same size
			second := s.backup(backup.Request{})
			if first.Linked != 0 || second.Linked != 7 || second.Manifest.Blobs.Count != 12 {
				t.Errorf("linked %d and %d of %d blobs, want 0 and 7 of 12", first.Linked, second.Linked, second.Manifest.Blobs.Count)
			}
			log := filepath.Join("blobs", "logs", "job-s1", "1", "0")
			for path, want := range map[string]string{first.Path: "line\n", second.Path: "line\nmore\n"} {
				if got := must.Get(os.ReadFile(filepath.Join(path, log)))(t); string(got) != want {
					t.Errorf("%s contains the log %q, want %q", path, got, want)
				}
			}
			third := s.backup(backup.Request{Keep: 1})
			if third.Linked != 12 || !slices.Equal(third.Removed, []string{filepath.Base(first.Path), filepath.Base(second.Path)}) || third.Unremoved != nil {
				t.Errorf("linked %d, removed %v, %v", third.Linked, third.Removed, third.Unremoved)
			}
			must.Get(backup.Verify(t.Context(), s.backups, ""))(t)
		})
	}
}

// TestHeldBlobs checks that a removal waits for the snapshot, also if the process does not survive that.
func TestHeldBlobs(t *testing.T) {
	storetest.OnSQLite(t)
	dir := t.TempDir()
	files := must.Get(blob.NewFiles(dir))(t)
	const key, other = "stacks/a/b", "stacks/c/d"
	for _, k := range []string{key, other} {
		must.OK(t, files.Put(t.Context(), k, strings.NewReader("state")))
	}
	all := func([]string) ([]string, error) { return nil, nil }
	release := files.Hold()
	second := files.Hold()
	must.OK(t, files.Delete(t.Context(), "stacks/a"))
	if n := must.Get(files.Sweep(t.Context(), "stacks", 0, all))(t); n != 0 {
		t.Errorf("a sweep removed %d blobs", n)
	}
	must.OK(t, release())
	must.OK(t, release())
	if n := must.Get(files.Size(t.Context(), key))(t); n != 5 {
		t.Errorf("the held blob has %d bytes", n)
	}
	must.OK(t, second())
	if n := must.Get(files.Size(t.Context(), key))(t); n != 0 {
		t.Errorf("after the release, the blob has %d bytes", n)
	}
	// A process that ends during a backup leaves the list, whose last line can be cut off.
	must.OK(t, files.Put(t.Context(), key, strings.NewReader("state")))
	must.OK(t, os.WriteFile(filepath.Join(dir, ".postponed"), []byte("stacks/a\nstacks"), 0o600))
	keep := func(keys []string) ([]string, error) { return keys, nil }
	must.Get(must.Get(blob.NewFiles(dir))(t).Sweep(t.Context(), "stacks", 0, keep))(t)
	if a, c := must.Get(files.Size(t.Context(), key))(t), must.Get(files.Size(t.Context(), other))(t); a != 0 || c != 5 {
		t.Errorf("after the restart, the blobs have %d and %d bytes, want 0 and 5", a, c)
	}
}

// TestMissingState checks that a state without content does not prevent a backup of the others.
func TestMissingState(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		must.OK(t, db.Blobs().Delete(t.Context(), "stacks/s1/a"))
		result := s.backup(backup.Request{})
		if !slices.Equal(result.Manifest.Missing, []string{"stacks/s1/a"}) || result.Manifest.Blobs.Count != 8 {
			t.Errorf("the backup has %d blobs and misses %v", result.Manifest.Blobs.Count, result.Manifest.Missing)
		}
		must.Get(backup.Verify(t.Context(), s.backups, ""))(t)
	})
}

// TestKeys checks that a restore accepts only the key of the installation.
func TestKeys(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	s.backup(backup.Request{Passphrase: passphrase})
	to := newTarget(t, "sqlite")
	to.Passphrase = "wrong passphrase"
	if _, err := backup.Restore(t.Context(), s.backups, to.Target); err == nil || !strings.Contains(err.Error(), "check the passphrase") {
		t.Errorf("a wrong passphrase: %v", err)
	}
	to.Passphrase, to.WithoutKey = "", false
	if _, err := backup.Restore(t.Context(), s.backups, to.Target); err == nil || !strings.Contains(err.Error(), "--key-passphrase-file, or restore it without the key with --without-key") {
		t.Errorf("no passphrase: %v", err)
	}
	if left := must.Get(os.ReadDir(filepath.Dir(to.MasterKey.File)))(t); len(left) > 0 {
		t.Errorf("a refused restore has left %v", left)
	}
	must.Get((keyring.Source{File: to.MasterKey.File, Create: true}).Load(t.Context()))(t)
	if _, err := backup.Restore(t.Context(), s.backups, to.Target); err == nil || !strings.Contains(err.Error(), "does not open the secrets") {
		t.Errorf("a foreign key: %v", err)
	}
	to.Passphrase = passphrase
	if _, err := backup.Restore(t.Context(), s.backups, to.Target); err == nil || !strings.Contains(err.Error(), "another key than that of the backup") {
		t.Errorf("a foreign key and the right passphrase: %v", err)
	}
	must.OK(t, os.WriteFile(to.MasterKey.File, must.Get(os.ReadFile(s.key))(t), 0o600))
	to.Passphrase = ""
	if restored := must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t); !restored.Key {
		t.Error("the key is not known")
	}
	foreign := s.source()
	foreign.MasterKey = keyring.Source{File: filepath.Join(t.TempDir(), "foreign"), Create: true}
	must.Get(foreign.MasterKey.Load(t.Context()))(t)
	if _, err := backup.Write(t.Context(), foreign, backup.Request{Dir: s.backups, Passphrase: passphrase}, func(backup.Progress) {}); err == nil || !strings.Contains(err.Error(), "does not open the secrets of the installation") {
		t.Errorf("sealing a foreign key: %v", err)
	}
	plain := s.backup(backup.Request{}).Path
	absent := newTarget(t, "sqlite")
	absent.WithoutKey = false
	if _, err := backup.Restore(t.Context(), plain, absent.Target); err == nil || !strings.Contains(err.Error(), "put the master key of the installation into the file "+absent.MasterKey.File) {
		t.Errorf("no key: %v", err)
	}
	q := backup.Request{Dir: s.backups, Passphrase: "short"}
	if _, err := backup.Write(t.Context(), s.source(), q, func(backup.Progress) {}); err == nil || !strings.Contains(err.Error(), "fewer than 12") {
		t.Errorf("a short passphrase: %v", err)
	}
}

// TestVerifiedKey checks that the verification of a backup opens its master key with the passphrase.
func TestVerifiedKey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		plain := s.backup(backup.Request{}).Path
		whole := s.backup(backup.Request{Passphrase: passphrase}).Path
		must.Get(backup.Verify(t.Context(), whole, passphrase))(t)
		other := newSite(t, storetest.SQLiteUnraced(t)).backup(backup.Request{Passphrase: passphrase}).Path
		const file = "master-key.age"
		forged := func(key []byte) string {
			dir := copyOf(t, whole)
			var m backup.Manifest
			must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, "manifest.json")))(t), &m))
			sum := sha256.Sum256(key)
			m.Key = &backup.Part{Size: int64(len(key)), SHA256: hex.EncodeToString(sum[:])}
			must.OK(t, os.WriteFile(filepath.Join(dir, "manifest.json"), must.Get(json.Marshal(m))(t), 0o600))
			must.OK(t, os.WriteFile(filepath.Join(dir, file), key, 0o600))
			return dir
		}
		for name, tt := range map[string]struct{ dir, passphrase, want string }{
			"another passphrase": {whole, "incorrect horse battery", "check the passphrase"},
			"no key":             {plain, passphrase, "contains no master key"},
			"garbage":            {forged([]byte("abc")), passphrase, "opening the sealed master key"},
			"a foreign key":      {forged(must.Get(os.ReadFile(filepath.Join(other, file)))(t)), passphrase, "does not open its secrets"},
		} {
			if _, err := backup.Verify(t.Context(), tt.dir, tt.passphrase); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", name, err, tt.want)
			}
		}
	})
}

// TestReplacedKey backs up while the master key is being replaced. Both keys open the restored secrets, and no other.
func TestReplacedKey(t *testing.T) {
	s := newSite(t, storetest.SQLiteUnraced(t))
	secret := must.Get(s.ring.Encrypt(t.Context(), "s0", []byte("secret")))(t)
	next := keyring.Source{File: filepath.Join(t.TempDir(), "next"), Create: true}
	must.OK(t, s.ring.AddMaster(t.Context(), must.Get(next.Load(t.Context()))(t)))
	old := s.source()
	for name, source := range map[string]keyring.Source{"old": old.MasterKey, "new": next} {
		t.Run(name, func(t *testing.T) {
			s := s
			s.t, s.backups = t, filepath.Join(t.TempDir(), "backups")
			src := old
			src.MasterKey = source
			must.Get(backup.Write(t.Context(), src, backup.Request{Dir: s.backups, Passphrase: passphrase}, func(backup.Progress) {}))(t)
			check := func(to target) {
				t.Helper()
				if restored := must.Get(backup.Restore(t.Context(), s.backups, to.Target))(t); !restored.Key {
					t.Error("the key is not known")
				}
				db := to.open()
				ring := must.Get(keyring.Open(t.Context(), db, must.Get((keyring.Source{File: to.MasterKey.File}).Load(t.Context()))(t)))(t)
				if text := must.Get(ring.Decrypt(t.Context(), "s0", secret))(t); string(text) != "secret" {
					t.Errorf("the secret is %q", text)
				}
			}
			sealed := newTarget(t, "sqlite")
			sealed.Passphrase = passphrase
			check(sealed)
			for _, existing := range []string{s.key, next.File} {
				for _, phrase := range []string{"", passphrase} {
					to := newTarget(t, "sqlite")
					to.Passphrase = phrase
					must.OK(t, os.WriteFile(to.MasterKey.File, must.Get(os.ReadFile(existing))(t), 0o600))
					check(to)
				}
			}
			foreign := newTarget(t, "sqlite")
			must.Get((keyring.Source{File: foreign.MasterKey.File, Create: true}).Load(t.Context()))(t)
			if _, err := backup.Restore(t.Context(), s.backups, foreign.Target); err == nil || !strings.Contains(err.Error(), "neither the old nor the new master key") {
				t.Errorf("a foreign key: %v", err)
			}
		})
	}
}
