package keyring_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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
	if _, err := keyring.LoadMasterKey(path, false); err == nil {
		t.Error("a missing key was created")
	}
	first, err := keyring.LoadMasterKey(path, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := keyring.LoadMasterKey(path, true)
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
	if _, err := keyring.LoadMasterKey(pipe, false); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a named pipe: %v", err)
	}
	if _, err := keyring.LoadMasterKey(path, true); err == nil || strings.Contains(err.Error(), "hunter2") {
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
