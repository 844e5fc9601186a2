package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKillDescendants has programs that do nothing but fork and exit, so that a list of processes seldom contains them. Each
// holds a lock, which its successors inherit.
func TestKillDescendants(t *testing.T) {
	const inside = "TEST_KILL_DESCENDANTS"
	if os.Getenv(inside) == "" { // orphans become children of a separate process
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillDescendants$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range 20 {
		lock := filepath.Join(dir, fmt.Sprint("lock", i))
		cmd := exec.CommandContext(t.Context(), "setsid", "sh", "-c", `exec 9>"$1"; flock 9; hop='[ -e "$1" ] && eval "$hop" &'; eval "$hop"`, "sh", lock)
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if !KillDescendants() {
			t.Fatalf("round %d: processes are alive after the timeout", i)
		}
		f, err := os.Open(lock)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("round %d: a process has survived: %v", i, err)
		}
		_ = f.Close()
	}
}
