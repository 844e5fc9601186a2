package storetest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"workflowagent/internal/dev/must"
)

// Migrations returns the migrations of an earlier version, for upgrade tests. dir is the directory with
// all migrations; the names of those after last are greater than it.
func Migrations(t testing.TB, dir, last string) fs.FS {
	t.Helper()
	files := must.Get(os.ReadDir(dir))(t)
	out := fstest.MapFS{}
	for _, f := range files {
		if f.Name() > last {
			continue
		}
		data := must.Get(os.ReadFile(filepath.Join(dir, f.Name())))(t)
		out[f.Name()] = &fstest.MapFile{Data: data}
	}
	return out
}
