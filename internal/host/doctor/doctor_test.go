package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/docker"
	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/host/service"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
)

const testToken = "pul-0123456789abcdef"

// fixture is an environment in which every check succeeds. Tests break parts of it.
type fixture struct {
	options  Options
	settings []string
	server   *httptest.Server
	// the status codes with which the server responds to a status call with or without a token
	with, without int
	date          time.Time
	executor      *fakeExecutor
	bin           string // the PATH for jobs
	engine        *engine
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{with: 404, without: 401, date: time.Now()}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Date", w.date.UTC().Format(http.TimeFormat))
		code := w.without
		if r.Header.Get("Authorization") == "token "+testToken {
			code = w.with
			rw.Header().Set(protocol.HeaderAgentPool, "pool-1")
			rw.Header().Set(protocol.HeaderExternalURL, "https://outside.example.com")
		}
		rw.WriteHeader(code)
		io.WriteString(rw, `{"code":401,"message":"a message"}`)
	}))
	t.Cleanup(w.server.Close)
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	runner := filepath.Join(dir, executor.RunnerName)
	if err := os.WriteFile(runner, []byte("#!/bin/sh\necho v1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"pulumi": "v3.200.0", "git": "git version 2.40", "pulumi-language-yaml": "", "pulumi-language-go": ""} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho "+says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.bin = bin
	w.settings = []string{"service_url=" + w.server.URL, "deploy_target=process", "state_directory=" + state, "working_directory=" + dir, "http_server_port=0", "token=" + testToken}
	w.executor = &fakeExecutor{report: &reach.Report{Version: "v1", Traces: []*reach.Trace{
		{URL: "u1", Host: "h", Addresses: []string{"1.2.3.4"}, Code: 401}, {URL: "u2", Code: 401},
	}}}
	w.engine = &engine{arch: "amd64", facts: docker.Facts{Host: "unix:///x", Version: "29", APIVersion: "1.50", OS: "linux", Arch: "amd64", RootDirectory: "/", SameHost: true}}
	w.options = Options{
		Version: "v1", Environ: []string{"PATH=" + bin}, Executor: w.executor, Owner: "me", Limit: time.Minute,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		Token: func(context.Context) (string, error) { return testToken, nil },
		Disk:  func(string) (int64, int64, error) { return 100 << 30, 50 << 30, nil },
	}
	return w
}

func (w *fixture) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(w.bin, name)); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) set(settings ...string) { w.settings = append(w.settings, settings...) }

func (w *fixture) examine(t *testing.T, names ...string) checkup.Report {
	t.Helper()
	o := w.options
	o.Only = names
	if o.ConfigErr == nil {
		var environ []string
		for _, s := range w.settings {
			key, value, _ := strings.Cut(s, "=")
			environ = append(environ, "PULUMI_AGENT_"+strings.ToUpper(key)+"="+value)
		}
		c, err := config.Load(config.LoadOptions{Environ: environ, UID: os.Geteuid(), TempDir: t.TempDir(), Cwd: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		o.Config = c
		if c.DeployTarget == config.TargetDocker {
			o.Engine = w.engine
		}
		if ca, err := c.CACertificates(); err == nil {
			if o.Client, err = protocol.NewClient(protocol.Options{BaseURL: c.ServiceURL, CACertPEM: ca}); err != nil {
				t.Fatal(err)
			}
			defer o.Client.Close()
		}
	}
	var text bytes.Buffer
	o.Done = func(r checkup.Result) { checkup.Print(&text, r, false) }
	report := Run(t.Context(), o)
	t.Log("\n" + text.String())
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String()+string(data), testToken) {
		t.Error("the token shows")
	}
	return report
}

func want(t *testing.T, report checkup.Report, name string, status checkup.Status, words ...string) {
	t.Helper()
	for _, r := range report.Checks {
		if r.Name != name {
			continue
		}
		if r.Status != status {
			t.Errorf("%s: %s (%s), want %s", name, r.Status, r.Found, status)
		}
		text := r.Found + "\n" + strings.Join(r.Details, "\n") + "\n" + r.Advice
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s lacks %q: %s", name, word, text)
			}
		}
		if (r.Status == checkup.StatusFail || r.Status == checkup.StatusWarn) != (r.Advice != "") {
			t.Errorf("%s: %s with the advice %q", name, r.Status, r.Advice)
		}
		return
	}
	t.Errorf("the report lacks the check %s", name)
}

