package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/delivery"
	"workflowagent/internal/delivery/spooldump"
	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/runner"
	"workflowagent/internal/workflow"
)

// podRun is a run of a job as in a pod.
type podRun struct {
	server *fakes.Server
	job    *fakes.ServerJob
	dir    string // the job's directory
	file   string // the launch document
	launch protocol.Launch
}

func newPodRun(t *testing.T, commands ...string) *podRun {
	t.Helper()
	p := &podRun{server: fakes.NewServer(t), dir: filepath.Join(t.TempDir(), "job"), file: filepath.Join(t.TempDir(), "launch.json")}
	p.job = p.server.Add()
	definition := &workflow.JobDefinition{Image: &workflow.Image{}, Shell: "sh", Env: map[string]string{}, Steps: []workflow.Step{{Name: "Setup"}}}
	for _, c := range commands {
		definition.Steps = append(definition.Steps, workflow.Step{Name: "Step", Run: c})
	}
	p.launch = protocol.Launch{ServiceURL: p.server.URL, JobID: p.job.ID, JobToken: p.job.Token, Epoch: 1, AskLeave: true, EchoLog: true, Definition: definition}
	p.write(t)
	return p
}

func (p *podRun) write(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(p.launch)
	if err == nil {
		err = os.WriteFile(p.file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// command returns the main command of a pod with this ID.
func (p *podRun) command(t *testing.T, uid string) *exec.Cmd {
	t.Helper()
	cmd := command(t, "run", "--job-dir", p.dir, "--launch-file", p.file, "--holder-env", "WORKFLOW_POD_UID")
	cmd.Env = append(cmd.Env, "WORKFLOW_POD_UID="+uid)
	return cmd
}

func (p *podRun) result(t *testing.T) (r protocol.Result) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, protocol.FileResult))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRunInPod(t *testing.T) {
	p := newPodRun(t, `test ! -e "$LAUNCH" && echo "no file, pod ${WORKFLOW_POD_UID-unset}"`)
	cmd := p.command(t, "pod-1")
	cmd.Env = append(cmd.Env, "LAUNCH="+p.file)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "no file, pod unset\n") {
		t.Fatalf("%v: %s", err, out)
	}
	p.server.View(func() {}) // the server's handlers have finished
	if p.job.Holder != "pod-1" || p.job.Status != workflow.StatusSucceeded || p.job.Phases[0] != protocol.PhaseStarting || len(p.job.Refused) != 0 {
		t.Errorf("holder %q, %s, phases %v", p.job.Holder, p.job.Status, p.job.Phases)
	}
	if r := p.result(t); !r.Reported || !r.SealedWith(p.job.Token) {
		t.Errorf("result %+v", r)
	}
	for name, want := range map[string]os.FileMode{".": 0o711, protocol.DirSpool: 0o755, protocol.FileResult: 0o644} {
		if info, err := os.Stat(filepath.Join(p.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; another container's user must read it", name, info.Mode(), err)
		}
	}
}

// TestCopiedPod starts copies of a pod, as a debugging user does, at each point of the job.
func TestCopiedPod(t *testing.T) {
	p := newPodRun(t, "echo run")
	if out, err := p.command(t, "pod-1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tc := range []struct {
		name string
		make func() // the launch document that the copy finds
		code int
		want string
	}{
		{"without the document", func() {}, runner.ExitNoLaunch, "a copy of its pod cannot run it again"},
		{"with the emptied Secret", func() { _ = os.WriteFile(p.file, []byte("{}\n"), 0o600) }, runner.ExitNoLaunch, "nothing was started"},
		{"with the old document, after the job", func() { p.write(t) }, runner.ExitNoLeave, "does not permit this runner"},
		{"with the old document, during the job", func() {
			p.server.Update(func() { p.job.Status = workflow.StatusRunning })
			p.write(t)
		}, runner.ExitNoLeave, "does not permit this runner"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.make()
			_ = os.RemoveAll(p.dir)
			cmd := p.command(t, "pod-2")
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains(string(out), tc.want) {
				t.Errorf("exit code %d: %s", code, out)
			}
			if _, err := os.Stat(p.dir); !os.IsNotExist(err) {
				t.Errorf("the copy made the job's directory: %v", err)
			}
			if _, err := os.Stat(p.file); !os.IsNotExist(err) {
				t.Errorf("the document is still there: %v", err)
			}
		})
	}
	p.server.View(func() {}) // the server's handlers have finished
	if len(p.job.Results) != 1 || len(p.job.Log(1)) != 1 {
		t.Errorf("results %+v, log %q", p.job.Results, p.job.Log(1))
	}
}

