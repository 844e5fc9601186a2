package main

import (
	"os"
	"path/filepath"
	"testing"

	"workflowagent/internal/dev/must"
)

// TestNoticesOfNestedCode searches the directory of a package and the root of its module. Equal texts
// count once, and a module without a license is an error.
func TestNoticesOfNestedCode(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "snappy")
	must.OK(t, os.Mkdir(dir, 0o700))
	p := source{Dir: dir, Module: &struct {
		Path, Dir string
		Main      bool
	}{Path: "example.com/zip", Dir: top}}
	if err := p.addTo(map[string]*notice{}); err == nil {
		t.Error("a module without a license is accepted")
	}
	for path, text := range map[string]string{"LICENSE.txt": "shared \r\n\n", "snappy/NOTICE": "\nshared\n", "snappy/license.go": "code", "snappy/Copying": "own"} {
		must.OK(t, os.WriteFile(filepath.Join(top, path), []byte(text), 0o600))
	}
	found := map[string]*notice{}
	must.OK(t, p.addTo(found))
	if len(found) != 2 || found["shared"] == nil || found["own"] == nil || len(found["shared"].modules) != 1 {
		t.Errorf("found %v", found)
	}
}
