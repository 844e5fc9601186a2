package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTarget(t *testing.T) {
	root := t.TempDir()
	home := filepath.Join(root, "home")
	must(t, os.MkdirAll(home, 0o755))
	o := LoadOptions{Home: home, Etc: filepath.Join(root, "etc"), Cwd: filepath.Join(root, "cwd"), Binary: "/usr/bin/customer-managed-workflow-agent", UID: 1000}
	check := func(name string, o LoadOptions, want string) {
		t.Helper()
		if got, err := Target(o); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	asked, rooted, installed := o, o, o
	asked.Path = "new.yaml"
	check("asked for", asked, filepath.Join(root, "cwd", "new.yaml"))
	check("a user's", o, filepath.Join(home, FileName))
	rooted.UID = 0
	check("root's", rooted, filepath.Join(root, "etc", FileName))
	installed.Binary = filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent/customer-managed-workflow-agent")
	check("next to the installed binary", installed, filepath.Join(filepath.Dir(installed.Binary), FileName))
	installed.Binary = filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent/versions/v1.2.3/customer-managed-workflow-agent")
	check("in a directory that updates do not replace", installed, filepath.Join(home, ".pulumi/bin/customer-managed-workflow-agent", FileName))
	brewed := o
	brewed.Binary = filepath.Join(root, "brew/Cellar/customer-managed-workflow-agent/1.2.3/libexec/customer-managed-workflow-agent")
	check("Homebrew's", brewed, filepath.Join(root, "brew/etc", FileName))
	must(t, os.WriteFile(filepath.Join(home, OldFileName), nil, 0o600))
	check("the existing file", rooted, filepath.Join(home, OldFileName))
	if _, err := Target(LoadOptions{UID: 1000}); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("without a home: %v", err)
	}
}

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
			path := filepath.Join(dir, FileName)
			gid := os.Getegid()
			if tt.old != 0 {
				must(t, os.WriteFile(path, []byte("old"), 0o600))
				if os.Geteuid() == 0 {
					gid = 4242
					must(t, os.Chown(path, 4241, gid))
				}
				must(t, os.Chmod(path, tt.old))
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
	target, link := filepath.Join(real, "agent.yaml"), filepath.Join(linked, FileName)
	must(t, os.Symlink(target, link))
	if _, err := Write(link, []byte("new")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("through a link to nowhere: %v", err)
	}
	must(t, os.WriteFile(target, []byte("old"), 0o600))
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
	path := filepath.Join(dir, "missing", FileName)
	if _, err := Write(path, []byte("new")); err == nil {
		t.Error("the file was written to a directory that does not exist")
	}
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	path = filepath.Join(dir, FileName)
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	must(t, os.Chmod(dir, 0o500))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if _, err := Write(path, []byte("new")); err == nil || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("got %v", err)
	}
	onlyFile(t, dir, "old")
}

func TestReadText(t *testing.T) {
	dir := t.TempDir()
	o := testOptions("")
	if data, err := ReadText(filepath.Join(dir, "none"), o); data != nil || err != nil {
		t.Errorf("no file: %q, %v", data, err)
	}
	path := filepath.Join(dir, FileName)
	must(t, os.WriteFile(path, []byte("syslog: true\n"), 0o600))
	if data, err := ReadText(path, o); string(data) != "syslog: true\n" || err != nil {
		t.Errorf("got %q, %v", data, err)
	}
	must(t, os.Chmod(path, 0o666))
	if _, err := ReadText(path, o); err == nil {
		t.Error("a file that is writable by all was accepted")
	}
}
