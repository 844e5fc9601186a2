package clients

import (
	"context"
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

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

func TestClientsOfTheHealthPort(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	port := must.Get(child.FreePort("127.0.0.1"))(t)
	agent := must.Get(w.StartAgent(ctx, "process", map[string]string{
		"http_server_port": strconv.Itoa(port), "request_retry_wait": "500ms", "request_retry_max_wait": "2s",
	}))(t)
	ask := func(method, path, accept string) (int, string) {
		req := must.Get(http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil))(t)
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body := must.Get(io.ReadAll(resp.Body))(t)
		return resp.StatusCode, string(body)
	}
	become := func(what string, ok func() bool) {
		t.Helper()
		waiting, cancel := context.WithTimeout(ctx, harness.Patience)
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

	// Without its server, the agent reports that it cannot accept jobs.
	must.OK(t, w.Server.Process.Stop(syscall.SIGKILL, harness.Patience))
	become("unreadiness", func() bool {
		code, body := ask(http.MethodGet, "/readyz", "")
		return code == 503 && strings.Contains(body, "server")
	})
	if code, _ := ask(http.MethodGet, "/healthz", ""); code != 200 {
		t.Errorf("an agent that has just lost its server is reported as unhealthy: %d", code)
	}
	must.OK(t, w.RestartServer(ctx))
	become("readiness again", func() bool { code, _ := ask(http.MethodGet, "/readyz", ""); return code == 200 })
	must.OK(t, agent.Process.Stop(syscall.SIGTERM, harness.Patience))
}

// TestClientsDebugARunner runs the documentation's example with the real programs.
func TestClientsDebugARunner(t *testing.T) {
	ctx := t.Context()
	bin, _ := harness.Programs(t)
	dir := t.TempDir()
	root := must.Get(lab.Root())(t)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "customer-managed-workflow-agent"), "debug", "workflow-runner",
		"--job", filepath.Join(root, "examples", "debug-job.json"))
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), "PULUMI_AGENT_TOKEN=pul-secret-token"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	want := regexp.MustCompile(`^hello with \[secret\] from ` + regexp.QuoteMeta(dir) + `/workflow-debug-\d+/work\nerror: Fail exited with code 7\n$`)
	if code := cmd.ProcessState.ExitCode(); code != 7 || !want.Match(out) || !strings.Contains(stderr.String(), `msg="step started" job_id=debug name="Say hello" step=1`) {
		t.Errorf("%d:\n%s\n%s", code, out, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
