package initsystem

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestLiveLong runs the test binary as a program that crashes, and as a program whose log has no
// reader.
func TestLiveLong(t *testing.T) {
	switch os.Getenv("WORKFLOW_TEST_LIVE_LONG") {
	case "crash":
		LiveLong()
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) // suppress the core dump
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		time.Sleep(time.Minute)
		os.Exit(0)
	case "log":
		LiveLong()
		if _, err := fmt.Fprintln(os.Stderr, "no process reads this"); err == nil {
			os.Exit(3)
		}
		os.Exit(0)
	}
	child := func(what string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLiveLong$")
		cmd.Env = append(os.Environ(), "WORKFLOW_TEST_LIVE_LONG="+what)
		return cmd
	}
	// Service managers do not restart a service that exits with code 2.
	cmd := child("crash")
	err := cmd.Run()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGABRT {
		t.Errorf("a crash ends with %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = child("log")
	cmd.Stderr = w
	r.Close()
	if err := cmd.Run(); err != nil {
		t.Errorf("a log without a reader ends it: %v", err)
	}
	w.Close()
}
