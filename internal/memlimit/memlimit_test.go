package memlimit

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestControlGroupLimit(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := controlGroupLimit(root); got != math.MaxInt64 {
		t.Errorf("without control groups: %d", got)
	}
	write("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/server.service\n")
	write("sys/fs/cgroup/system.slice/server.service/memory.max", "max\n")
	if got := controlGroupLimit(root); got != math.MaxInt64 {
		t.Errorf("without a limit: %d", got)
	}
	write("sys/fs/cgroup/system.slice/memory.max", "1073741824\n")
	if got := controlGroupLimit(root); got != 1<<30 {
		t.Errorf("with a limit of the slice: %d", got)
	}
	write("sys/fs/cgroup/memory.max", "536870912\n") // as inside a container
	if got := controlGroupLimit(root); got != 512<<20 {
		t.Errorf("with a limit at the root: %d", got)
	}
}

func TestReserve(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		group = 0
		debug.SetMemoryLimit(before)
	})
	Reserve(1 << 30)() // without a limit of a control group, nothing changes
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("the limit is %d", got)
	}
	group = 4 << 30
	first, second := Reserve(1<<30), Reserve(512<<20)
	want := func(bytes int64) {
		t.Helper()
		if got := debug.SetMemoryLimit(-1); got != bytes || Apply() != 4<<30 {
			t.Errorf("the limit is %d, want %d", got, bytes)
		}
	}
	want(2560 << 20)
	third := Reserve(4 << 30)
	want(2 << 30)
	for _, release := range []func(){first, third, second} {
		release()
	}
	want(4 << 30)
}
