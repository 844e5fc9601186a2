package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/protocol"

	"golang.org/x/sys/unix"
)

func TestCopySpoolOfAHostileJob(t *testing.T) {
	base := t.TempDir()
	d := dir(filepath.Join(base, "workflow-job"))
	spool := d.path(dirJob, protocol.DirSpool)
	if err := os.MkdirAll(filepath.Join(spool, "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(base, "secret")
	for _, err := range []error{
		os.WriteFile(secret, []byte("of the host"), 0o600),
		os.WriteFile(filepath.Join(spool, "step-0001.state"), []byte("log"), 0o600),
		os.Symlink(secret, filepath.Join(spool, "step-0002.state")),
		os.Symlink(base, filepath.Join(spool, "1", "up")),
		unix.Mkfifo(filepath.Join(spool, "step-0003.state"), 0o600),
		os.WriteFile(filepath.Join(spool, "other"), []byte("anything"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dst := filepath.Join(t.TempDir(), "copy")
	if err := d.copySpool(t.Context(), dst); err != nil {
		t.Fatal(err)
	}
	var found []string
	err := filepath.WalkDir(dst, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	if err != nil || strings.Join(found, " ") != "step-0001.state" {
		t.Errorf("copied %q, %v", found, err)
	}
	f, err := os.Create(filepath.Join(spool, "step-0001-0000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(300 << 20); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.copySpool(t.Context(), filepath.Join(t.TempDir(), "copy")); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("the copy of 300 MiB: %v", err)
	}
}

// A job can replace its directories by pipes. Whoever opens one waits for a writer.
func TestPipesInPlaceOfDirectories(t *testing.T) {
	for _, name := range []string{dirJob, filepath.Join(dirJob, protocol.DirSpool)} {
		d := dir(filepath.Join(t.TempDir(), "workflow-job"))
		for _, err := range []error{os.MkdirAll(filepath.Dir(d.path(name)), 0o700), unix.Mkfifo(d.path(name), 0o600)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := d.copySpool(t.Context(), filepath.Join(t.TempDir(), "copy")); err == nil || !strings.Contains(err.Error(), "is not a directory") {
			t.Errorf("%s: %v", name, err)
		}
		if r := d.result(); r != nil {
			t.Errorf("%s: a result %+v", name, r)
		}
	}
}
