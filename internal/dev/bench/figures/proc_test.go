package figures

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 150 25 400 5 20 0 9 0 1 2 3"
	for _, name := range []string{"(bash)", "(a b)", "(evil) R 1 2 3)"} {
		own, all, err := parseStat([]byte("4242 " + name + rest))
		if err != nil || own != 1750*time.Millisecond || all != 5800*time.Millisecond {
			t.Errorf("%s: got %v and %v, %v", name, own, all, err)
		}
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 a b c d e f"} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const status = "Name:\tVmHWM: 1 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1000 kB\nThreads:\t9\n"
	for key, want := range map[string]int64{"VmHWM": 2048 << 10, "VmRSS": 1000 << 10, "RssAnon": 0} {
		if got, err := parseStatus([]byte(status), key); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", key, got, err, want)
		}
	}
	if _, err := parseStatus([]byte(status), "Threads"); err == nil {
		t.Error("a value without a unit was accepted")
	}
}

func TestParseSchedstat(t *testing.T) {
	if got, err := parseSchedstat([]byte("123456789 42 7\n")); err != nil || got != 123456789 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "x 1 2"} {
		if _, err := parseSchedstat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestProcOfThisMachine checks the parsers against the running kernel.
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
	if pids := Tree(os.Getpid()); !slices.Contains(pids, child.Process.Pid) {
		t.Errorf("the child %d is not among %v", child.Process.Pid, pids)
	}
	rss, err := Memory(os.Getpid(), "VmRSS")
	if err != nil || rss < 1<<20 {
		t.Errorf("this program has %d bytes, %v", rss, err)
	}
	if peak := SamplePeak(os.Getpid(), EveryProcess).End(); peak < rss/2 {
		t.Errorf("the peak %d is below the used memory %d", peak, rss)
	}
	if _, err := CPU(os.Getpid()); err != nil {
		t.Error(err)
	}
	if d, err := FineCPU(os.Getpid()); err != nil || d <= 0 {
		t.Errorf("this program has used %v, %v", d, err)
	}
}
