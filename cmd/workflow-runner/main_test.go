package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner"
	"workflowagent/internal/workflow"
)

// asMain is the variable that makes the test binary run as the runner. The steps inherit the
// variable, because its prefix is not reserved.
const asMain = "TEST_RUNNER_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), asMain+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

func TestWithoutJob(t *testing.T) {
	for _, tt := range []struct {
		name  string
		args  []string
		stdin string
		code  int
		want  string
	}{
		{"empty input", []string{"run", "--job-dir", "DIR"}, "", runner.ExitNoLaunch, "standard input: no input; nothing was started"},
		{"nonsense", []string{"run", "--job-dir", "DIR"}, "hello", runner.ExitNoLaunch, "not valid JSON"},
		{"no directory", []string{"run"}, "", 1, "job-dir"},
		{"step without a runner", []string{"source", "git"}, "", 1, "is a job's step"},
		{"unknown operation", []string{"pulumi", "explode"}, "", 1, "unknown operation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "job")
			args := strings.Split(strings.ReplaceAll(strings.Join(tt.args, "\n"), "DIR", dir), "\n")
			cmd := command(t, args...)
			cmd.Stdin = strings.NewReader(tt.stdin)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(string(out), tt.want) {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, out)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the job directory was created: %v", err)
			}
		})
	}
}

func TestSignalBeforeJob(t *testing.T) {
	cmd := command(t, "run", "--job-dir", t.TempDir())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// This write blocks until the runner has begun to read, because it exceeds the capacity of a
	// pipe.
	if _, err := stdin.Write(bytes.Repeat([]byte(" "), 256<<10)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(stderr)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != runner.ExitNoLaunch || !strings.Contains(string(out), "nothing was started") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestRunJob runs a complete job in a runner process. It checks that the launch document arrives on
// standard input, that pre-run commands run as steps, that the job directory contains the result,
// and that no secret is exposed.
func TestRunJob(t *testing.T) {
	server := fakes.NewServer(t)
	job := server.Add()
	secret := job.Token
	dir, image := filepath.Join(t.TempDir(), "job"), t.TempDir()
	launch := protocol.Launch{
		ServiceURL: server.URL, JobID: job.ID, JobToken: secret, Epoch: 1, EchoLog: true,
		Definition: &workflow.JobDefinition{
			Image: &workflow.Image{}, Env: map[string]string{},
			Steps: []workflow.Step{{Name: "Setup"}, {Name: "Pre-run command 1", Run: workflow.RunPreRun, WorkingDir: image}},
			Deployment: &workflow.Deployment{
				ID: "d", Organization: "o", Project: "p", Stack: "s", Operation: workflow.OperationUpdate, BackendURL: server.URL,
				// The step's leader has been replaced by the shell, whose parent is the runner.
				PreRunCommands: []string{"cat /proc/$PPID/cmdline /proc/$PPID/environ 2>&1 | tr '\\0' '\\n'; echo the end"},
			},
		},
	}
	input, err := json.Marshal(launch)
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "run", "--job-dir", dir)
	cmd.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
	}
	if !strings.Contains(stdout.String(), "the end\n") || !strings.Contains(stdout.String(), "run\n--job-dir\n") {
		t.Errorf("the copied output is %q", stdout.String())
	}
	// If masking had to hide a secret, the output would contain the marker.
	for _, bad := range []string{secret, "[secret]"} {
		if strings.Contains(stdout.String()+stderr.String(), bad) {
			t.Errorf("the output contains %s:\n%s%s", bad, stdout.String(), stderr.String())
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, protocol.FileResult))
	if err != nil {
		t.Fatal(err)
	}
	var result protocol.Result
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if result.Status != workflow.StatusSucceeded || !result.Reported {
		t.Errorf("got %+v", result)
	}
}

func TestVersion(t *testing.T) {
	out, err := command(t, "version").Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		t.Errorf("got %q, %v", out, err)
	}
}

// TestLanguageHost checks that the program is a language host under that name, which ends with the CLI.
func TestLanguageHost(t *testing.T) {
	cmd := command(t, "127.0.0.1:1", "--tracing", "x")
	cmd.Args[0] = "/plugins/language-executable-v0.0.1/pulumi-language-executable"
	stdin := must.Get(cmd.StdinPipe())(t)
	stdout := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	line := must.Get(bufio.NewReader(stdout).ReadString('\n'))(t)
	if port, err := strconv.Atoi(strings.TrimSpace(line)); err != nil || port <= 0 {
		t.Errorf("the host prints %q, not its port", line)
	}
	must.OK(t, stdin.Close())
	must.OK(t, cmd.Wait())
}
