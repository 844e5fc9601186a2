package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// runShell runs a job with one shell step in a runner process and returns the runner's output.
func runShell(t *testing.T, text string) string {
	t.Helper()
	server := fakes.NewServer(t)
	job := server.Add(func(j *fakes.ServerJob) { j.Token = "launch-secret-0123456789" })
	input, err := json.Marshal(protocol.Launch{
		ServiceURL: server.URL, JobID: job.ID, JobToken: job.Token, Epoch: 1, EchoLog: true,
		Definition: &workflow.JobDefinition{
			Image: &workflow.Image{}, Env: map[string]string{}, Shell: "sh",
			Steps: []workflow.Step{{Name: "Setup"}, {Name: "Shell", Run: text}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	leaked, other, err := os.Pipe() // a descriptor that was open when the agent was started
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	defer other.Close()
	cmd := command(t, "run", "--job-dir", filepath.Join(t.TempDir(), "job"))
	cmd.Stdin, cmd.ExtraFiles = bytes.NewReader(input), []*os.File{leaked}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestNothingOutlivesTheJob checks that no process survives the job, even one that left the job's
// session, lost its parent and cleared its environment.
func TestNothingOutlivesTheJob(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the runner can find such processes only on Linux")
	}
	file := filepath.Join(t.TempDir(), "pid")
	runShell(t, `(env -i setsid sh -c 'echo $$ > '`+file+`'.new; mv '`+file+`'.new '`+file+`'; exec sleep 300' </dev/null >/dev/null 2>&1 &) ; until [ -s `+file+` ]; do :; done`)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("process %d outlived its job (%v)", pid, err)
	}
}

// TestStepsInheritNothing checks, from within a step, what the step can read through its own
// descriptors and its parent process.
func TestStepsInheritNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the descriptors of processes as files")
	}
	out := runShell(t, `ls -l /proc/self/fd; head -c 100 /proc/$PPID/environ /proc/$PPID/mem 2>/dev/null | wc -c; echo "input $(cat | wc -c)"`)
	seen := 0
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[len(fields)-2] == "->" {
			seen++
			number, target := fields[len(fields)-3], fields[len(fields)-1]
			if n, err := strconv.Atoi(number); err != nil || n > 2 && !strings.HasSuffix(target, "/fd") {
				t.Errorf("the step has inherited %s", line)
			}
		}
	}
	if seen != 4 || !strings.Contains(out, "0 -> /dev/null") || !strings.Contains(out, "input 0") {
		t.Errorf("the step printed:\n%s", out)
	}
	if strings.Contains(out, "launch-secret") {
		t.Errorf("the output contains the token:\n%s", out)
	}
}
