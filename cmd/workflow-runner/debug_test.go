package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/runner"
)

func debugging(t *testing.T, stdin string, args ...string) (stdout, stderr, temp string, code int) {
	t.Helper()
	cmd := command(t, append([]string{"debug"}, args...)...)
	temp = t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+temp)
	cmd.Stdin = strings.NewReader(stdin)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	_ = cmd.Run()
	return out.String(), err.String(), temp, cmd.ProcessState.ExitCode()
}

// TestDebugRunsTheExample checks the masking, the order of steps and the exit code of the
// documented example.
func TestDebugRunsTheExample(t *testing.T) {
	out, stderr, temp, code := debugging(t, "", "--job", "../../examples/debug-job.json")
	if code != 7 || !strings.HasPrefix(out, "hello with [secret] from "+temp) || !strings.Contains(out, "error: Fail exited with code 7\n") {
		t.Errorf("%d: %s%s", code, out, stderr)
	}
	if strings.Contains(out+stderr, "s3cret-value") {
		t.Errorf("the output contains the secret: %s%s", out, stderr)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("leftovers: %v, %v", left, err)
	}
}

func TestDebugKeepsTheDirectory(t *testing.T) {
	definition := `{"steps":[{"name":"Setup"},{"name":"Write","run":"echo here >file"}]}`
	out, stderr, temp, code := debugging(t, definition, "--job", "-", "--keep")
	left, err := filepath.Glob(filepath.Join(temp, "workflow-debug-*"))
	if code != 0 || err != nil || len(left) != 1 || !strings.Contains(stderr, left[0]) {
		t.Fatalf("%d, %v, %v: %s%s", code, left, err, out, stderr)
	}
	if data, err := os.ReadFile(filepath.Join(left[0], protocol.DirWork, "file")); err != nil || string(data) != "here\n" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestDebugRefusesNonsense(t *testing.T) {
	for name, tt := range map[string]struct{ definition, want string }{
		"no JSON":  {"steps:", "reading the job definition"},
		"no steps": {`{"steps":[]}`, "0 steps"},
		"empty":    {"", "reading the job definition"},
	} {
		out, stderr, temp, code := debugging(t, tt.definition, "--job", "-")
		if code != runner.ExitNoLaunch || !strings.Contains(stderr, tt.want) || out != "" {
			t.Errorf("%s: %d: %s%s", name, code, out, stderr)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("%s: leftovers: %v, %v", name, left, err)
		}
	}
	if _, stderr, _, code := debugging(t, "", "--job", "/does/not/exist.json"); code != runner.ExitNoLaunch || !strings.Contains(stderr, "/does/not/exist.json") {
		t.Errorf("%d: %s", code, stderr)
	}
}

// TestDebugPassesAnInterruptOn checks that an interrupt reaches the step once, and that the job
// reports its cancellation.
func TestDebugPassesAnInterruptOn(t *testing.T) {
	began := filepath.Join(t.TempDir(), "began")
	// The step starts no program once the signal can arrive, because bash can lose a signal while
	// it starts one.
	definition := `{"steps":[{"name":"Setup"},{"name":"Wait","run":"mkfifo never; trap 'echo interrupted; exit 5' INT; : >` + began + `; read -r _ <>never"}]}`
	cmd := command(t, "debug", "--job", "-")
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	cmd.Stdin = strings.NewReader(definition)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, err := os.Stat(began); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the step did not begin")
		}
		<-time.After(5 * time.Millisecond)
	}
	for range 2 { // a terminal and a parent process can both forward the interrupt
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 || strings.Count(out.String(), "\ninterrupted\n") != 1 || !strings.Contains(out.String(), "reason=cancelled") {
		t.Errorf("%d: %s", code, &out)
	}
}
