package changes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

func repository(t *testing.T, notes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(root, dir), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(root, changelog), []byte("# Changelog\n\n"+mark+"\n## v1.0.0 (2026-01-02)\n"), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(root, dir, "README.md"), []byte("# Notes\n"), 0o600))
	for name, text := range notes {
		must.OK(t, os.WriteFile(filepath.Join(root, dir, name), []byte(text), 0o600))
	}
	return root
}

func TestRelease(t *testing.T) {
	root := repository(t, map[string]string{"added-b.md": "Second.\nMore.\n", "added-a.md": "First.", "security-x.md": "Hole."})
	must.OK(t, Release(root, "v1.1.0", time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)))
	want := "# Changelog\n\n" + mark + "\n## v1.1.0 (2026-11-29)\n\n### Security\n\n* Hole.\n\n### Added\n\n* First.\n* Second.\n  More.\n\n## v1.0.0 (2026-01-02)\n"
	if got := string(must.Get(os.ReadFile(filepath.Join(root, changelog)))(t)); got != want {
		t.Errorf("the changelog is\n%s\nwant\n%s", got, want)
	}
	if left := must.Get(Pending(root))(t); len(left) > 0 {
		t.Errorf("notes are left: %v", left)
	}
	if err := Release(root, "v1.2.0", time.Now()); err == nil || !strings.Contains(err.Error(), "nothing to release") {
		t.Errorf("a release without changes: %v", err)
	}
}

func TestBadNotes(t *testing.T) {
	for name, text := range map[string]string{"other-a.md": "text", "added-a.txt": "text", "added-a.md": "# Heading", "fixed-a.md": " \n"} {
		root := repository(t, map[string]string{name: text})
		if err := Release(root, "v1.1.0", time.Now()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with %q: %v", name, text, err)
		}
	}
	root := repository(t, map[string]string{"added-a.md": "text"})
	if err := Release(root, "v1.0.0", time.Now()); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("the same version again: %v", err)
	}
}

// TestNotes checks the notes of this repository.
func TestNotes(t *testing.T) {
	must.Get(Pending("../../../.."))(t)
}
