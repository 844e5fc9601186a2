//go:build linux

package installer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/must"
)

func tmpfs(t *testing.T, dir string, size int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	must.OK(t, os.MkdirAll(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size)); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestNoExecution checks the error message for a file system that is mounted with noexec.
func TestNoExecution(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.0.0")
	m.inShells(t, func(t *testing.T, b *box) {
		// A TMPDIR on a noexec file system is no problem.
		tmpfs(t, b.tmp, 8*padding)
		must.OK(t, unix.Mount("", b.tmp, "", unix.MS_REMOUNT|unix.MS_NOEXEC, ""))
		b.want(t, 0, nil)
		b.want(t, 0, nil, "--uninstall")
		parent := filepath.Dir(b.root())
		tmpfs(t, parent, 8*padding)
		must.OK(t, unix.Mount("", parent, "", unix.MS_REMOUNT|unix.MS_NOEXEC, ""))
		b.want(t, 1, []string{"the agent v1.0.0 does not run on this machine", "mounted noexec"})
		if left := names(t, parent); len(left) > 0 {
			t.Errorf("%q are left", left)
		}
	})
}

// TestFullDisk checks that the installer reports a full disk in one line and does not change the
// existing installation.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	m := newMirror(t, "v1.1.0")
	m.release(t, "v1.0.0")
	for name, room := range map[string]struct {
		root, tmp int
		says      string
	}{
		"where it goes to":   {padding * 5 / 2, 0, "make room"},
		"while it downloads": {0, padding / 2, "install.sh: cannot download"},
	} {
		t.Run(name, func(t *testing.T) {
			m.inShells(t, func(t *testing.T, b *box) {
				parent := filepath.Dir(b.root())
				if room.root > 0 {
					tmpfs(t, parent, room.root)
				}
				b.want(t, 0, nil, "--version=1.0.0")
				writeFile(t, filepath.Join(b.root(), "pulumi-workflow-agent.yaml"), []byte("token: mine\n"), 0o600)
				if room.tmp > 0 {
					tmpfs(t, b.tmp, room.tmp)
				}
				out := b.want(t, 1, []string{room.says}, "--version=1.1.0")
				b.whole(t, "v1.0.0", "")
				t.Log(out)
				if room.root > 0 {
					b.want(t, 0, nil, "--uninstall", "--purge")
					writeFile(t, filepath.Join(parent, "ballast"), make([]byte, padding), 0o600)
					b.want(t, 1, []string{room.says})
					if left := names(t, parent); len(left) != 1 {
						t.Errorf("%q are left", left)
					}
				}
			})
		})
	}
}