func TestAllIsWell(t *testing.T) {
	w := newFixture(t)
	report := w.examine(t)
	if !report.OK {
		t.Error("the report is not OK")
	}
	for _, name := range []string{"config", "proxy", "dns", "tcp", "server", "clock", "runner", "state", "disk", "job", "job-dns"} {
		want(t, report, name, checkup.StatusOK)
	}
	want(t, report, "token", checkup.StatusOK, "pool-1")
	want(t, report, "job-server", checkup.StatusOK, w.server.URL, "https://outside.example.com")
	want(t, report, "tls", checkup.StatusSkip, "plain http")
	want(t, report, "port", checkup.StatusSkip, "http_server_port")
	want(t, report, "job-reach", checkup.StatusSkip, "--reach")
	want(t, report, "service", checkup.StatusSkip, "no service")
	want(t, report, "files", checkup.StatusSkip, "no service")
	if !w.executor.removed || w.executor.owner != "me" {
		t.Errorf("the trial job: %+v", w.executor)
	}
	var launch protocol.Launch
	if err := json.Unmarshal(w.executor.launch, &launch); err != nil || launch.Probe == nil || len(launch.Probe.URLs) != 2 ||
		launch.Probe.URLs[1] != "https://outside.example.com"+protocol.StatusProbe || launch.JobToken == testToken {
		t.Errorf("the launch document: %s", w.executor.launch)
	}
	if got := checkup.Summary(report); got != "14 ok, 5 skipped" {
		t.Errorf("the summary is %q", got)
	}
}

