package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
)

const (
	binInside    = "/opt/workflow-agent"
	sharedInside = "/var/tmp/shared" // jobs in the sandbox may write there
	agentInside  = binInside + "/customer-managed-workflow-agent"
)

// service is an agent run by a booted systemd.
type service struct {
	*harness.Site
	*lab.Machine
	shared string // directory visible to the host and the machine
}

func newService(t *testing.T, binds ...lab.Bind) *service {
	t.Helper()
	if reason, ok := lab.MachineAvailable(); !ok {
		t.Skip(reason)
	}
	return newServiceOf(t, harness.StartSite(t, ""), binds...)
}

func newServiceOf(t *testing.T, w *harness.Site, binds ...lab.Bind) *service {
	t.Helper()
	must.OK(t, w.MakePool(t.Context()))
	// The service's account can enter this directory, unlike the test's own one.
	shared := must.Get(os.MkdirTemp("", "e2e-shared-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(shared) })
	must.OK(t, os.Chmod(shared, 0o777))
	dir := must.Get(os.MkdirTemp("", "e2e-machine-"))(t)
	m, err := lab.BootMachine(t.Context(), dir, os.Stderr, append([]lab.Bind{
		{Host: shared, Inside: sharedInside},
	}, binds...)...)
	must.OK(t, err)
	must.OK(t, os.CopyFS(filepath.Join(m.Root, binInside), os.DirFS(w.Bin)))
	s := &service{w, m, shared}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := m.Run(context.Background(), "journalctl --no-pager -n 30 -u customer-managed-workflow-agent")
			t.Log(out)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *service) run(ctx context.Context, t *testing.T, script string) string {
	t.Helper()
	out := must.Get(s.Run(ctx, script))(t)
	return out
}

// configure writes the configuration without changing the file's mode.
func (s *service) configure(ctx context.Context, t *testing.T, lines ...string) {
	t.Helper()
	text := fmt.Sprintf("token: %s\nservice_url: %s\npolling_interval: 2s\nhttp_server_port: 0\n%s\n",
		s.Pool.Token, s.Server.URL, strings.Join(lines, "\n"))
	harness.Write(t, filepath.Join(s.shared, "config"), []byte(text), 0o600)
	s.run(ctx, t, "cat "+sharedInside+"/config >/etc/pulumi-workflow-agent.yaml && rm "+sharedInside+"/config")
}

func (s *service) awaitOnline(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := harness.Until(ctx, func() (bool, error) {
		n, err := s.Online(ctx)
		return n > 0, err
	})
	if err != nil {
		t.Fatalf("the agent does not come online: %v", err)
	}
}

// exposure returns systemd's exposure score for the service's sandbox, from 0 (closed) to 10
// (open).
func (s *service) exposure(ctx context.Context, t *testing.T) float64 {
	t.Helper()
	return exposureOf(ctx, t, s, "customer-managed-workflow-agent.service")
}

func exposureOf(ctx context.Context, t *testing.T, s *service, unit string) float64 {
	t.Helper()
	out := s.run(ctx, t, "systemd-analyze security --no-pager "+unit+" | tail -n 1")
	match := regexp.MustCompile(`: (\d+\.\d)`).FindStringSubmatch(out)
	if match == nil {
		t.Fatalf("systemd-analyze says %q", out)
	}
	score := must.Get(strconv.ParseFloat(match[1], 64))(t)
	return score
}

func documented(t *testing.T, profile string, score float64) {
	t.Helper()
	root := must.Get(lab.Root())(t)
	page := harness.Read(t, filepath.Join(root, "docs", "operations.md"))
	if row := fmt.Sprintf("| `%s` | %.1f |", profile, score); !strings.Contains(string(page), row) {
		t.Errorf("docs/operations.md lacks the row %q", row)
	}
}

// stubPulumi creates a pulumi program that only records its runs.
func (s *service) stubPulumi(t *testing.T) {
	t.Helper()
	stub := harness.StubVersion + "printf '%s\\n' \"$PULUMI_CI_BUILD_ID\" >>" + sharedInside + "/ledger\n"
	harness.Write(t, filepath.Join(s.shared, "pulumi"), []byte(stub), 0o755)
}

func (s *service) ranTimes(t *testing.T, want int) {
	t.Helper()
	if got := strings.Count(string(harness.Read(t, filepath.Join(s.shared, "ledger"))), "\n"); got != want {
		t.Fatalf("pulumi ran %d times, want %d", got, want)
	}
}

func TestInitProcessService(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newService(t)
	s.stubPulumi(t)
	s.run(ctx, t, agentInside+" service install --process --start --env PATH="+sharedInside+":/usr/bin:/bin")
	if out := s.run(ctx, t, agentInside+" service status"); !strings.Contains(out, "waiting for a configuration") || !strings.Contains(out, "enabled") {
		t.Errorf("an unconfigured service says:\n%s", out)
	}
	s.configure(ctx, t, "deploy_target: process")
	s.awaitOnline(ctx, t)
	if mode := s.run(ctx, t, "stat -c '%U:%G %a' /etc/pulumi-workflow-agent.yaml"); mode != "root:workflow-agent 640\n" {
		t.Errorf("the configuration file is %s", mode)
	}
	if out := s.run(ctx, t, agentInside+" service logs"); strings.Contains(out, "chmod") {
		t.Errorf("the agent complains about the configuration file of its service:\n%s", out)
	}
	documented(t, "process", s.exposure(ctx, t))

	repo := s.Repo(ctx, t)
	st := s.NewStack(ctx, t, "box", "dev", "", nil)
	const pid = "$(systemctl show -p MainPID --value customer-managed-workflow-agent)"
	for i, disturb := range []string{
		agentInside + " service restart",
		"kill -9 " + pid,
		"kill -ABRT " + pid, // a crash, and the first signal of the watchdog
		"kill -HUP " + pid,
		// A suspended process, with a short watchdog timeout.
		`mkdir /run/systemd/system/customer-managed-workflow-agent.service.d
printf '[Service]\nWatchdogSec=3s\n' >/run/systemd/system/customer-managed-workflow-agent.service.d/test.conf
systemctl daemon-reload && systemctl restart customer-managed-workflow-agent && kill -STOP ` + pid + `
while [ "$(systemctl show -p NRestarts --value customer-managed-workflow-agent)" = 0 ]; do sleep 0.1; done
rm -r /run/systemd/system/customer-managed-workflow-agent.service.d && systemctl daemon-reload`,
		"systemctl kill -s KILL systemd-journald; systemctl daemon-reexec",
		agentInside + " service uninstall && " + agentInside + " service install --process --start",
		agentInside + " service install --process --env NEW=1 --start", // as an upgrade does
	} {
		name := "job" + strconv.Itoa(i)
		d := st.Deploy(ctx, t, "update", repo.URL, halfway(sharedInside+"/"+name))
		s.awaitFile(ctx, t, name+".half", func() string { return st.Log(ctx, t, d) })
		s.run(ctx, t, disturb)
		s.run(ctx, t, "touch "+sharedInside+"/"+name+".on")
		d = st.Finish(ctx, t, d)
		log := st.Log(ctx, t, d)
		if d.Status != "succeeded" {
			t.Fatalf("after %s: %+v\n%s", disturb, d, log)
		}
		wantLines(t, log)
		s.ranTimes(t, i+1)
		waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
		err := harness.Until(waiting, func() (bool, error) {
			_, err := s.Run(ctx, agentInside+" service status")
			return err == nil, nil
		})
		cancel()
		if err != nil {
			t.Fatalf("after %s the service does not run again", disturb)
		}
	}

	// A mistake in the configuration is not retried forever.
	s.configure(ctx, t, "deploy_target: nowhere")
	s.Run(ctx, agentInside+" service restart") // fails sooner or later
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := harness.Until(waiting, func() (bool, error) {
		out, _ := s.Run(ctx, agentInside+" service status") // fails, as it must
		return strings.Contains(out, "failed") && strings.Contains(out, "exit code 2"), nil
	})
	if err != nil {
		t.Errorf("the service does not fail permanently: %v", err)
	}
	if out := s.run(ctx, t, agentInside+" service logs"); !strings.Contains(out, "deploy_target") || strings.Contains(out, s.Pool.Token) {
		t.Errorf("the service's log lacks the reason, or shows the token:\n%s", out)
	}

	s.run(ctx, t, agentInside+" service uninstall")
	if _, err := s.Run(ctx, "systemctl cat customer-managed-workflow-agent"); err == nil {
		t.Error("the unit was not removed")
	}
	s.run(ctx, t, "test -f /etc/pulumi-workflow-agent.yaml && test -d /var/lib/workflow-agent/instances")
	_, err = s.Run(ctx, agentInside+" service status")
	if failed, ok := err.(*lab.ScriptError); !ok || failed.Code != 4 || !strings.Contains(failed.Output, "not installed") { //nolint:errorlint // it is not wrapped
		t.Errorf("got %v", err)
	}
}

const serviceLines = 2000

// halfway returns a pre-run command that writes numbered lines. Half-way, the command creates the
// file NAME.half and waits for the file NAME.on, so the job must see these files.
func halfway(name string) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line-$i
if [ $i = %d ]; then echo >%s.half; while [ ! -e %s.on ]; do sleep 0.05; done; fi; done`,
		serviceLines, serviceLines/2, name, name)
}

func wantLines(t *testing.T, log string) {
	t.Helper()
	next := 1
	for line := range strings.Lines(log) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), "line-"); ok {
			if number != strconv.Itoa(next) {
				t.Fatalf("after line %d the log has line %s", next-1, number)
			}
			next++
		}
	}
	if next != serviceLines+1 {
		t.Fatalf("the log has %d of %d lines", next-1, serviceLines)
	}
}

func (s *service) awaitFile(ctx context.Context, t *testing.T, name string, log func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := harness.Until(ctx, func() (bool, error) {
		_, err := os.Stat(filepath.Join(s.shared, name))
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the job did not begin: %v\n%s", err, log())
	}
}

const dockerGroup = 990

// serviceEngine starts an engine whose socket the group docker of a booted machine may use, as on
// any host. It returns the engine, the socket's bind and the name of an executor image.
func serviceEngine(ctx context.Context, t *testing.T) (*lab.Engine, lab.Bind, string) {
	t.Helper()
	if reason, ok := lab.PrivateEngineAvailable(); !ok {
		t.Skip(reason)
	}
	dir := must.Get(os.MkdirTemp("", "e2e-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := must.Get(lab.StartEngine(ctx, dir))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, tools := harness.Programs(t)
	image := must.Get(lab.ExecutorImage(ctx, engine.Host, tools))(t)
	socket := strings.TrimPrefix(engine.Host, "unix://")
	must.OK(t, os.Chown(socket, 0, dockerGroup))
	return engine, lab.Bind{Host: socket, Inside: "/srv/docker.sock"}, image
}

func TestInitDockerService(t *testing.T) {
	ctx := t.Context()
	engine, socket, image := serviceEngine(ctx, t)
	s := newService(t, socket)
	if out, err := s.Run(ctx, agentInside+" service install --docker"); err == nil || !strings.Contains(out, "the group docker does not exist") {
		t.Errorf("without a group docker the installation says %q, %v", out, err)
	}
	s.run(ctx, t, "groupadd --gid "+strconv.Itoa(dockerGroup)+" docker && "+
		agentInside+" service install --docker --start --env DOCKER_HOST=unix:///srv/docker.sock")
	s.configure(ctx, t, "pull_image: false")
	s.awaitOnline(ctx, t)
	documented(t, "docker", s.exposure(ctx, t))
	// Root's doctor examines what the service can do, and the service's user finds its agent.
	out, _ := s.Run(ctx, "DOCKER_HOST=unix:///srv/docker.sock "+agentInside+" doctor --offline") // the trial job needs an image
	for _, words := range []string{"ok .*/var/lib/workflow-agent is writable", "(ok|warn) +Docker Engine"} {
		if !regexp.MustCompile("(?m)^" + words).MatchString(out) {
			t.Errorf("root's doctor does not say %q\n%s", words, out)
		}
	}
	if out, _ := s.Run(ctx, "cd / && runuser -u workflow-agent -- "+agentInside+" status"); !strings.Contains(out, "instance 0 on") { // it may be starting
		t.Errorf("as the service's user the status is\n%s", out)
	}
	repo := s.Repo(ctx, t)
	st := s.NewStack(ctx, t, "box", "dev", image, nil)
	d := st.Deploy(ctx, t, "update", repo.URL, "{ sleep 6; touch /tmp/job.on; } & "+halfway("/tmp/job"))
	st.Wait(ctx, t, d, 3*time.Minute, "running", "failed")
	s.run(ctx, t, agentInside+" service restart")
	if d = st.Finish(ctx, t, d); d.Status != "succeeded" {
		t.Fatalf("it ended as %+v\n%s", d, st.Log(ctx, t, d))
	}
	wantLines(t, st.Log(ctx, t, d))
	harness.Leftovers(ctx, t, engine)
}
