package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
)

// operator runs a command of the agent's program as the operator on the host does: with the agent's
// state directory, and nothing else of its environment.
func operator(ctx context.Context, t *testing.T, w *harness.Site, agent int, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "customer-managed-workflow-agent"), args...)
	dir := filepath.Join(w.Dir, fmt.Sprintf("agent%d", agent))
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "PULUMI_AGENT_STATE_DIRECTORY=" + filepath.Join(dir, "state")}
	data, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(data), cmd.ProcessState.ExitCode()
}

type report struct {
	State   string   `json:"state"`
	Reasons []string `json:"reasons"`
	Agent   struct {
		Instance string `json:"instance"`
		PID      int    `json:"pid"`
	} `json:"agent"`
	Jobs []struct {
		DeploymentID string `json:"deploymentID"`
		Stack        string `json:"stack"`
		Phase        string `json:"phase"`
		Pool         string `json:"pool"`
	} `json:"jobs"`
	Ended []struct {
		DeploymentID string `json:"deploymentID"`
		Status       string `json:"status"`
	} `json:"ended"`
}

func status(ctx context.Context, t *testing.T, w *harness.Site, what string, ok func([]report) bool) []report {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var got []report
	var out string
	err := harness.Until(ctx, func() (bool, error) {
		got = nil
		out, _ = operator(ctx, t, w, 0, "status", "--json")
		// For an agent that does not run yet, status prints a message and no list.
		return json.Unmarshal([]byte(strings.SplitAfter(out, "\n]\n")[0]), &got) == nil && ok(got), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v\n%s", what, err, out)
	}
	return got
}

// TestClientsSeeAndDrainAnAgent checks an agent's status and drains it as an operator does. The
// health server is off, so that everything uses the control socket.
func TestClientsSeeAndDrainAnAgent(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	stub := t.TempDir() // pulumi's work does not matter here
	if err := os.WriteFile(filepath.Join(stub, "pulumi"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.Dir, "agent0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, code := operator(ctx, t, w, 0, "status"); code != 3 || !strings.Contains(out, "no agent runs") {
		t.Errorf("without an agent: %d\n%s", code, out)
	}
	if out, code := operator(ctx, t, w, 0, "drain"); code != 3 {
		t.Errorf("drain without an agent: %d\n%s", code, out)
	}
	agent, err := w.StartAgent(ctx, "process", nil, "PATH="+stub+":"+os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	status(ctx, t, w, "a ready agent", func(r []report) bool { return len(r) == 1 && r[0].State == "ready" && len(r[0].Reasons) == 0 })
	if out, code := operator(ctx, t, w, 0, "status"); code != 0 || !strings.Contains(out, "READY") || !strings.Contains(out, "No jobs.") {
		t.Errorf("status of an idle agent: %d\n%s", code, out)
	}

	repo, _, err := w.Git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": harness.YamlProgram})
	if err != nil {
		t.Fatal(err)
	}
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	release := filepath.Join(w.Dir, "release")
	d := s.Deploy(ctx, t, "update", repo.URL, "until [ -e "+release+" ]; do sleep 0.1; done")
	got := status(ctx, t, w, "the running job", func(r []report) bool {
		return len(r) == 1 && len(r[0].Jobs) == 1 && r[0].Jobs[0].Phase == "running"
	})[0]
	if j := got.Jobs[0]; j.DeploymentID != d.ID || j.Stack != s.Name || j.Pool != w.Pool.ID || got.Agent.PID != agent.Process.Pid() {
		t.Errorf("status shows %+v", got)
	}
	if out, code := operator(ctx, t, w, 0, "status", "--instance", "0"); code != 0 || !strings.Contains(out, s.Name) || !strings.Contains(out, d.ID) {
		t.Errorf("status of a busy agent: %d\n%s", code, out)
	}
	if out, code := operator(ctx, t, w, 0, "status", "--instance", "7"); code != 3 {
		t.Errorf("status of an instance that does not run: %d\n%s", code, out)
	}

	// A drain whose timeout passes; it continues.
	out, code := operator(ctx, t, w, 0, "drain", "--wait", "--timeout", "2500ms")
	if code != 4 || !strings.Contains(out, "waiting for 1 job: update of "+s.Name) || !strings.Contains(out, "still draining") {
		t.Errorf("a drain without time: %d\n%s", code, out)
	}
	waiting := s.Deploy(ctx, t, "preview", repo.URL)
	if out, code := operator(ctx, t, w, 0, "status"); code != 0 || !strings.Contains(out, "DRAINING") {
		t.Errorf("status of a draining agent: %d\n%s", code, out)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, code = operator(ctx, t, w, 0, "drain", "--wait")
	}()
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-ended
	if code != 0 || !strings.Contains(out, "has ended; none of its jobs is left") {
		t.Errorf("the drain: %d\n%s", code, out)
	}
	<-agent.Process.Done()
	if err := agent.Process.Err(); err.Error() != "exit status 0" {
		t.Errorf("the agent ended with %v", err)
	}
	if d := s.Finish(ctx, t, d); d.Status != "succeeded" {
		t.Errorf("the job that was waited for: %+v", d)
	}
	if now, err := s.Get(ctx, waiting); err != nil || now.Status != "not-started" {
		t.Errorf("the draining agent took work: %+v, %v", now, err)
	}
	if _, err := os.Lstat(filepath.Join(w.Dir, "agent0", "state", "instances", "0", "control.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestClientsOfTheControlSocket kills agents and checks that their successors answer on the socket,
// and runs two agents on one host.
func TestClientsOfTheControlSocket(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	first, err := w.StartAgent(ctx, "process", nil)
	if err != nil {
		t.Fatal(err)
	}
	status(ctx, t, w, "a ready agent", func(r []report) bool { return len(r) == 1 && r[0].State == "ready" })
	if err := first.Process.Stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if out, code := operator(ctx, t, w, 0, "status"); code != 3 {
		t.Errorf("status of a killed agent: %d\n%s", code, out)
	}
	if err := w.RestartAgent(ctx); err != nil {
		t.Fatal(err)
	}
	status(ctx, t, w, "the restarted agent", func(r []report) bool { return len(r) == 1 && r[0].State == "ready" })

	second, err := lab.StartAgent(context.WithoutCancel(ctx), w.Last)
	if err != nil {
		t.Fatal(err)
	}
	w.Agents = append(w.Agents, second)
	both := status(ctx, t, w, "both agents", func(r []report) bool {
		return len(r) == 2 && r[0].State == "ready" && r[1].State == "ready"
	})
	if both[0].Agent.Instance != "0" || both[1].Agent.Instance != "1" || both[1].Agent.PID != second.Process.Pid() {
		t.Errorf("the agents are %+v", both)
	}
	if out, code := operator(ctx, t, w, 0, "drain"); code != 2 || !strings.Contains(out, "--instance (0, 1)") {
		t.Errorf("drain without a choice: %d\n%s", code, out)
	}
	if out, code := operator(ctx, t, w, 0, "drain", "--instance", "1", "--wait"); code != 0 {
		t.Errorf("drain of one of two: %d\n%s", code, out)
	}
	status(ctx, t, w, "the other agent alone", func(r []report) bool { return len(r) == 1 && r[0].Agent.Instance == "0" && r[0].State == "ready" })
}

func TestClientsOfTheHealthPort(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	port, err := lab.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.StartAgent(ctx, "process", map[string]string{
		"http_server_port": strconv.Itoa(port), "request_retry_wait": "500ms", "request_retry_max_wait": "2s",
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, accept string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	become := func(what string, ok func() bool) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := harness.Until(waiting, func() (bool, error) { return ok(), nil }); err != nil {
			_, page := ask(http.MethodGet, "/readyz", "")
			t.Fatalf("waiting for %s: %v\n%s", what, err, page)
		}
	}
	become("readiness", func() bool { code, _ := ask(http.MethodGet, "/readyz", ""); return code == 200 })
	if code, page := ask(http.MethodGet, "/status", "text/html"); code != 200 || !strings.Contains(page, ">ready<") || strings.Contains(page, w.Pool.Token) {
		t.Errorf("the page: %d\n%s", code, page)
	}
	if _, text := ask(http.MethodGet, "/metrics", ""); !strings.Contains(text, "\nworkflow_agent_ready 1\n") || !strings.Contains(text, "\nworkflow_agent_server_connected 1\n") {
		t.Errorf("the metrics:\n%s", text)
	}
	if code, _ := ask(http.MethodPost, "/drain", ""); code != 404 {
		t.Errorf("the port offers to drain: %d", code)
	}

	// Without its server the agent cannot accept jobs, and reports it.
	if err := w.Server.Process.Stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	become("unreadiness", func() bool {
		code, body := ask(http.MethodGet, "/readyz", "")
		return code == 503 && strings.Contains(body, "server")
	})
	if code, _ := ask(http.MethodGet, "/healthz", ""); code != 200 {
		t.Errorf("an agent without a server is not ill at once: %d", code)
	}
	if err := w.RestartServer(ctx); err != nil {
		t.Fatal(err)
	}
	become("readiness again", func() bool { code, _ := ask(http.MethodGet, "/readyz", ""); return code == 200 })
	if err := agent.Process.Stop(syscall.SIGTERM, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// TestClientsDebugARunner runs the example of the documentation with the real programs.
func TestClientsDebugARunner(t *testing.T) {
	ctx := t.Context()
	bin, _ := harness.Programs(t)
	dir := t.TempDir()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "customer-managed-workflow-agent"), "debug", "workflow-runner",
		"--job", filepath.Join(root, "examples", "debug-job.json"))
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), "PULUMI_AGENT_TOKEN=pul-secret-token"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	want := regexp.MustCompile(`^hello with \[secret\] from ` + regexp.QuoteMeta(dir) + `/workflow-debug-\d+/work\nerror: Fail ended with exit code 7\n$`)
	if code := cmd.ProcessState.ExitCode(); code != 7 || !want.Match(out) || !strings.Contains(stderr.String(), `msg="step started" job_id=debug name="Say hello" step=1`) {
		t.Errorf("%d:\n%s\n%s", code, out, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
