package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// largest bounds the size of the repository's files, in bytes. Larger files are assumed to be build
// results.
const largest = 1 << 20

// TestNoLargeFiles checks that no build results are committed.
func TestNoLargeFiles(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Skipf("this is not a git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // deleted, but still in git's index
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > largest {
			t.Errorf("%s has %d bytes: was it built?", name, info.Size())
		}
	}
}
