package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/agent/status"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/host/update"
)

const (
	oldVersion     = "v100.200.301"
	newVersion     = "v100.200.302"
	crashVersion   = "v100.200.303" // exits at once when started
	deafVersion    = "v100.200.304" // starts, but the server rejects its polls
	forgedVersion  = "v100.200.305"
	killedVersion  = "v100.200.306" // installed while the helper is killed
	waitingVersion = "v100.200.307" // installed while the token is missing
	updatedProgram = installRoot + "/customer-managed-workflow-agent"
	serviceName    = "customer-managed-workflow-agent"
	helperName     = serviceName + "-update"
	stageInside    = "/var/lib/workflow-agent/updates"
)

type updatedService struct {
	*service
	*publisher
	deaf   *atomic.Value // the version whose polls are refused
	config string        // text of the configuration
	held   *atomic.Value // the version whose polls are held
}

func newUpdatedMachine(t *testing.T) *updatedService {
	t.Helper()
	if reason, ok := lab.MachineAvailable(); !ok {
		t.Skip(reason)
	}
	mirror := t.TempDir()
	w := harness.StartSite(t, "", "--releases", mirror)
	u := &updatedService{publisher: newPublisher(t, w.Bin, mirror), deaf: &atomic.Value{}, held: &atomic.Value{}}
	u.deaf.Store("none")
	u.held.Store("none")
	u.service = newServiceOf(t, w)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := u.Run(context.Background(), "journalctl --no-pager -n 60 -u "+helperName+".service -u "+helperName+".path; ls -la "+installRoot)
			t.Log(out)
		}
	})

	server := must.Get(url.Parse(w.Server.URL))(t)
	forward := httputil.NewSingleHostReverseProxy(server)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.UserAgent(), u.deaf.Load().(string)) {
			http.Error(rw, "Forbidden", http.StatusForbidden)
			return
		}
		_ = child.Poll(r.Context(), 50*time.Millisecond, func() (bool, error) {
			return !strings.Contains(r.UserAgent(), u.held.Load().(string)), nil
		}) // fails if the agent has disconnected
		forward.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		proxy.CloseClientConnections() // the held polls
		proxy.Close()
	})

	u.config = fmt.Sprintf("token: %s\nservice_url: %s\npolling_interval: 2s\nhttp_server_port: 0\ndeploy_target: process\nupdate_url: %s/releases\n",
		u.Pool.Token, proxy.URL, w.Server.URL)
	return u
}

// newUpdatedService installs oldVersion in a machine, with a service that constantly checks for
// updates and has short timeouts.
func newUpdatedService(t *testing.T) *updatedService {
	t.Helper()
	ctx := t.Context()
	u := newUpdatedMachine(t)
	u.publisher.install(ctx, t, u.service, installRoot, oldVersion)
	u.stubPulumi(t)
	harness.Write(t, filepath.Join(u.shared, "config"), []byte(u.config), 0o600)
	u.run(ctx, t, updatedProgram+" service install --process --env PATH="+sharedInside+":/usr/bin:/bin && "+
		"cat "+sharedInside+"/config >/etc/pulumi-workflow-agent.yaml && rm "+sharedInside+"/config && "+
		hurry("/etc/systemd/system")+
		"systemctl daemon-reload && "+updatedProgram+" service start")
	u.awaitOnline(ctx, t)
	return u
}

// hurry returns a script that adds flags to the units in a directory: constant update checks, and
// short timeouts of the helper.
func hurry(units string) string {
	var script strings.Builder
	for _, u := range []struct{ unit, flags, more string }{
		{serviceName, "--first-update-check 1s --update-check-interval 2s", ""},
		{helperName, "--patience 40s", "RestartSec=1s"},
	} {
		fmt.Fprintf(&script, `mkdir -p %[1]s/%[2]s.service.d && { echo '[Service]'; echo 'ExecStart='; echo '%[4]s'
sed -n 's/^ExecStart=.*/& %[3]s/p' %[1]s/%[2]s.service; } >%[1]s/%[2]s.service.d/hurry.conf && `, units, u.unit, u.flags, u.more)
	}
	return script.String()
}

func (u *updatedService) await(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	waiting, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if err := child.Poll(waiting, 300*time.Millisecond, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: %v; the installation is at %s, and the agent %+v", what, err, u.current(), u.status(ctx, t))
	}
}

func (u *updatedService) current() string { return u.link("current") }

func (u *updatedService) link(name string) string {
	target, _ := os.Readlink(filepath.Join(u.Root, installRoot, name)) // the link can be missing
	return filepath.Base(target)
}

