package conffile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/must"
)

const fileName = "program.yaml"

func TestWrite(t *testing.T) {
	for _, tt := range []struct {
		name string
		old  fs.FileMode // 0 if the file does not exist
		want fs.FileMode
		note bool
	}{
		{"new", 0, 0o600, false},
		{"private", 0o600, 0o600, false},
		{"a service group's", 0o640, 0o640, false},
		{"read-only", 0o400, 0o400, false},
		{"readable by all", 0o644, 0o600, true},
		{"writable by all", 0o666, 0o600, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			gid := os.Getegid()
			if tt.old != 0 {
				must.OK(t, os.WriteFile(path, []byte("old"), 0o600))
				if os.Geteuid() == 0 {
					gid = 4242
					must.OK(t, os.Chown(path, 4241, gid))
				}
				must.OK(t, os.Chmod(path, tt.old))
			}
			note, err := Write(path, []byte("new"))
			if err != nil || (note != "") != tt.note {
				t.Fatalf("note %q, %v", note, err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != tt.want {
				t.Errorf("mode %04o, want %04o", info.Mode().Perm(), tt.want)
			}
			if stat := info.Sys().(*syscall.Stat_t); int(stat.Gid) != gid {
				t.Errorf("group %d, want %d", stat.Gid, gid)
			}
			onlyFile(t, dir, "new")
		})
	}
}

func onlyFile(t *testing.T, dir, text string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the directory contains %v, %v", entries, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, entries[0].Name())); err != nil || string(data) != text {
		t.Errorf("the file contains %q, %v; want %q", data, err, text)
	}
}

func TestWriteFollowsLinks(t *testing.T) {
	real, linked := t.TempDir(), t.TempDir()
	target, link := filepath.Join(real, "agent.yaml"), filepath.Join(linked, fileName)
	must.OK(t, os.Symlink(target, link))
	if _, err := Write(link, []byte("new")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("through a link to nowhere: %v", err)
	}
	must.OK(t, os.WriteFile(target, []byte("old"), 0o600))
	if _, err := Write(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info, err)
	}
	onlyFile(t, real, "new")
}

func TestWriteFailsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "missing", fileName)
	if _, err := Write(path, []byte("new")); err == nil {
		t.Error("the file was written to a directory that does not exist")
	}
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	path = filepath.Join(dir, fileName)
	must.OK(t, os.WriteFile(path, []byte("old"), 0o600))
	must.OK(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if _, err := Write(path, []byte("new")); err == nil || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("got %v", err)
	}
	onlyFile(t, dir, "old")
}

func TestCreate(t *testing.T) {
	gid := os.Getegid()
	if os.Geteuid() == 0 {
		gid = 4242
	}
	for name, tt := range map[string]struct {
		readers *int
		want    fs.FileMode
	}{"for the owner": {nil, 0o600}, "for a group": {&gid, 0o640}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			must.OK(t, Create(path, []byte("new"), tt.readers))
			info := must.Get(os.Stat(path))(t)
			if stat := info.Sys().(*syscall.Stat_t); info.Mode() != tt.want || tt.readers != nil && int(stat.Gid) != gid {
				t.Errorf("mode %s, group %d; want %s, %d", info.Mode(), stat.Gid, tt.want, gid)
			}
			onlyFile(t, dir, "new")
		})
	}
}

// TestCreateOverLink lets another user put a link to a file in the place of the new file.
func TestCreateOverLink(t *testing.T) {
	for name, link := range map[string]func(old, path string) error{"symbolic": os.Symlink, "hard": os.Link} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			target, path := filepath.Join(base, "target"), filepath.Join(base, fileName)
			must.OK(t, os.WriteFile(target, []byte("old"), 0o600))
			before := must.Get(os.Stat(target))(t).Sys().(*syscall.Stat_t)
			must.OK(t, link(target, path))
			gid := os.Getegid()
			if os.Geteuid() == 0 {
				gid = 4242
			}
			if err := Create(path, []byte("new"), &gid); err == nil || !strings.Contains(err.Error(), "in the meantime") {
				t.Errorf("got %v", err)
			}
			after := must.Get(os.Stat(target))(t).Sys().(*syscall.Stat_t)
			if text := must.Get(os.ReadFile(target))(t); string(text) != "old" || before.Mode != after.Mode || before.Gid != after.Gid {
				t.Errorf("the target contains %q and has the mode %o and the group %d", text, after.Mode, after.Gid)
			}
		})
	}
}

// TestShareSwapped swaps the draft for a link before its group and mode change.
func TestShareSwapped(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	must.OK(t, os.WriteFile(target, []byte("old"), 0o600))
	must.OK(t, replace(filepath.Join(dir, fileName), []byte("new"), func(f *os.File) error {
		must.OK(t, os.Remove(f.Name()))
		must.OK(t, os.Symlink(target, f.Name()))
		return share(f, os.Getegid())
	}))
	if info := must.Get(os.Stat(target))(t); info.Mode() != 0o600 || string(must.Get(os.ReadFile(target))(t)) != "old" {
		t.Errorf("the target has the mode %s", info.Mode())
	}
}
