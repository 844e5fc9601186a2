package upkeep

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kardianos "github.com/kardianos/service"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
)

// managed is a service in a simulated service manager.
type managed struct {
	service.Service
	state    service.State
	err      error
	platform string
	restarts int
}

func (m *managed) Describe(context.Context) (service.State, error) { return m.state, m.err }
func (m *managed) Platform() string                                { return m.platform }
func (m *managed) Restart() error                                  { m.restarts++; return nil }

// answering serves the report on an agent's control socket.
func answering(t *testing.T, state string, report status.Report) {
	t.Helper()
	dir := filepath.Join(state, "instances", "0")
	must(t, os.MkdirAll(dir, 0o700))
	socket, err := control.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, _ := test.NewNullLogger()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		control.Serve(ctx, socket, control.Agent{Report: func() status.Report { return report }, Drain: func() {}, Over: make(chan struct{})}, logrus.NewEntry(log))
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func TestHealthOfAnUpdatedService(t *testing.T) {
	now := time.Now()
	active := service.State{Active: "active", PID: 7}
	agent := func(pid int, polled *time.Time) *status.Report {
		return &status.Report{Agent: status.Agent{Version: "v1.1.0", PID: pid}, Server: status.Server{LastPoll: polled}}
	}
	for _, tt := range []struct {
		name     string
		service  managed
		agent    *status.Report
		config   string
		progress update.Progress
		wrong    string
	}{
		{"polls", managed{state: active}, agent(7, &now), "", update.Polled, ""},
		{"has not polled yet", managed{state: active}, agent(7, nil), "", update.Starting, ""},
		{"is another process", managed{state: active}, agent(8, &now), "", "", "does not answer"},
		{"does not answer", managed{state: active}, nil, "", "", "does not answer"},
		{"was stopped", managed{state: service.State{Active: "inactive"}}, nil, "", update.NotRunning, ""},
		{"is not installed", managed{err: kardianos.ErrNotInstalled}, nil, "", update.NotRunning, ""},
		{"has failed", managed{state: service.State{Active: "failed"}}, nil, "", "", "failed"},
		{"crashes", managed{state: service.State{Active: "activating", Detail: "auto-restart"}}, nil, "", "", "auto-restart"},
		{"waits, says systemd", managed{state: service.State{Active: "active", PID: 7, Detail: "running: waiting for a configuration: run"}}, nil, "", update.Waiting, ""},
		{"waits, without launchd's status", managed{state: active, platform: service.Launchd}, nil, "", update.Waiting, ""},
		{"has a token, without launchd's status", managed{state: active, platform: service.Launchd}, nil, "token: pul-a-token\n", "", "does not answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := t.TempDir()
			if tt.agent != nil {
				answering(t, state, *tt.agent)
			}
			path := settings(t, tt.config)
			s := &Service{
				Service: &tt.service, states: []string{t.TempDir(), state},
				load: func() (*config.Config, error) { return config.Load(config.LoadOptions{Path: path, UID: os.Geteuid()}) },
			}
			health, err := s.Health(t.Context())
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("got %+v, %v", health, err)
				}
				return
			}
			if err != nil || health.Progress != tt.progress {
				t.Errorf("got %+v, %v, want %s", health, err, tt.progress)
			}
			if tt.agent != nil && (health.Version != "v1.1.0" || health.PID != 7) {
				t.Errorf("got %+v", health)
			}
		})
	}
}

// TestVersionOfAServiceThatWaits checks that the version of a waiting agent, which responds to no
// requests, is known after a restart.
func TestVersionOfAServiceThatWaits(t *testing.T) {
	root := t.TempDir()
	must(t, os.Symlink("versions/v1.1.0", filepath.Join(root, "current")))
	m := &managed{state: service.State{Active: "active", PID: 7, Detail: service.WaitingForConfiguration}}
	s := &Service{Service: m, install: update.Installation{Root: root}}
	if health, err := s.Health(t.Context()); err != nil || health.Version != "" {
		t.Errorf("before it is %+v, %v", health, err)
	}
	if err := s.Restart(t.Context()); err != nil || m.restarts != 1 {
		t.Fatalf("%d restarts, %v", m.restarts, err)
	}
	if health, err := s.Health(t.Context()); err != nil || health.Version != "v1.1.0" || health.Progress != update.Waiting {
		t.Errorf("afterwards it is %+v, %v", health, err)
	}
}