// status returns the status report of the service's agent, or an empty report if no agent is ready.
func (u *updatedService) status(ctx context.Context, t *testing.T) status.Report {
	t.Helper()
	out, _ := u.Run(ctx, updatedProgram+" status --json --config /etc/pulumi-workflow-agent.yaml 2>/dev/null") // fails until it is ready
	var reports []status.Report
	if err := json.Unmarshal([]byte(out), &reports); err != nil || len(reports) != 1 {
		return status.Report{}
	}
	return reports[0]
}

// settled waits until no update is in progress, and version is installed, running and connected to
// the server.
func (u *updatedService) settled(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	journal := filepath.Join(u.Root, installRoot, update.JournalFile)
	u.await(ctx, t, "waiting for "+version, func() bool {
		_, err := os.Lstat(journal)
		r := u.status(ctx, t)
		return os.IsNotExist(err) && u.current() == version && r.Agent.Version == version && r.Server.Connected
	})
}

func (u *updatedService) failed(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	note := filepath.Join(u.Root, installRoot, "update-failed.json")
	u.await(ctx, t, "waiting for the end of "+version, func() bool {
		text, err := os.ReadFile(note)
		return err == nil && strings.Contains(string(text), version)
	})
}

func (u *updatedService) said(ctx context.Context, t *testing.T, unit string, words ...string) {
	t.Helper()
	for _, word := range words {
		u.await(ctx, t, fmt.Sprintf("waiting for %s to say %q", unit, word), func() bool {
			return strings.Contains(u.run(ctx, t, "journalctl --no-pager -o cat -u "+unit), word)
		})
	}
}

func TestInitUpdateOfAService(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	u := newUpdatedService(t)
	documented(t, "update", exposureOf(ctx, t, u.service, helperName+".service"))

	repo := u.Repo(ctx, t)
	st := u.NewStack(ctx, t, "box", "dev", "", nil)
	d := st.Deploy(ctx, t, "update", repo.URL, halfway(sharedInside+"/job"))
	u.awaitFile(ctx, t, "job.half", func() string { return st.Log(ctx, t, d) })
	u.publish(t, newVersion, u.program(t, newVersion))
	u.settled(ctx, t, newVersion)
	u.run(ctx, t, "touch "+sharedInside+"/job.on")
	d = st.Finish(ctx, t, d)
	log := st.Log(ctx, t, d)
	if d.Status != "succeeded" {
		t.Fatalf("it ended as %+v\n%s", d, log)
	}
	wantLines(t, log)
	u.ranTimes(t, 1)
	u.said(ctx, t, serviceName, "a newer release is available", "handed over to the service's helper", "the agent was updated")
	u.said(ctx, t, helperName, "the update is complete")
	if out := u.run(ctx, t, "find "+installRoot+" ! -user root -o -perm /022 ! -type l"); out != "" {
		t.Errorf("writable by users other than root: %s", out)
	}
	if _, err := u.Run(ctx, "runuser -u workflow-agent -- touch "+installRoot+"/x "+installRoot+"/current/x"); err == nil {
		t.Error("the service's account can write to the installation")
	}

	u.crash(ctx, t)
	u.deafness(ctx, t)
	u.forgeries(ctx, t)
	u.byHand(ctx, t)
	u.killed(ctx, t)
	u.unconfigured(ctx, t)

	u.run(ctx, t, updatedProgram+" service uninstall")
	if out := u.run(ctx, t, "systemctl list-unit-files --no-legend '"+serviceName+"*'; ls /etc/systemd/system"); strings.Contains(out, helperName+".path") || strings.Contains(out, helperName+".service\n") {
		t.Errorf("the helper was not removed:\n%s", out)
	}
}

// crash publishes a release that answers "version" but exits when started. The helper must roll it
// back and try it only once.
func (u *updatedService) crash(ctx context.Context, t *testing.T) {
	t.Helper()
	u.publish(t, crashVersion, []byte("#!/bin/sh\n[ \"$1\" != version ] || { echo "+crashVersion+"; exit 0; }\necho I crash >&2\nexit 1\n"))
	u.failed(ctx, t, crashVersion)
	u.settled(ctx, t, newVersion)
	u.await(ctx, t, "waiting for the agent to give up "+crashVersion+"", func() bool {
		r := u.status(ctx, t)
		return r.Update.Available == crashVersion && strings.Contains(r.Update.State, "rolled back")
	})
	u.said(ctx, t, serviceName, "I crash", "the update was rolled back", "is not installed")
	if asked := u.run(ctx, t, "journalctl --no-pager -o cat -u "+helperName+" | grep -c 'verifying and unpacking an update.*"+crashVersion+"'"); strings.TrimSpace(asked) != "1" {
		t.Errorf("%s was tried %s times", crashVersion, strings.TrimSpace(asked))
	}
}

