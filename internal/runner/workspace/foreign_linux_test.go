package workspace_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/runner/workspace"
)

// asUser calls do as another user, in a thread that ends with it.
func asUser(t *testing.T, user int, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock it, so that no other goroutine runs as this user
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user))
		if errno == 0 {
			do()
			done <- nil
			return
		}
		done <- errno
	}()
	must.OK(t, <-done)
}

// TestForeignOwner opens workspaces of which another user owns a part, as in a cluster whose jobs run as the users of
// their images. Each job runs without the workspace, or with an empty one.
func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of other users need root")
	}
	const user, other = 4711, 4712
	for name, test := range map[string]struct {
		owned string // by the other user
		want  string // in the error; "": the job uses the workspace
	}{
		"all":           {".", "permission denied"},
		"lock":          {"lock", "permission denied"},
		"record":        {"state.json", ""},
		"directory":     {"caches", ""},
		"subdirectory":  {"caches/tool", ""},
		"file in cache": {"caches/tool/file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := whole(t)
			must.OK(t, os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755))
			must.OK(t, os.Chmod(filepath.Dir(dir), 0o755))
			must.OK(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				must.OK(t, err)
				return os.Lchown(path, user, user)
			}))
			owned := filepath.Join(dir, filepath.FromSlash(test.owned))
			must.OK(t, filepath.WalkDir(owned, func(path string, _ os.DirEntry, err error) error {
				must.OK(t, err)
				return os.Lchown(path, other, other)
			}))
			asUser(t, user, func() {
				w, err := workspace.Open(t.Context(), dir, "other key")
				if err == nil {
					defer w.Close()
				}
				switch {
				case test.want == "" && err != nil:
					t.Errorf("the workspace is not used: %v", err)
				case test.want == "" && (w.Fresh == "" || kept(dir)):
					t.Error("the workspace is not empty")
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
			})
		})
	}
}
