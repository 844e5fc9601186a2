package storetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// Migrations returns the migrations of an earlier version, for upgrade tests. dir is the directory with
// all migrations; the names of those after last are greater than it.
func Migrations(t testing.TB, dir, last string) fs.FS {
	t.Helper()
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
