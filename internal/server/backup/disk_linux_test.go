package backup_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/store"
)

// TestFullDisk checks that a backup ends before its disk is full, and leaves nothing.
func TestFullDisk(t *testing.T) {
	storetest.OnSQLite(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	s := newSite(t, storetest.SQLite(t))
	must.OK(t, s.db.Blobs().Put(t.Context(), "stacks/s0/a", strings.NewReader(strings.Repeat("0123456789abcdef", 2<<20))))
	for size, want := range map[string]string{"90m": "of free space, of which the server may need", "1m": "of free space"} {
		dir := filepath.Join(t.TempDir(), "small")
		must.OK(t, os.Mkdir(dir, 0o700))
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=700"); err != nil {
			t.Skipf("mounting a small file system: %v", err)
		}
		_, err := backup.Write(t.Context(), s.source(), backup.Request{Dir: dir}, func(backup.Progress) {})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s: %v", size, err)
		}
		if entries := must.Get(os.ReadDir(dir))(t); len(entries) != 1 || entries[0].Name() != ".lock" {
			t.Errorf("with %s: the directory contains %v", size, entries)
		}
		must.OK(t, unix.Unmount(dir, unix.MNT_DETACH))
	}
	s.backup(backup.Request{})
}

// TestFullDiskOfServer backs up to the disk of the server, which has no room for that. The backup ends, and no write of
// the server fails.
func TestFullDiskOfServer(t *testing.T) {
	storetest.OnSQLite(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := filepath.Join(t.TempDir(), "small")
	must.OK(t, os.Mkdir(dir, 0o700))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=180m,mode=700"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	defer func() { must.OK(t, unix.Unmount(dir, unix.MNT_DETACH)) }()
	db := must.Get(store.Open(t.Context(), "sqlite:"+filepath.Join(dir, "server.db"), store.Options{Log: storetest.Log(), BlobDir: filepath.Join(dir, "blobs")}))(t)
	defer func() { must.OK(t, db.Close()) }()
	s := newSite(t, db)
	s.backups = filepath.Join(dir, "backups")
	large := make([]byte, 70<<20)
	must.Get(rand.Read(large))(t)
	must.OK(t, db.Blobs().Put(t.Context(), "stacks/s2/b", bytes.NewReader(large)))

	var writes atomic.Int64
	ended, written := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil; i++ {
			select {
			case <-ended:
				written <- nil
				return
			default:
				err = addStack(t.Context(), db, "during"+hex.EncodeToString([]byte{byte(i >> 8), byte(i)}))
				writes.Add(1)
			}
		}
		written <- err
	}()
	_, err := backup.Write(t.Context(), s.source(), backup.Request{Dir: s.backups}, func(backup.Progress) {})
	close(ended)
	if werr := <-written; werr != nil || writes.Load() == 0 {
		t.Errorf("after %d writes during the backup: %v", writes.Load(), werr)
	}
	if err == nil || !strings.Contains(err.Error(), "of free space") {
		t.Errorf("the backup: %v", err)
	}
	must.OK(t, db.Writable(t.Context()))
	if entries := must.Get(os.ReadDir(s.backups))(t); len(entries) != 1 || entries[0].Name() != ".lock" {
		t.Errorf("the directory contains %v", entries)
	}
}
