package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// The tests in this file start the real agent with a setting and check its effect.
// internal/agent/config/effect_test.go lists the tests for each key.

func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func healthz(host, port string) int {
	client := &http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get("http://" + net.JoinHostPort(host, port) + "/healthz")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestKeysOfPolls(t *testing.T) {
	p := newPlane(t, false)
	port := freePort(t, "127.0.0.1")
	a := p.runAgent(
		t, "service_url="+p.http.URL+"/base//", "polling_interval=200ms", "request_timeout=20s", "enabled_workflow_types=deployment,policy_evaluation",
		"max_concurrent_jobs=3", "http_server_port="+port, "http_server_address=127.0.0.1", "log_format=json",
	)
	var polls []seenPoll
	a.until("polls", func() bool { polls, _, _, _ = p.look(); return len(polls) >= 4 })
	last := polls[3]
	if got := last.header.Get("Authorization"); got != "token "+goodToken {
		t.Errorf("token: %s", got)
	}
	if !slices.Equal(last.types, []string{"deployment", "policy_evaluation"}) {
		t.Errorf("enabled_workflow_types: %q", last.types)
	}
	if got := last.header.Get(protocol.HeaderAgentSlots); got != "3" {
		t.Errorf("max_concurrent_jobs: %s free slots", got)
	}
	if got := last.header.Get(protocol.HeaderPrefer); got != "wait=15" {
		t.Errorf("request_timeout: %s", got)
	}
	if gap := last.at.Sub(polls[2].at); gap < 190*time.Millisecond {
		t.Errorf("polling_interval: %s between two polls", gap)
	}
	a.until("http_server_port", func() bool { return healthz("127.0.0.1", port) == http.StatusOK })
	line, _, _ := strings.Cut(a.stderr.String(), "\n")
	if !json.Valid([]byte(line)) {
		t.Errorf("log_format: %s", line)
	}
	if info, err := os.Stat(filepath.Join(a.dir, "state", "instances")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state_directory: %v, %v", info, err)
	}
}

func TestKeyPollingIntervalOverride(t *testing.T) {
	p := newPlane(t, false)
	a := p.runAgent(t, "polling_interval_override=true")
	var polls []seenPoll
	a.until("polls", func() bool { polls, _, _, _ = p.look(); return len(polls) >= 3 })
	for _, poll := range polls {
		if got := poll.header.Get(protocol.HeaderPrefer); got != "" {
			t.Errorf("the server is asked to hold the poll: %s", got)
		}
	}
}

// TestKeysOfAJob checks which settings reach a job's runner, and that the agent exits after the
// job.
func TestKeysOfAJob(t *testing.T) {
	p := newPlane(t, true)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.http.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	p.plan(workflow.TypeDeployment)
	a := p.runAgent(
		t, "ca_certificate_file="+ca, "env_forward_allowlist=CLOUD_KEY", "$CLOUD_KEY=cloud-secret", "$OTHER_KEY=other-secret", "$DOCKER_HOST=unix:///nowhere.sock",
		"shared_volume_directory="+shared, "single_run=true", "log_job_output=false",
		"go_mirror=https://go.example.com/", "npm_mirror=npm.example.com", "pypi_mirror=https://pypi.example.com/simple", "plugin_mirror=https://plugins.example.com",
	)
	select {
	case <-a.done:
	case <-time.After(2 * time.Minute):
		t.Fatal("single_run: the agent does not end")
	}
	_, _, results, _ := p.look()
	if code := a.cmd.ProcessState.ExitCode(); code != program.ExitOK || len(results) != 1 {
		t.Errorf("single_run: exit code %d, %d results", code, len(results))
	}
	launches := a.launches()
	if len(launches) != 1 {
		t.Fatalf("working_directory: its runner was started %d times", len(launches))
	}
	launch := launches[0]
	if launch.CACertPEM != string(text) {
		t.Errorf("ca_certificate_file: the job gets %q", launch.CACertPEM)
	}
	if len(launch.ForwardedEnv) != 2 || launch.ForwardedEnv["CLOUD_KEY"] != "cloud-secret" || launch.ForwardedEnv["DOCKER_HOST"] != "unix:///nowhere.sock" {
		t.Errorf("env_forward_allowlist and DOCKER_HOST: %v", launch.ForwardedEnv)
	}
	for name, want := range map[string]string{
		"GOPROXY": "https://go.example.com", "npm_config_registry": "https://npm.example.com", "PIP_INDEX_URL": "https://pypi.example.com/simple",
		"PULUMI_PLUGIN_DOWNLOAD_URL_OVERRIDES": ".*=https://plugins.example.com",
	} {
		if got := launch.Definition.Env[name]; got != want {
			t.Errorf("mirrors: %s is %q, want %q", name, got, want)
		}
	}
	if launch.EchoLog || strings.Contains(a.stdout.String(), "said by the job") {
		t.Error("log_job_output: the job's output shows")
	}
	files, err := filepath.Glob(filepath.Join(a.dir, "jobdir-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if dir, err := os.ReadFile(files[0]); err != nil || !strings.HasPrefix(string(dir), shared+"/") {
		t.Errorf("shared_volume_directory: the job is in %s, %v", dir, err)
	}
}

func TestKeyLogJobOutput(t *testing.T) {
	p := newPlane(t, false)
	p.plan(workflow.TypeDeployment)
	a := p.runAgent(t, "log_job_output=true")
	a.until("the job's output", func() bool { return strings.Contains(a.stdout.String(), "said by the job") })
	if launches := a.launches(); len(launches) != 1 || !launches[0].EchoLog {
		t.Errorf("the runner is not told to repeat its log")
	}
}

// TestKeysThatRefuseJobs checks that a refused job never reaches a runner, and that the job's log
// names the key.
func TestKeysThatRefuseJobs(t *testing.T) {
	const docker = "deploy_target=docker"
	engine := "$DOCKER_HOST=" + engineThatPings(t)
	for _, tt := range []struct {
		settings []string
		kind     workflow.Type
		says     string
	}{
		{[]string{"allowed_repositories=github.com/acme/*"}, workflow.TypeDeployment, "allowed_repositories"},
		{[]string{"allowed_images=acme/*", docker, engine}, workflow.TypeDeployment, "pulumi/pulumi:latest"},
		{[]string{"allowed_images=pulumi/*", "$PULUMI_DEPLOY_OVERRIDE_IMAGE_REFERENCE=other/image:1", docker, engine}, workflow.TypeDeployment, "other/image:1"},
		{[]string{"enabled_workflow_types=deployment"}, workflow.TypeInsightsScan, "enabled_workflow_types"},
	} {
		t.Run(strings.Join(tt.settings, " "), func(t *testing.T) {
			p := newPlane(t, false)
			p.plan(tt.kind)
			a := p.runAgent(t, append(tt.settings, "single_run=true")...)
			a.until("a result", func() bool { _, _, results, _ := p.look(); return len(results) > 0 })
			_, _, results, logs := p.look()
			if len(results) != 1 || results[0].Reason != workflow.ReasonRefused || !strings.Contains(logs, tt.says) || len(a.launches()) > 0 {
				t.Errorf("%d launches, results %+v, log:\n%s", len(a.launches()), results, logs)
			}
		})
	}
}

// engineThatPings starts a fake Docker Engine that suffices for an agent that starts no containers.
func engineThatPings(t *testing.T) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "key") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Ostype", "linux")
		if strings.HasPrefix(r.URL.Path, "/v") {
			io.WriteString(w, "{}") // these endpoints return JSON objects
		}
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Close()
		<-served
		os.RemoveAll(dir)
	})
	return "unix://" + l.Addr().String()
}