// TestServiceThatIsBehindCatchesUp checks that the helper of an installation's second service
// restarts only that service.
func TestServiceThatIsBehindCatchesUp(t *testing.T) {
	root := t.TempDir()
	must(t, os.Symlink("versions/v1.2.0", filepath.Join(root, "current")))
	now := time.Now()
	log, _ := test.NewNullLogger()
	log.SetOutput(io.Discard)
	for _, tt := range []struct {
		name     string
		version  string
		phase    status.Phase
		restarts int
		wrong    string
	}{
		{"behind", "v1.1.0", status.Running, 1, ""},
		{"current", "v1.2.0", status.Running, 0, ""},
		{"behind and busy", "v1.1.0", status.Preparing, 0, "no job is being started"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := t.TempDir()
			answering(t, state, status.Report{
				State: status.Ready, Agent: status.Agent{Version: tt.version, PID: 7}, Engine: status.Engine{Up: true},
				Server: status.Server{LastPoll: &now, Connected: true}, Jobs: []status.Job{{Phase: tt.phase, Epoch: 1}},
			})
			m := &managed{state: service.State{Active: "active", PID: 7}}
			h := Helper{Log: logrus.NewEntry(log), service: &Service{Service: m, install: update.Installation{Root: root}, states: []string{state}}}
			err := h.catchUp(t.Context())
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) || m.restarts != tt.restarts {
				t.Errorf("%d restarts, %v", m.restarts, err)
			}
		})
	}
}

// TestHelperObeysAutoUpdate checks that an intruder in the agent's account cannot start an update
// that the administrator has disabled.
func TestHelperObeysAutoUpdate(t *testing.T) {
	root, state, outside := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(root, "versions", "v1.0.0"), filepath.Join(state, "updates")} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, path := range []string{
		filepath.Join(root, "versions", "v1.0.0", "customer-managed-workflow-agent"),
		filepath.Join(state, "updates", update.RequestFile), filepath.Join(outside, update.RequestFile),
	} {
		must(t, os.WriteFile(path, []byte("{}"), 0o755))
	}
	must(t, os.Symlink("versions/v1.0.0", filepath.Join(root, "current")))
	log, _ := test.NewNullLogger()
	path := settings(t, "auto_update: false\n")
	h := Helper{Log: logrus.NewEntry(log), Stage: filepath.Join(state, "updates"), Load: func() (*config.Config, error) {
		return config.Load(config.LoadOptions{Path: path, UID: os.Geteuid()})
	}}
	request := filepath.Join(h.Stage, update.RequestFile)
	if err := h.Run(t.Context(), update.Installation{Root: root}); err == nil || !strings.Contains(err.Error(), "auto_update is false") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(request); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the request was not removed: %v", err)
	}

	// Nothing outside the stage is removed through a link.
	must(t, os.RemoveAll(h.Stage))
	must(t, os.Symlink(outside, h.Stage))
	if err := h.Run(t.Context(), update.Installation{Root: root}); err == nil {
		t.Error("a link in the place of the stage is no error")
	}
	if _, err := os.Lstat(filepath.Join(outside, update.RequestFile)); err != nil {
		t.Errorf("the link's target was removed: %v", err)
	}
}

func TestBusyInstallationIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		wrong := errors.New("wrong")
		_, err := whileBusy(t.Context(), func() (update.Result, error) {
			if tries++; tries < 2 {
				return update.Result{}, update.ErrBusy
			}
			return update.Result{}, wrong
		})
		if tries != 2 || !errors.Is(err, wrong) {
			t.Errorf("%d tries, %v", tries, err)
		}
		begin := time.Now()
		if _, err := whileBusy(t.Context(), func() (update.Result, error) { return update.Result{}, update.ErrBusy }); !errors.Is(err, update.ErrBusy) || time.Since(begin) > busyTime+busyPause {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
	})
}

func settings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