// TestRestartedContainer restarts the container of a job whose result the server does not have yet.
// The container has the same name, and with the old document the server would repeat its permission.
func TestRestartedContainer(t *testing.T) {
	p := newPodRun(t, "echo run")
	if out, err := p.command(t, "pod-1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p.server.Update(func() { p.job.Status = workflow.StatusRunning })
	p.write(t)
	cmd := p.command(t, "pod-1")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != runner.ExitNoLeave || !strings.Contains(string(out), "already started") {
		t.Errorf("exit code %d: %s", code, out)
	}
	p.server.View(func() {}) // the server's handlers have finished
	if len(p.job.Results) != 1 {
		t.Errorf("results %+v", p.job.Results)
	}
}

func TestWithoutName(t *testing.T) {
	p := newPodRun(t, "echo run")
	cmd := p.command(t, "")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != runner.ExitNoLaunch || !strings.Contains(string(out), "no name") {
		t.Errorf("%s", out)
	}
	if p.job.Leave {
		t.Error("the server gave leave")
	}
}

// TestTermWhileAskingLeave removes a pod whose server does not answer.
func TestTermWhileAskingLeave(t *testing.T) {
	p := newPodRun(t, "echo run")
	asked := make(chan struct{}, 100)
	p.server.OnFault(func(w http.ResponseWriter, _ *http.Request) bool {
		asked <- struct{}{}
		fakes.Drop(w)
		return true
	})
	cmd := p.command(t, "pod-1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != runner.ExitNoLeave || !strings.Contains(out.String(), "nothing was started") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}

// TestTermInPod removes the pod while a step runs: the step gets one SIGINT, and the job is evicted.
func TestTermInPod(t *testing.T) {
	p := newPodRun(t, `trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done`)
	cmd := p.command(t, "pod-1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.server.WaitFor("the step", func() bool { return p.job.Has(1, "ready") })
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	p.server.View(func() {}) // the server's handlers have finished
	interrupts := slices.DeleteFunc(p.job.Log(1), func(line string) bool { return line != "interrupted" })
	if len(p.job.Results) != 1 || p.job.Results[0].Reason != workflow.ReasonEvicted || len(interrupts) != 1 {
		t.Errorf("results %+v, log %q", p.job.Results, p.job.Log(1))
	}
}

// TestKeep kills a runner that could not send its log, and continues the log from what the sidecar
// prints.
func TestKeep(t *testing.T) {
	p := newPodRun(t, "echo unsent; sleep 60")
	p.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if fakes.IsCall(r, "PUT", "/log") {
			fakes.Drop(w)
			return true
		}
		return false
	})
	cmd := p.command(t, "pod-1")
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("unsent\n"))); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	dir := t.TempDir()
	err = spooldump.Read(strings.NewReader(keep(t, p.dir)), func(name string, _ int64, content io.Reader) error {
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	spool, err := delivery.Open(dir, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	if s := spool.Summaries(); len(s) != 1 || s[0].Step != 1 || s[0].Bytes == 0 {
		t.Errorf("the copied spool has %+v", s)
	}

	// A sidecar of a job whose server has everything prints no log.
	done := newPodRun(t, "echo sent")
	if out, err := done.command(t, "pod-1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err = spooldump.Read(strings.NewReader(keep(t, done.dir)), func(name string, _ int64, _ io.Reader) error {
		t.Errorf("the sidecar prints %s", name)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// keep runs the sidecar of a job until it receives SIGTERM, and returns its output.
func keep(t *testing.T, jobDir string) string {
	t.Helper()
	cmd := command(t, "keep", "--job-dir", jobDir)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, "Waiting") {
		t.Errorf("the sidecar prints %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(lines)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestInstall(t *testing.T) {
	to, secret, launch := t.TempDir(), filepath.Join(t.TempDir(), "launch.json"), filepath.Join(t.TempDir(), "copy.json")
	if err := os.WriteFile(secret, []byte(`{"a":1}`), 0o400); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a cluster repeats an init container
		if out, err := command(t, "install", "--to", to, "--launch", secret, "--launch-to", launch).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// The job's container can have another user.
	if info, err := os.Stat(filepath.Join(to, protocol.FileEnv)); err != nil || info.Mode() != 0o666 {
		t.Errorf("the file for PULUMI_ENV: %v, %v", info, err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(to, "workflow-runner"), "version")
	cmd.Env = append(os.Environ(), asMain+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the installed runner: %v: %s", err, out)
	}
	data, err := os.ReadFile(launch)
	info, statErr := os.Stat(launch)
	if err != nil || statErr != nil || string(data) != `{"a":1}` || info.Mode().Perm() != 0o444 {
		t.Errorf("%q, %v, %v, %v", data, err, info, statErr)
	}
	if out, err := command(t, "install", "--to", to, "--launch", secret+"x", "--launch-to", launch).CombinedOutput(); err == nil || !strings.Contains(string(out), "reading the job") {
		t.Errorf("without a job: %v: %s", err, out)
	}
}
