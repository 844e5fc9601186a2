package child

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
)

func startScript(t *testing.T, script string) (*Process, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p := must.Get(Start(t.Context(), "/bin/sh", []string{"-c", script}, os.Environ(), log))(t)
	ready := func() (bool, error) { return strings.Contains(Tail(log, 1), "ready"), nil }
	must.OK(t, Poll(t.Context(), 5*time.Millisecond, ready))
	return p, log
}

func TestProcessStops(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	must.OK(t, p.Stop(syscall.SIGTERM, time.Minute))
	if got := p.Err().Error(); got != "exit status 3" {
		t.Errorf("it ended with %q, want exit status 3", got)
	}
	if got := Tail(log, 1); got != "bye" {
		t.Errorf("its last line is %q, want bye", got)
	}
	if err := p.Stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Errorf("stopping it again: %v", err)
	}
}

func TestProcessIsKilledIfItDoesNotListen(t *testing.T) {
	t.Parallel()
	p, _ := startScript(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := p.Stop(syscall.SIGTERM, 50*time.Millisecond); err == nil {
		t.Error("killing it returned no error")
	}
	if got := p.Err().Error(); got != "signal: killed" {
		t.Errorf("it ended with %q, want signal: killed", got)
	}
}

func TestStartNamesTheProgram(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), "/no/such/program", nil, nil, filepath.Join(t.TempDir(), "log"))
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("starting a missing program: %v", err)
	}
}
