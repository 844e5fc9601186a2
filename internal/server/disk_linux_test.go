package server

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/storetest"
)

// TestNotReadyOnAFullDisk fills the disk of the database before anything was asked.
func TestNotReadyOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := New(t.Context(), testConfig(t, dir), "v1", storetest.Log(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second answer is remembered
		if code := get(t, s.URL()+"/readyz", ""); code != 503 {
			t.Errorf("/readyz answered %d on a full disk", code)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
