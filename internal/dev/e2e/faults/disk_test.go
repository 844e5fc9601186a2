package faults

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

// sharedDir holds the jobs' directories in rows with their own disk.
const sharedDir = "small"

func smallDisk(a *arena) []string {
	a.t.Helper()
	dir := filepath.Join(a.Dir, sharedDir)
	must.OK(a.t, os.Mkdir(dir, 0o700))
	mountDisk(a.t, dir, "4m")
	// A copy of the output in the agent's log would share the disk.
	return []string{"shared_volume_directory=" + dir, "log_job_output=false"}
}

func mountDisk(t *testing.T, dir, size string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+size+",mode=700", "small", dir).CombinedOutput(); err != nil {
		t.Fatalf("mounting a small disk: %v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
}

// needsMounts returns why a row cannot have its own disk, or "".
func needsMounts() string {
	switch {
	case runtime.GOOS != "linux":
		return "a small disk needs Linux"
	case os.Geteuid() != 0:
		return "mounting a small disk needs root"
	}
	return ""
}

func (a *arena) fillDisk() (free func()) {
	a.t.Helper()
	return fillDisk(a.t, filepath.Join(a.Dir, sharedDir))
}

// fillDisk fills the disk of a directory until the returned function is called.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // the disk is full anyway
	block := bytes.Repeat([]byte{'x'}, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		must.OK(t, os.Remove(ballast))
	}
}

func (a *arena) stuck(d time.Duration) {
	a.t.Helper()
	a.pass(d)
	if a.place.marks(a)["pulumi"] != 0 {
		a.t.Fatal("the full disk did not block the job")
	}
}

// full fills the disk under a running job whose log the server refuses, so that the spool cannot
// free space. It returns functions that end both.
func (a *arena) full() (free, taken func()) {
	a.t.Helper()
	refused := a.proxy.on(runnerLog, -1, refuse(http.StatusServiceUnavailable, 0))
	a.running()
	free = a.fillDisk()
	a.resume()
	return free, refused.lift
}

var diskRows = []faultRow{
	{
		phase: inRunning, fault: "the spool's disk is full for a while; the server accepts no log", want: kept,
		skip: needsMounts, ready: smallDisk, job: jobShape{lines: 40_000},
		do: func(a *arena) {
			free, taken := a.full()
			a.stuck(5 * time.Second)
			free()
			a.workDone()
			taken()
		},
	},
	{
		phase: inRunning, fault: "the spool's disk is full until the server takes log", want: kept,
		skip: needsMounts, ready: smallDisk, job: jobShape{lines: 160_000},
		do: func(a *arena) {
			a.resume()
			refused := a.proxy.on(runnerLog, -1, refuse(http.StatusServiceUnavailable, 0))
			a.running()
			a.stuck(5 * time.Second)
			refused.lift()
		},
	},
	{
		phase: inRunning, fault: "the deployment is cancelled while its log cannot be stored", want: outcome{status: "failed", reason: "cancelled", cut: true},
		evidence: "runner.TestCancelWhileTheLogCannotBeStored",
	},
	{
		phase: inRunning, fault: "the spool's disk is full for over 15 minutes; the server accepts no log", want: keptWithGap,
		evidence: "delivery.TestDiskFull", skip: needsMounts, ready: smallDisk, job: jobShape{lines: 100_000, over: time.Minute},
		do: func(a *arena) {
			free, taken := a.full()
			a.marked(20*time.Minute, "late") // it continues when its output is dropped
			free()
			taken()
		},
	},
}

func TestFaultDisk(t *testing.T) { runRows(t, diskRows, processes) }
