package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "two"} {
		if err := WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if data, rerr := os.ReadFile(path); err != nil || rerr != nil || string(data) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("the file has %q, %v, %v %v", data, info.Mode(), err, rerr)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "file"), nil, 0o600); err == nil {
		t.Error("WriteFile succeeded in a missing directory")
	}
	if err := SyncDir(filepath.Join(dir, "missing")); err == nil {
		t.Error("SyncDir succeeded for a missing directory")
	}
}
