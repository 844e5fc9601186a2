package instance

import (
	"os"
	"path/filepath"
	"testing"
)

func TestJournalSweep(t *testing.T) {
	dir := t.TempDir()
	j := &Journal{dir: dir}
	if err := j.Write("kept.1", Entry{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kept.1.spool", "gone.1.spool"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".gone.1.json123", "foreign"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Sweep(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"kept.1.json": true, "kept.1.spool": true, "foreign": true, "gone.1.spool": false, ".gone.1.json123": false,
	} {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it to exist: %v", name, err, want)
		}
	}
}
