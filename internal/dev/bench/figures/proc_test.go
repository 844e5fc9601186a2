package figures

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestProcOfThisMachine compares the figures with what the running kernel must report.
func TestProcOfThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("/proc is missing")
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip(err)
	}
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	self := os.Getpid()
	if pids := Tree(self); !slices.Contains(pids, child.Process.Pid) {
		t.Errorf("the child %d is not among %v", child.Process.Pid, pids)
	}
	size, err := Memory(self)
	if err != nil || size.Now < 1<<20 || size.Peak < size.Now/2 {
		t.Errorf("this program has %+v bytes, %v", size, err)
	}
	if peak := SamplePeak(self, func(pid int) bool { return pid == self }).End(); peak < size.Now/2 {
		t.Errorf("the peak %d is below the used memory %d", peak, size.Now)
	}
	if path, err := os.Executable(); err != nil || Program(self) != path {
		t.Errorf("this program is %q, want %q, %v", Program(self), path, err)
	}
	var fine time.Duration
	for fine < 2*tick { // reading it takes time
		if fine, err = FineCPU(self); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]func(int) (time.Duration, error){"the process": CPU, "its tree": TreeCPU} {
		if used, err := read(self); err != nil || used < tick || used > 2*fine+time.Second {
			t.Errorf("%s has used %v, and its threads %v, %v", name, used, fine, err)
		}
	}
}