func TestBrokenNetwork(t *testing.T) {
	for _, tt := range []struct {
		name  string
		brk   func(t *testing.T, w *fixture)
		check string
		want  checkup.Status
		words []string
	}{
		{"wrong name", func(t *testing.T, w *fixture) { w.set("service_url=https://no-such-host.invalid") }, "dns", checkup.StatusFail, []string{"no-such-host.invalid"}},
		{"closed port", func(t *testing.T, w *fixture) { w.set("service_url=https://" + closedPort(t)) }, "tcp", checkup.StatusFail, []string{"refused"}},
		{"self-signed", func(t *testing.T, w *fixture) { w.set("service_url=" + tlsServer(t)) }, "tls", checkup.StatusFail, []string{"self-signed", "ca_certificate_file"}},
		{"no TLS there", func(t *testing.T, w *fixture) {
			w.set("service_url=" + strings.Replace(w.server.URL, "http:", "https:", 1))
		}, "tls", checkup.StatusFail, []string{"does not speak TLS"}},
		{"wrong token", func(t *testing.T, w *fixture) { w.with = 401 }, "token", checkup.StatusFail, []string{"rejects the token", "run configure", "PULUMI_AGENT_TOKEN"}},
		{"no pool's token", func(t *testing.T, w *fixture) { w.with = 403 }, "token", checkup.StatusFail, []string{"denies access", "a message"}},
		{"no token", func(t *testing.T, w *fixture) { w.options.Token = nil }, "token", checkup.StatusFail, []string{"no token is configured"}},
		{"no exchange", func(t *testing.T, w *fixture) {
			w.options.Token = func(context.Context) (string, error) { return "", errors.New("no policy lets it in") }
		}, "token", checkup.StatusFail, []string{"no policy lets it in"}},
		{"any token is good", func(t *testing.T, w *fixture) { w.without = 404 }, "token", checkup.StatusWarn, []string{"not checked"}},
		{"another pool", func(t *testing.T, w *fixture) { w.set("runner_pool_id=pool-2") }, "token", checkup.StatusWarn, []string{"pool-1", "pool-2"}},
		{"not a control plane", func(t *testing.T, w *fixture) { w.without = 200 }, "server", checkup.StatusWarn, []string{"status 200", "service_url"}},
		{"a broken server", func(t *testing.T, w *fixture) { w.without = 503 }, "server", checkup.StatusFail, []string{"status 503"}},
		{"clock a little off", func(t *testing.T, w *fixture) { w.date = time.Now().Add(-time.Minute) }, "clock", checkup.StatusWarn, []string{"ahead of", "NTP"}},
		{"clock far off", func(t *testing.T, w *fixture) { w.date = time.Now().Add(time.Hour) }, "clock", checkup.StatusFail, []string{"behind"}},
		{"missing proxy", func(t *testing.T, w *fixture) {
			w.options.Proxy = func(*http.Request) (*url.URL, error) {
				return &url.URL{Scheme: "http", Host: closedPort(t), User: url.UserPassword("me", "proxy-password")}, nil
			}
		}, "tcp", checkup.StatusFail, []string{"the proxy runs there"}},
		{"offline", func(t *testing.T, w *fixture) { w.options.Offline = true }, "server", checkup.StatusSkip, []string{"TCP"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			tt.brk(t, w)
			report := w.examine(t)
			want(t, report, tt.check, tt.want, tt.words...)
			if report.OK == (tt.want == checkup.StatusFail) {
				t.Errorf("the report is OK: %t", report.OK)
			}
			if data, _ := json.Marshal(report); strings.Contains(string(data), "proxy-password") {
				t.Error("the password of the proxy shows")
			}
		})
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func tlsServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = discardLog
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func TestBrokenHost(t *testing.T) {
	for _, tt := range []struct {
		name  string
		brk   func(t *testing.T, w *fixture)
		check string
		want  checkup.Status
		words []string
	}{
		{"no pulumi", func(t *testing.T, w *fixture) { w.remove(t, "pulumi") }, "programs", checkup.StatusFail, []string{"pulumi is not on the PATH of jobs, which is /", "install the pulumi CLI"}},
		{"no git", func(t *testing.T, w *fixture) { w.remove(t, "git") }, "programs", checkup.StatusFail, []string{"git is not on the PATH"}},
		{"no language", func(t *testing.T, w *fixture) { w.remove(t, "pulumi-language-yaml") }, "programs", checkup.StatusFail, []string{"no language can run", "go: go is missing"}},
		{"no configuration", func(t *testing.T, w *fixture) { w.options.ConfigErr = errors.New("FILE:1: a: b\nFILE:2: c: d") }, "config", checkup.StatusFail, []string{"FILE:1: a: b", "FILE:2: c: d"}},
		{"no token", func(t *testing.T, w *fixture) { w.set("token=") }, "config", checkup.StatusFail, []string{"token: is required"}},
		{"a warning", func(t *testing.T, w *fixture) { w.set("env_forward_allowlist=ABSENT") }, "config", checkup.StatusWarn, []string{"ABSENT"}},
		{"no authorities", func(t *testing.T, w *fixture) { w.set("ca_certificate_file=/does/not/exist") }, "proxy", checkup.StatusFail, []string{"ca_certificate_file"}},
		{"a sandbox for containers", func(t *testing.T, w *fixture) {
			w.options.Service = &service.Registered{Name: "second", Account: "root", Profile: service.ProfileDocker}
		}, "service", checkup.StatusFail, []string{"for jobs in containers", "service install --name second --process --start"}},
		{"a sandbox for processes", func(t *testing.T, w *fixture) {
			w.set("deploy_target=docker")
			w.options.Service = &service.Registered{Name: service.DefaultName, Account: "root", Profile: service.ProfileProcess}
		}, "service", checkup.StatusWarn, []string{"less strict", "service install --process=false --start"}},
		{"the right sandbox", func(t *testing.T, w *fixture) {
			w.options.Service = &service.Registered{Name: service.DefaultName, Account: "root", Profile: service.ProfileProcess}
		}, "service", checkup.StatusOK, nil},
		{"a service of an unknown user", func(t *testing.T, w *fixture) {
			w.options.Service = &service.Registered{Name: service.DefaultName, Account: "no-such-user", Profile: service.ProfileProcess}
		}, "files", checkup.StatusFail, []string{"no-such-user", "--account"}},
		{"authorities that the service's user cannot read", func(t *testing.T, w *fixture) {
			if os.Geteuid() != 0 {
				t.Skip("another user can read its own files only")
			}
			file := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(file, testAuthority(t), 0o600); err != nil {
				t.Fatal(err)
			}
			w.set("ca_certificate_file=" + file)
			w.options.Service = &service.Registered{Name: service.DefaultName, Account: "nobody", Profile: service.ProfileProcess}
		}, "files", checkup.StatusFail, []string{"the service's user nobody cannot read", "ca_certificate_file: /", "chgrp"}},
		{"no runner", func(t *testing.T, w *fixture) { w.set("working_directory=" + t.TempDir()) }, "runner", checkup.StatusFail, []string{"workflow-runner is not in"}},
		{"another runner", func(t *testing.T, w *fixture) { w.options.Version = "v2" }, "runner", checkup.StatusWarn, []string{"v1", "v2"}},
		{"a runner that does not run", func(t *testing.T, w *fixture) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, executor.RunnerName), []byte("\x7fELF, not"), 0o755); err != nil {
				t.Fatal(err)
			}
			w.set("working_directory=" + dir)
		}, "runner", checkup.StatusFail, []string{"does not run"}},
		{"a file for a state directory", func(t *testing.T, w *fixture) { w.set("state_directory=/dev/null") }, "state", checkup.StatusFail, []string{"not a directory"}},
		{"below a file", func(t *testing.T, w *fixture) { w.set("state_directory=/dev/null/x") }, "state", checkup.StatusFail, []string{"cannot be examined"}},
		{"state directory open to all users", func(t *testing.T, w *fixture) {
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			w.set("state_directory=" + dir)
		}, "state", checkup.StatusFail, []string{"chmod 700"}},
		{"a full disk", func(t *testing.T, w *fixture) {
			w.options.Disk = func(string) (int64, int64, error) { return 100 << 30, 100 << 20, nil }
		}, "disk", checkup.StatusFail, []string{"100 MiB of 100 GiB"}},
		{"an almost full disk", func(t *testing.T, w *fixture) {
			w.options.Disk = func(string) (int64, int64, error) { return 100 << 30, 1 << 30, nil }
		}, "disk", checkup.StatusWarn, []string{"1.0 GiB"}},
		{"a taken port", func(t *testing.T, w *fixture) { w.set("http_server_port=" + portOf(t, http.NotFoundHandler())) }, "port", checkup.StatusWarn, []string{"another program"}},
		{"an agent's port", func(t *testing.T, w *fixture) { w.set("http_server_port=" + portOf(t, healthz("healthy"))) }, "port", checkup.StatusOK, []string{"a healthy agent"}},
		{"a sick agent's port", func(t *testing.T, w *fixture) { w.set("http_server_port=" + portOf(t, healthz("unhealthy"))) }, "port", checkup.StatusWarn, []string{"unhealthy", "engine: down"}},
		{"another host's address", func(t *testing.T, w *fixture) { w.set("http_server_port=18080", "http_server_address=192.0.2.1") }, "port", checkup.StatusWarn, []string{"cannot listen on"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			tt.brk(t, w)
			want(t, w.examine(t), tt.check, tt.want, tt.words...)
		})
	}
}

