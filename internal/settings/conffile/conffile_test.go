package conffile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/settings"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	first, second, link := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "link")
	must.OK(t, os.WriteFile(second, nil, 0o600))
	must.OK(t, os.Symlink(second, link))
	candidates := []string{filepath.Join(second, "below-a-file"), first, second, link}
	if found, err := Find("", settings.Dirs{}, candidates); err != nil || found.Path != second || len(found.Warnings()) > 0 {
		t.Errorf("got %+v, %v", found, err)
	}
	must.OK(t, os.WriteFile(first, nil, 0o600))
	found, err := Find("", settings.Dirs{}, candidates)
	if want := second + " is not used, because " + first + " comes first"; err != nil || found.Path != first || !slices.Equal(found.Warnings(), []string{want}) {
		t.Errorf("got %+v, %v", found, err)
	}
	if found, err := Find("second", settings.Dirs{Cwd: dir}, candidates); err != nil || found.Path != second {
		t.Errorf("a given file: %+v, %v", found, err)
	}
	if _, err := Find("absent", settings.Dirs{Cwd: dir}, candidates); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a given file that does not exist: %v", err)
	}
}

func TestReadNamesWhatIsAtRisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), fileName)
	must.OK(t, os.WriteFile(path, []byte("x"), 0o600))
	file := must.Get(Read(path, os.Geteuid(), "the data"))(t)
	if string(file.Text) != "x" || file.Exposed("a token") != "" {
		t.Errorf("got %+v", file)
	}
	must.OK(t, os.Chmod(path, 0o644))
	file = must.Get(Read(path, os.Geteuid(), "the data"))(t)
	if got, want := file.Exposed("a token"), path+" contains a token and can be read by other users (mode 0644): run chmod 600 on it"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	must.OK(t, os.Chmod(path, 0o602))
	if _, err := Read(path, os.Geteuid(), "the data"); err == nil || !strings.Contains(err.Error(), "who could change the data: run chmod go-w on it") {
		t.Errorf("got %v", err)
	}
}