func TestKeyMaxConcurrentJobs(t *testing.T) {
	p := newPlane(t, false)
	p.hold = true
	for range 3 {
		p.plan(workflow.TypeDeployment)
	}
	a := p.runAgent(t, "max_concurrent_jobs=2")
	a.until("two jobs at once", func() bool { return len(a.launches()) == 2 })
	p.mu.Lock()
	waiting := len(p.jobs)
	p.mu.Unlock()
	if waiting != 1 {
		t.Errorf("%d jobs wait", waiting)
	}
}

func TestKeyJobStatusLoopInterval(t *testing.T) {
	p := newPlane(t, false)
	p.hold = true
	p.plan(workflow.TypeDeployment)
	a := p.runAgent(t, "job_status_loop_interval=300ms")
	var statuses []time.Time
	a.until("status calls", func() bool { _, statuses, _, _ = p.look(); return len(statuses) >= 3 })
	for i := range statuses[1:3] {
		if gap := statuses[i+1].Sub(statuses[i]); gap < 290*time.Millisecond {
			t.Errorf("%s between two status calls", gap)
		}
	}
}

// TestKeysOfRetries checks that a failed status call is retried as configured, before the next
// regular call is due.
func TestKeysOfRetries(t *testing.T) {
	p := newPlane(t, false)
	p.hold = true
	p.statusCode = http.StatusServiceUnavailable
	p.plan(workflow.TypeDeployment)
	const interval = 3 * time.Second
	a := p.runAgent(
		t, "job_status_loop_interval="+interval.String(), "request_retry_count=3", "request_retry_wait=50ms", "request_retry_max_wait=100ms",
		"circuit_breaker_failures=1000",
	)
	var statuses []time.Time
	a.until("the second round of status calls", func() bool { _, statuses, _, _ = p.look(); return len(statuses) >= 5 })
	if took := statuses[3].Sub(statuses[0]); took > interval/2 {
		t.Errorf("request_retry_wait: three repetitions took %s", took)
	}
	if pause := statuses[4].Sub(statuses[3]); pause < interval/2 {
		t.Errorf("request_retry_count: there is a fourth repetition, %s after the third", pause)
	}
}

