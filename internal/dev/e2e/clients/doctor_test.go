package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

type diagnosis struct {
	OK     bool `json:"ok"`
	Checks []struct {
		Name, Status, Finding, Found, Advice string
		Details                              []string
	} `json:"checks"`
	text string
}

func (d diagnosis) finding(name string) string {
	for _, c := range d.Checks {
		if c.Name == name {
			return c.Finding
		}
	}
	return "missing"
}

func (d diagnosis) status(name string) string {
	for _, c := range d.Checks {
		if c.Name == name {
			return c.Status
		}
	}
	return "missing"
}

// doctor runs the doctor with the configuration of the site's agents.
func doctor(w *harness.Site, t *testing.T, target string, env []string, args ...string) (diagnosis, int) {
	t.Helper()
	must.OK(t, w.MakePool(t.Context()))
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.Bin, "customer-managed-workflow-agent"), append([]string{"doctor", "--json"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + w.Tools.Dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "PULUMI_AGENT_TOKEN=" + w.Pool.Token, "PULUMI_AGENT_SERVICE_URL=" + w.Server.URL,
		"PULUMI_AGENT_DEPLOY_TARGET=" + target, "PULUMI_AGENT_HTTP_SERVER_PORT=0", "PULUMI_AGENT_STATE_DIRECTORY=" + filepath.Join(dir, "state"),
	}, env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	d := diagnosis{text: out.String()}
	if jerr := json.Unmarshal(out.Bytes(), &d); jerr != nil {
		t.Fatalf("%v, %v: %s%s", err, jerr, &out, &stderr)
	}
	if strings.Contains(d.text+stderr.String(), w.Pool.Token) {
		t.Error("the doctor shows the token")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("the doctor left %v, %v", left, err)
	}
	return d, cmd.ProcessState.ExitCode()
}

// TestClientsOfTheDoctor runs the doctor without containers against the real server and runner,
// with the right token and a wrong one.
func TestClientsOfTheDoctor(t *testing.T) {
	w := harness.StartSite(t, "")
	d, code := doctor(w, t, "process", nil, "--reach", w.Git.URL)
	for _, name := range []string{"config", "proxy", "dns", "tcp", "server", "clock", "token", "runner", "state", "job", "job-dns", "job-server", "job-reach"} {
		// The doctor warns if this machine has an engine that a process can reach.
		if d.status(name) != "ok" && (name != "job" || d.status(name) != "warn") {
			t.Errorf("%s: %s", name, d.status(name))
		}
	}
	job := d.status("job")
	if code != 0 || !d.OK {
		t.Errorf("exit code %d: %s", code, d.text)
	}
	d, code = doctor(w, t, "process", []string{"PULUMI_AGENT_TOKEN=pul-nobodys"})
	if code != 1 || d.OK || d.status("token") != "fail" || d.status("job") != job {
		t.Errorf("with another token: exit code %d: %s", code, d.text)
	}
	// The doctor does not poll, so the server lists no agent.
	var pool struct {
		Agents []any `json:"agents"`
	}
	if err := w.Server.Call(t.Context(), "GET", "/api/orgs/"+w.Server.Organization+"/agent-pools/"+w.Pool.ID, nil, &pool); err != nil || len(pool.Agents) > 0 {
		t.Errorf("the server lists the doctor as an agent: %v, %v", pool.Agents, err)
	}
}

// TestEngineDoctor checks that a trial container on a real engine has the same network as a job,
// and is removed.
func TestEngineDoctor(t *testing.T) {
	w, engine, image := harness.StartEngineSite(t, harness.OnBridge)
	env := []string{"DOCKER_HOST=" + engine.Host, "PULUMI_AGENT_PULL_IMAGE=false"}
	labels := []string{"workflowagent.kind", "workflowagent.owner"}
	before := map[string]int{} // other tests might have used this engine
	for _, label := range labels {
		volumes := must.Get(engine.Volumes(t.Context(), label))(t)
		before[label] = len(volumes)
	}
	d, code := doctor(w, t, "docker", env, "--job-image", image)
	if code != 0 || !d.OK {
		t.Errorf("exit code %d: %s", code, d.text)
	}
	for _, name := range []string{"engine", "engine-disk", "image", "runner", "token", "job", "job-dns", "job-server"} {
		// A distribution's runc can have an old version with backported fixes.
		if d.status(name) != "ok" && (name != "engine" || d.status(name) != "warn") {
			t.Errorf("%s: %s", name, d.status(name))
		}
	}
	// Without an outbound network the host reaches the server, but jobs do not.
	d, code = doctor(w, t, "docker", append(slices.Clone(env), "PULUMI_AGENT_DOCKER_NETWORK=none"), "--job-image", image)
	if code != 1 || d.status("server") != "ok" || d.status("job") != "ok" || d.status("job-server") != "fail" {
		t.Errorf("without a network: exit code %d: %s", code, d.text)
	}
	d, code = doctor(w, t, "docker", env, "--job-image", "nobody/has-this:ever")
	if code != 1 || d.status("image") != "fail" || d.status("job") != "skip" {
		t.Errorf("without an image: exit code %d: %s", code, d.text)
	}
	for _, label := range labels {
		if volumes, err := engine.Volumes(t.Context(), label); err != nil || len(volumes) > before[label] {
			t.Errorf("the doctor left the volumes %v, %v", volumes, err)
		}
	}
}
