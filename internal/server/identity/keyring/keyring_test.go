package keyring_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

func open(t *testing.T, db *store.DB, key byte) *keyring.Ring {
	t.Helper()
	s, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{key}, 32))
	if err != nil {
		t.Fatalf("opening the secrets: %v", err)
	}
	return s
}

func TestSecretsSurviveRotation(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		// Two servers share the database; one of them rotates.
		one, two := open(t, db, 1), open(t, db, 1)
		old, err := one.Encrypt(ctx, "stack", []byte("old"))
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Rotate(ctx); err != nil {
			t.Fatal(err)
		}
		fresh, err := one.Encrypt(ctx, "stack", []byte("new"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(old[:5], fresh[:5]) {
			t.Error("the rotation did not change the key")
		}
		for _, s := range []*keyring.Ring{one, two, open(t, db, 1)} {
			for ct, want := range map[string]string{string(old): "old", string(fresh): "new"} {
				got, err := s.Decrypt(ctx, "stack", []byte(ct))
				if err != nil || string(got) != want {
					t.Errorf("Decrypt = %q, %v, want %q", got, err, want)
				}
			}
			if _, err := s.Decrypt(ctx, "other", old); fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("another stack's secret = %v, want an invalid request", err)
			}
		}
	})
}

func TestTheKeyRingIsWrapped(t *testing.T) {
	db := storetest.SQLite(t)
	open(t, db, 1)
	_, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{2}, 32))
	if err == nil || !strings.Contains(err.Error(), "master key") {
		t.Errorf("another master key = %v, want an error that names it", err)
	}
	if _, err := keyring.Open(t.Context(), db, []byte("short")); err == nil {
		t.Error("a short master key was accepted")
	}
}

func TestMasterKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "master-key")
	if _, err := (keyring.Source{File: path}).Load(t.Context()); err == nil {
		t.Error("a missing key was created")
	}
	first, err := keyring.Source{File: path, Create: true}.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := keyring.Source{File: path, Create: true}.Load(t.Context())
	if err != nil || !bytes.Equal(first, again) || len(first) != 32 {
		t.Errorf("the key changed: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", st.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("hunter2 is no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(filepath.Dir(path), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (keyring.Source{File: pipe}).Load(t.Context()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a named pipe: %v", err)
	}
	if _, err := (keyring.Source{File: path, Create: true}).Load(t.Context()); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a broken key file = %v", err)
	}
}

