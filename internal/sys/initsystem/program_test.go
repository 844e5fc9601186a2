package initsystem

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/must"
)

func TestReachable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes files that others cannot reach")
	}
	dir := must.Get(os.MkdirTemp("/tmp", "reachable"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "agent")
	must.OK(t, os.WriteFile(program, nil, 0o755))
	if err := Reachable(program, "nobody", "move it"); err == nil || !strings.Contains(err.Error(), dir+" is closed") || !strings.HasSuffix(err.Error(), "; move it") {
		t.Errorf("through a closed directory: %v", err)
	}
	if err := Reachable(program, "root", ""); err != nil {
		t.Error(err)
	}
	must.OK(t, os.Chmod(dir, 0o711))
	if err := Reachable(program, "nobody", "move it"); err != nil {
		t.Error(err)
	}
	must.OK(t, os.Chmod(program, 0o700))
	if err := Reachable(program, "nobody", "move it"); err == nil || !strings.Contains(err.Error(), program+" is closed") {
		t.Errorf("a program for root only: %v", err)
	}
}
