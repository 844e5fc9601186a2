package pathowner_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/sys/pathowner"
)

const alice, mallory = 1001, 1002

// tree creates a directory that belongs to alice below ones of root.
func tree(t *testing.T) (base, data string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can create files of other users")
	}
	base = must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	data = filepath.Join(base, "var", "data")
	must.OK(t, os.MkdirAll(data, 0o755))
	must.OK(t, os.Chown(data, alice, alice))
	return base, data
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		// prepare changes the directories and returns the path to ask about.
		prepare func(t *testing.T, base, data string) string
		want    int
		refused string
	}{
		{"a directory of the user", func(_ *testing.T, _, data string) string { return data }, alice, ""},
		{"a path with dots", func(_ *testing.T, base, _ string) string { return base + "/var/../var/./data" }, alice, ""},
		{"a link of root", func(t *testing.T, base, data string) string { return link(t, 0, data, filepath.Join(base, "link")) }, alice, ""},
		{"a relative link of the user", func(t *testing.T, _, data string) string {
			return link(t, alice, "../data", filepath.Join(data, "again"))
		}, alice, ""},
		{"a link of another user", func(t *testing.T, base, data string) string {
			return link(t, mallory, data, filepath.Join(base, "link"))
		}, 0, "belongs to user 1002"},
		{"a link in a directory of another user", func(t *testing.T, base, data string) string {
			dir := filepath.Join(base, "home")
			must.OK(t, os.Mkdir(dir, 0o755))
			must.OK(t, os.Chown(dir, mallory, mallory))
			return link(t, 0, data, filepath.Join(dir, "link"))
		}, 0, "home belongs to user 1002"},
		{"a directory of another user above", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chown(filepath.Dir(data), mallory, mallory))
			return data
		}, 0, "var belongs to user 1002"},
		{"a directory above to which everyone can write", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chmod(filepath.Dir(data), 0o777))
			return data
		}, 0, "can write to"},
		{"a directory above to which a group can write", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chmod(filepath.Dir(data), 0o775))
			return data
		}, 0, "can write to"},
		{"a directory like /tmp above", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chmod(filepath.Dir(data), 0o777|os.ModeSticky))
			return data
		}, 0, "to which everyone can write"},
		{"a directory of root in one like /tmp", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chmod(filepath.Dir(data), 0o777|os.ModeSticky))
			must.OK(t, os.Chown(data, 0, 0))
			return data
		}, 0, ""},
		{"a directory to which everyone can write", func(t *testing.T, _, data string) string {
			must.OK(t, os.Chmod(data, 0o777|os.ModeSticky))
			return data
		}, 0, "can write to"},
		{"links in a circle", func(t *testing.T, base, _ string) string {
			return link(t, 0, filepath.Join(base, "b"), link(t, 0, filepath.Join(base, "a"), filepath.Join(base, "b")))
		}, 0, "too many levels"},
		{"a relative path", func(*testing.T, string, string) string { return "data" }, 0, "not an absolute path"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base, data := tree(t)
			path := tt.prepare(t, base, data)
			owner, err := pathowner.Of(path)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("got %v, %v; want an error with %q", owner, err, tt.refused)
				}
				return
			}
			if err != nil || owner != (pathowner.Owner{UID: tt.want, GID: tt.want}) {
				t.Errorf("got %v, %v; want user %d", owner, err, tt.want)
			}
		})
	}
}

// link creates a symbolic link of a user and returns its path.
func link(t *testing.T, uid int, target, path string) string {
	t.Helper()
	_ = os.Remove(path)
	must.OK(t, os.Symlink(target, path))
	must.OK(t, os.Lchown(path, uid, uid))
	return path
}

func TestMissing(t *testing.T) {
	if _, err := pathowner.Of(filepath.Join(t.TempDir(), "missing", "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestOfVolume checks which directories on the way a group may write to.
func TestOfVolume(t *testing.T) {
	const pod, other = 2001, 2002
	for name, tt := range map[string]struct {
		uid, gid int
		mode     fs.FileMode
		refused  bool
	}{
		"a volume of the group":        {0, pod, 0o775 | fs.ModeSetgid, false},
		"a volume of another group":    {0, other, 0o775, true},
		"a volume for everyone":        {0, pod, 0o777, true},
		"a directory of another user":  {mallory, pod, 0o775, true},
		"a directory that is not open": {0, other, 0o755, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, data := tree(t)
			volume := filepath.Dir(data)
			must.OK(t, os.Chown(volume, tt.uid, tt.gid))
			must.OK(t, os.Chmod(volume, tt.mode))
			owner, err := pathowner.OfVolume(data, pod)
			if refused := err != nil; refused != tt.refused || err == nil && owner.UID != alice {
				t.Errorf("got %+v, %v", owner, err)
			}
			must.OK(t, os.Chown(volume, 0, pod))
			must.OK(t, os.Chmod(volume, 0o755))
			must.OK(t, os.Chown(data, 0, pod))
			must.OK(t, os.Chmod(data, 0o770))
			if _, err := pathowner.OfVolume(data, pod); err == nil {
				t.Error("the group may write to the directory itself")
			}
		})
	}
}
