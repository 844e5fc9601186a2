package states

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

// TestFoldOnAFullDisk folds a journal while the disk is full. The fold must fail without a trace, and
// succeed once space is free again.
func TestFoldOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m,mode=700"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	db, err := store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "server.db"),
		store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s := New(db, storetest.Log(), nil)
	key := stackOf(t, db, s)
	form := func(want func(store.Form) bool) {
		t.Helper()
		row, err := store.Read(t.Context(), db, func(tx *store.Tx) (store.State, error) { return tx.State(key) })
		if err != nil || !want(row.Form) {
			t.Errorf("the state has the form %q, %v", row.Form, err)
		}
	}
	want := exportOf(t, s, key)

	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, endless{}); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Fold(t.Context(), key); !store.IsFull(err) {
		t.Errorf("folding on a full disk: %v", err)
	}
	if got := exportOf(t, s, key); got != want {
		t.Errorf("on the full disk, the state is %s, want %s", got, want)
	}
	form(func(f store.Form) bool { return f == store.Journal })

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context(), -time.Hour); n != 0 || err != nil {
		t.Errorf("the failed fold left %d blobs, %v", n, err)
	}
	if err := s.Fold(t.Context(), key); err != nil {
		t.Errorf("folding again: %v", err)
	}
	if got := exportOf(t, s, key); got != want {
		t.Errorf("after the fold, the state is %s, want %s", got, want)
	}
	form(func(f store.Form) bool { return f != store.Journal })
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
