package blob

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFailedSync checks that bytes that a failing disk might have lost are removed, because the next
// sync would succeed without them. A pipe in place of the open file makes the sync fail.
func TestFailedSync(t *testing.T) {
	for _, safe := range []int64{0, 4, 100} {
		b := newFiles(t, 10)
		const key = "logs/j/1/0"
		appendAll(t, b, key, "old\n")
		if _, _, err := b.Append(t.Context(), key, 4, []byte("new\n")); err != nil {
			t.Fatal(err)
		}
		fd := int(b.opened.byKey[key].Fd())
		pipe := make([]int, 2)
		kept, err := syscall.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Pipe(pipe); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(pipe[0], fd, 0); err != nil {
			t.Fatal(err)
		}
		if n, err := b.Sync(t.Context(), key, safe); err == nil {
			t.Fatalf("the sync of a pipe succeeded with %d bytes", n)
		}
		if err := syscall.Dup3(kept, fd, 0); err != nil {
			t.Fatal(err)
		}
		for _, open := range append(pipe, kept) {
			_ = syscall.Close(open)
		}
		want := "old\nnew\n"[:min(safe, 8)]
		if got, err := os.ReadFile(filepath.Join(b.dir, key)); err != nil || string(got) != want {
			t.Errorf("with %d safe bytes, the file contains %q, %v; want %q", safe, got, err, want)
		}
		appendAll(t, b, key, "next")
	}
}