// TestDecryptInAWrite decrypts, in a write of a server with one connection, a secret whose key another
// server has added to the ring since. The write must not need a second connection.
func TestDecryptInAWrite(t *testing.T) {
	db := storetest.PostgresAlone(t, storetest.PostgresDSN(t), store.Timeouts{})
	one, two := open(t, db, 1), open(t, db, 1)
	if err := one.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh, err := one.Encrypt(t.Context(), "stack", []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), scope.Stack("o", "stack"), func(tx *store.Tx) error {
		got, err := two.DecryptIn(tx, "stack", fresh)
		if string(got) != "new" {
			t.Errorf("decrypted %q", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStartDuringWrite opens the ring of a database while another server is inside a write, and can have
// stopped there.
func TestStartDuringWrite(t *testing.T) {
	first, second := storetest.PostgresPair(t)
	open(t, first, 1)
	err := first.Write(t.Context(), scope.Stack("o", "s"), func(*store.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := keyring.Open(ctx, second, bytes.Repeat([]byte{1}, 32))
		return err
	})
	if err != nil {
		t.Errorf("a start waits for the write of another server: %v", err)
	}
}

func TestMasterKeyCommand(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	text := base64.StdEncoding.EncodeToString(key)
	for command, want := range map[string]string{
		"echo " + text: "",
		"printf %s " + text + "; echo warning >&2":              "",
		"echo " + text + "; echo denied by the KMS >&2; exit 3": "exit status 3: denied by the KMS",
		"echo " + text + " >&2; exit 5":                         "exit status 5",
		"exit 4":                                                "exit status 4",
		"echo hunter2":                                          "must contain a master key",
		"yes " + text:                                           "prints more than 65536 bytes",
		"echo no such key >&2":                                  "must contain a master key",
		"exec /no/such/program":                                 "not found",
		"echo key is " + text[:40] + ", not this >&2; exit 6":   "exit status 6: key is [REDACTED], not this",
		"echo A:" + strings.Repeat("0b", 32) + " >&2; exit 6":   "exit status 6: A:[REDACTED]",
		"echo k=" + text[4:21] + " >&2; exit 6":                 "exit status 6: [REDACTED]",
		`printf 'no \033]0;x\007\033[31mkey\n' >&2; exit 7`:     "exit status 7: no key",
		"echo AccessDeniedException by /usr/local/bin/kms-decrypt: key/1234abcd-12ab-34cd-56ef-1234567890ab >&2; exit 8": "exit status 8: AccessDeniedException by /usr/local/bin/kms-decrypt: key/1234abcd-12ab-34cd-56ef-1234567890ab",
	} {
		got, err := keyring.Source{Command: command}.Load(t.Context())
		switch {
		case want == "" && (err != nil || !bytes.Equal(got, key)):
			t.Errorf("%s: %v", command, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", command, err, want)
		case err != nil && (strings.Contains(err.Error(), text[4:20]) || strings.ContainsAny(err.Error(), "\033\007") || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: the error shows the key: %v", command, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (keyring.Source{Command: "sleep 300"}).Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled command: %v", err)
	}
}

// TestReplaceMasterKey replaces the master key of two servers, of which one restarts after the other.
func TestReplaceMasterKey(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx := t.Context()
		one, two := open(t, db, 1), open(t, db, 1)
		secret := must.Get(one.Encrypt(ctx, "stack", []byte("secret")))(t)
		readable := func(what string, keys *keyring.Ring) {
			t.Helper()
			fresh, err := keys.Encrypt(ctx, "stack", []byte("fresh"))
			for _, ct := range [][]byte{secret, fresh} {
				if err == nil {
					_, err = one.Decrypt(ctx, "stack", ct)
				}
				if err == nil {
					_, err = keys.Decrypt(ctx, "stack", ct)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused := func(what string, err error) {
			t.Helper()
			if fault.KindOf(err) != fault.KindInvalid {
				t.Errorf("%s: %v", what, err)
			}
		}
		next := bytes.Repeat([]byte{2}, 32)
		refused("the current key again", one.AddMaster(ctx, bytes.Repeat([]byte{1}, 32)))
		refused("the end of a replacement that has not begun", one.RetireMaster(ctx))
		must.OK(t, one.AddMaster(ctx, next))
		must.OK(t, one.AddMaster(ctx, next)) // after a lost answer
		refused("another new key", one.AddMaster(ctx, bytes.Repeat([]byte{3}, 32)))
		refused("a new key in the ring, which only the current master key would get", one.Rotate(ctx))
		refused("the end with the old key", two.RetireMaster(ctx))
		two = open(t, db, 2)
		refused("a third key", two.AddMaster(ctx, bytes.Repeat([]byte{3}, 32)))
		readable("the restarted server", two)
		readable("a server that starts with the old key", open(t, db, 1))
		// A program of an earlier version, which does not know of the second key, rotates the ring.
		before := readRing(t, db)
		must.OK(t, db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return tx.DeleteInstallation("secrets-key-ring-next") }))
		must.OK(t, open(t, db, 1).Rotate(ctx))
		must.OK(t, db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return tx.SetInstallation("secrets-key-ring-next", before) }))
		refused("a ring to which a key was added since", two.RetireMaster(ctx))
		must.OK(t, open(t, db, 1).AddMaster(ctx, next))
		must.OK(t, two.RetireMaster(ctx))
		if _, err := keyring.Open(ctx, db, bytes.Repeat([]byte{1}, 32)); err == nil {
			t.Error("the old key still opens the ring")
		}
		if err := keyring.Check(ctx, db, next); err != nil {
			t.Errorf("the new key: %v", err)
		}
		one = two
		must.OK(t, two.Rotate(ctx))
		readable("after a rotation", open(t, db, 2))
	})
}

func readRing(t *testing.T, db *store.DB) []byte {
	t.Helper()
	return must.Get(store.Read(t.Context(), db, func(tx *store.Tx) ([]byte, error) { return tx.Installation("secrets-key-ring-next") }))(t)
}