// deafness publishes a version that works but does not reach the server. The helper must roll it
// back.
func (u *updatedService) deafness(ctx context.Context, t *testing.T) {
	t.Helper()
	u.deaf.Store(deafVersion)
	u.publish(t, deafVersion, u.program(t, deafVersion))
	u.failed(ctx, t, deafVersion)
	u.settled(ctx, t, newVersion)
	u.said(ctx, t, helperName, deafVersion+" is starting")
}

// byHand tests the update command. It updates to the version that failed, which now reaches the
// server.
func (u *updatedService) byHand(ctx context.Context, t *testing.T) {
	t.Helper()
	u.deaf.Store("none")
	update := func(flags string) (string, int) {
		out, err := u.Run(ctx, updatedProgram+" update "+flags)
		if failed, ok := err.(*lab.ScriptError); ok { //nolint:errorlint // it is not wrapped
			return out, failed.Code
		} else if err != nil {
			t.Fatal(err)
		}
		return out, 0
	}
	if out, code := update("--check"); code != 10 || !strings.Contains(out, deafVersion) {
		t.Errorf("--check says %q, exit code %d", out, code)
	}
	for _, flags := range []string{"", "--check "} {
		if out, code := update(flags + "--version " + forgedVersion); code != 1 || !strings.Contains(out, "no such release") {
			t.Errorf("a release that is not in the mirror: %q, exit code %d", out, code)
		}
	}
	if out, code := update("--service other"); code != 1 || !strings.Contains(out, "not installed") {
		t.Errorf("a missing service: %q, exit code %d", out, code)
	}
	if out, _ := u.Run(ctx, "runuser -u workflow-agent -- "+updatedProgram+" update"); !strings.Contains(out, "sudo") {
		t.Errorf("another user gets %q", out)
	}
	out, code := update("--version " + deafVersion)
	if code != 0 || !strings.Contains(out, deafVersion+" is installed (it was "+newVersion+")") {
		t.Fatalf("update says %q, exit code %d", out, code)
	}
	u.settled(ctx, t, deafVersion)
	if out, code := update("--check --json"); code != 0 || !strings.Contains(out, `"newer": false`) {
		t.Errorf("--check says %q, exit code %d", out, code)
	}
	if out, code := update(""); code != 0 || !strings.Contains(out, "no newer release") {
		t.Errorf("a second update says %q, exit code %d", out, code)
	}
	if out, code := update("--version " + newVersion); code != 1 || !strings.Contains(out, "never installs an older version") {
		t.Errorf("a downgrade says %q, exit code %d", out, code)
	}
}

// killed kills the helper while it waits for the new version, which reaches the server only
// afterwards.
func (u *updatedService) killed(ctx context.Context, t *testing.T) {
	t.Helper()
	u.held.Store(killedVersion)
	u.publish(t, killedVersion, u.program(t, killedVersion))
	u.await(ctx, t, "waiting for the swap", func() bool { return u.status(ctx, t).Agent.Version == killedVersion })
	u.run(ctx, t, "kill -9 $(systemctl show -p MainPID --value "+helperName+".service)")
	u.held.Store("none")
	u.settled(ctx, t, killedVersion)
	u.said(ctx, t, helperName, "an update was interrupted")
}

// unconfigured updates a service that waits for its token. The service must still wait after the
// update.
func (u *updatedService) unconfigured(ctx context.Context, t *testing.T) {
	t.Helper()
	u.run(ctx, t, "sed -i '/^token:/d' /etc/pulumi-workflow-agent.yaml && "+updatedProgram+" service restart")
	u.publish(t, waitingVersion, u.program(t, waitingVersion))
	if out := u.run(ctx, t, updatedProgram+" update"); !strings.Contains(out, waitingVersion+" is installed (it was "+killedVersion+")") {
		t.Errorf("update says %q", out)
	}
	if out := u.run(ctx, t, updatedProgram+" service status; "+updatedProgram+" version"); !strings.Contains(out, "waiting for a configuration") || !strings.Contains(out, waitingVersion) {
		t.Errorf("afterwards the service says %q", out)
	}
}