func TestKeysOfTheCircuitBreaker(t *testing.T) {
	p := newPlane(t, false)
	p.pollCode = http.StatusServiceUnavailable
	a := p.runAgent(t, "circuit_breaker_failures=3", "circuit_breaker_timeout=7m", "request_retry_wait=20ms", "request_retry_max_wait=40ms")
	a.until("the open breaker", func() bool {
		return strings.Contains(a.stderr.String(), "server failed 3 times in a row") && strings.Contains(a.stderr.String(), "7m")
	})
	before, _, _, _ := p.look()
	if len(before) != 3 {
		t.Errorf("circuit_breaker_failures: open after %d polls", len(before))
	}
	p.mu.Lock()
	p.pollCode = 0
	p.mu.Unlock()
	a.until("the end of the outage", func() bool { return strings.Contains(a.stderr.String(), "the server responds again") })
}

func TestKeyHealthThreshold(t *testing.T) {
	p := newPlane(t, false)
	p.pollCode = http.StatusServiceUnavailable
	port := freePort(t, "127.0.0.1")
	a := p.runAgent(t, "health_threshold=300ms", "http_server_port="+port, "polling_interval=1h")
	a.until("an agent that is unhealthy", func() bool { return healthz("127.0.0.1", port) == http.StatusServiceUnavailable })
}

// TestKeysOfAnotherTarget checks that the agent logs which settings have no effect, and continues.
func TestKeysOfAnotherTarget(t *testing.T) {
	p := newPlane(t, false)
	a := p.runAgent(t, "$PULUMI_AGENT_DEBUG_POD=true")
	a.until("polls", func() bool { polls, _, _, _ := p.look(); return len(polls) > 0 })
	if !strings.Contains(a.stderr.String(), "debug_pod has no effect") {
		t.Error("nothing is said about debug_pod")
	}
}