func testAuthority(t *testing.T) []byte {
	t.Helper()
	authority, err := testcert.NewAuthority("The Company")
	if err != nil {
		t.Fatal(err)
	}
	return authority.PEM()
}

func portOf(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func healthz(status string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"status":%q,"currentTime":"2026-01-01T00:00:00Z","lastActivity":"2026-01-01T00:00:00Z","problems":["engine: down"]}`, status)
	})
}

func TestBrokenJob(t *testing.T) {
	ended := func(exit executor.Exit, output string) func(*fixture) {
		return func(w *fixture) { w.executor.report, w.executor.exit, w.executor.output = nil, exit, output }
	}
	for _, tt := range []struct {
		name  string
		brk   func(w *fixture)
		check string
		want  checkup.Status
		words []string
	}{
		{"no place", func(w *fixture) {
			w.options.Executor, w.options.ExecutorErr = nil, errors.New("no runner")
		}, "job", checkup.StatusFail, []string{"no runner"}},
		{"cannot be prepared", func(w *fixture) { w.executor.prepareErr = errors.New("no such network: jobs") }, "job", checkup.StatusFail, []string{"no such network: jobs"}},
		{"cannot be started", func(w *fixture) { w.executor.startErr = errors.New("exec format error") }, "job", checkup.StatusFail, []string{"exec format error"}},
		{"an old runner", ended(executor.Exit{Code: 64}, "noise\nerror: nothing was started\n"), "job", checkup.StatusFail, []string{"exit code 64", "it said: error: nothing was started"}},
		{"killed", ended(executor.Exit{Code: -1, Signal: "SIGKILL"}, "\x1b[2J"), "job", checkup.StatusFail, []string{"by SIGKILL"}},
		{"out of memory", ended(executor.Exit{Code: -1, OOMKilled: true}, ""), "job", checkup.StatusFail, []string{"docker_memory"}},
		{"gone", ended(executor.Exit{Code: -1, Lost: true}, ""), "job", checkup.StatusFail, []string{"without a trace"}},
		{"an engine within reach of a container", func(w *fixture) {
			dir := t.TempDir()
			// This is the header of an executable for another architecture. It is never executed.
			arch, header := "arm64", append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
			header[16], header[18], header[20], header[52], header[54], header[58] = 2, 183, 1, 64, 56, 64
			if runtime.GOARCH == arch {
				arch, header[18] = "amd64", 62
			}
			if err := os.WriteFile(filepath.Join(dir, executor.EmbeddableName), header, 0o755); err != nil {
				t.Fatal(err)
			}
			w.set("deploy_target=docker", "working_directory="+dir)
			w.engine.arch, w.engine.facts.Arch = arch, arch
			w.executor.report.Engines = []string{"tcp://gateway:2375"}
		}, "job", checkup.StatusFail, []string{"tcp://gateway:2375", "root"}},
		{"an engine within reach of a process", func(w *fixture) { w.executor.report.Engines = []string{"unix:///run/docker.sock"} }, "job", checkup.StatusWarn, []string{"unix:///run/docker.sock", "group docker"}},
		{"another version", func(w *fixture) { w.executor.report.Version = "v0" }, "job", checkup.StatusWarn, []string{"v0"}},
		{"no DNS", func(w *fixture) {
			w.executor.report.Traces[0] = &reach.Trace{Failed: reach.StageDNS, Problem: "the name h is not known here", Advice: "a", Resolvers: []string{"192.0.2.53"}}
		}, "job-dns", checkup.StatusFail, []string{"not known here", "192.0.2.53", "docker_network"}},
		{"no way to the server", func(w *fixture) {
			w.executor.report.Traces[0] = &reach.Trace{Failed: reach.StageConnect, Problem: "no address accepts a connection", Advice: "a"}
		}, "job-server", checkup.StatusFail, []string{"logs and results", "no address accepts a connection", "docker_network"}},
		{"no way to the external URL", func(w *fixture) {
			w.executor.report.Traces[1] = &reach.Trace{Failed: reach.StageConnect, Problem: "no address accepts a connection", Advice: "a"}
		}, "job-server", checkup.StatusFail, []string{"https://outside.example.com", "pulumi gets"}},
		{"the clock in the job", func(w *fixture) {
			w.executor.report.Traces[0].SkewKnown, w.executor.report.Traces[0].Skew = true, -time.Hour
		}, "job-server", checkup.StatusFail, []string{"behind"}},
		{"no way out", func(w *fixture) {
			w.options.Reach = []string{"https://git.example.com", "https://ok.example.com"}
			w.executor.report.Traces = append(
				w.executor.report.Traces,
				&reach.Trace{URL: "https://git.example.com", Failed: reach.StageDNS, Problem: "not known", Advice: "correct it"},
				&reach.Trace{URL: "https://ok.example.com", Code: 200},
			)
		}, "job-reach", checkup.StatusFail, []string{"git.example.com: not known", "ok.example.com: answers with status 200", "correct it"}},
		{"cannot be removed", func(w *fixture) { w.executor.removeErr = errors.New("the disk is read-only") }, "job", checkup.StatusFail, []string{"removing the trial job: the disk is read-only"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			tt.brk(w)
			want(t, w.examine(t), tt.check, tt.want, tt.words...)
			if w.executor.prepared != w.executor.removed {
				t.Error("the trial job was not removed")
			}
		})
	}
}

// TestLeftovers checks that the doctor removes the objects of a killed doctor, but not the objects
// of a running doctor.
func TestLeftovers(t *testing.T) {
	w := newFixture(t)
	w.options.Temporary = true
	w.executor.left = []executor.Handle{{JobID: "old", CreatedAt: time.Now().Add(-time.Hour)}, {JobID: "beside", CreatedAt: time.Now()}}
	want(t, w.examine(t), "job", checkup.StatusOK)
	if len(w.executor.swept) != 1 || w.executor.swept[0] != "old" {
		t.Errorf("removed %v", w.executor.swept)
	}
}

// TestStopped checks that a doctor whose context is canceled returns soon and removes the trial
// job.
func TestStopped(t *testing.T) {
	w := newFixture(t)
	w.executor.started = make(chan struct{})
	w.executor.report = nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var err error
	if w.options.Config, err = config.LoadText(config.LoadOptions{}, "", nil); err != nil {
		t.Fatal(err)
	}
	w.options.Config.DeployTarget = config.TargetProcess
	w.options.Config.ServiceURL = w.server.URL
	w.options.Config.WorkingDirectory = strings.TrimPrefix(w.settings[3], "working_directory=")
	w.options.Only = []string{"job"}
	done := make(chan checkup.Report)
	go func() { done <- Run(ctx, w.options) }()
	<-w.executor.started
	cancel()
	report := <-done
	if report.OK || !w.executor.removed {
		t.Errorf("removed: %t, report %+v", w.executor.removed, report)
	}
}

func TestEngineAnswers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		brk   func(w *fixture)
		check string
		want  checkup.Status
		words []string
	}{
		{"no engine", func(w *fixture) { w.engine.err = errors.New("no Docker Engine answers at unix:///x: start it") }, "engine", checkup.StatusFail, []string{"no Docker Engine answers at unix:///x", "start it"}},
		{"an engine", func(w *fixture) {}, "engine", checkup.StatusOK, []string{"29", "1.50", "unix:///x", EscapesUntil().Format(time.DateOnly)}},
		{"an engine of May 2026", func(w *fixture) {
			w.engine.facts.Components = map[string]string{"Docker Engine": "29.5.0", "runc": "1.3.5"}
		}, "engine", checkup.StatusWarn, []string{"CVE-2026-41567", "29.5.1", "CVE-2026-41579", "1.3.6"}},
		{"Windows containers", func(w *fixture) { w.engine.facts.OS = "windows" }, "engine", checkup.StatusFail, []string{"Linux containers"}},
		{"an old runc", func(w *fixture) { w.engine.facts.Components = map[string]string{"runc": "1.1.11"} }, "engine", checkup.StatusWarn, []string{"CVE-2024-21626", "1.1.12", "1.1.11"}},
		{"an open engine", func(w *fixture) { w.engine.facts.Open = true }, "engine", checkup.StatusWarn, []string{"without TLS", "DOCKER_TLS_VERIFY"}},
		{"its disk is full", func(w *fixture) {
			w.options.Disk = func(string) (int64, int64, error) { return 100 << 30, 1, nil }
		}, "engine-disk", checkup.StatusFail, []string{"docker system prune"}},
		{"its disk is elsewhere", func(w *fixture) { w.engine.facts.SameHost = false }, "engine-disk", checkup.StatusSkip, []string{"another host"}},
		{"the usual image cannot be pulled", func(w *fixture) { w.engine.imageErr = errors.New("no way") }, "image", checkup.StatusWarn, []string{"no way", "--job-image"}},
		{"the given image cannot be pulled", func(w *fixture) {
			w.engine.imageErr, w.options.JobImage = errors.New("no way"), "a/b:1"
		}, "image", checkup.StatusFail, []string{"no way"}},
		{"the given image is not allowed", func(w *fixture) {
			w.set("allowed_images=c/*")
			w.options.JobImage = "a/b:1"
		}, "image", checkup.StatusFail, []string{"allowed_images"}},
		{"the usual image is not allowed", func(w *fixture) { w.set("allowed_images=c/*") }, "image", checkup.StatusSkip, []string{"allowed_images", "--job-image"}},
		{"an image for others", func(w *fixture) { w.engine.arch = "arm64" }, "image", checkup.StatusWarn, []string{"arm64"}},
		{"nothing is pulled", func(w *fixture) {
			w.set("pull_image=false")
			w.options.JobImage = "a/b:1"
		}, "image", checkup.StatusOK, []string{"a/b:1 exists"}},
		{"offline", func(w *fixture) { w.options.Offline = true }, "image", checkup.StatusSkip, []string{"--offline"}},
		{"no embeddable", func(w *fixture) {}, "runner", checkup.StatusFail, []string{"no runner for linux/amd64"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newFixture(t)
			w.set("deploy_target=docker")
			tt.brk(w)
			want(t, w.examine(t), tt.check, tt.want, tt.words...)
		})
	}
}
