package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/control"
	"workflowagent/internal/agent/status"
)

// fakeAgent serves an instance's control socket.
type fakeAgent struct {
	mu      sync.Mutex
	report  status.Report
	drains  int
	over    chan struct{}
	stopped func()
}

func (a *fakeAgent) set(f func(*status.Report)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.report)
}

// agents starts fake agents that share a state directory, and sets the environment variable that
// names this directory.
func agents(t *testing.T, names ...string) []*fakeAgent {
	t.Helper()
	state := t.TempDir()
	t.Setenv("PULUMI_AGENT_STATE_DIRECTORY", state)
	t.Setenv("HOME", t.TempDir())
	t.Chdir(t.TempDir())
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	var all []*fakeAgent
	for _, name := range names {
		dir := filepath.Join(state, "instances", name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		listener, err := control.Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		a := &fakeAgent{over: make(chan struct{}), report: status.Report{
			Time: now, Healthy: true, Agent: status.Agent{Instance: name, PID: 42},
			Server: status.Server{Connected: true, LastPoll: &now}, Engine: status.Engine{Target: "docker", Up: true},
		}}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			control.Serve(ctx, listener, control.Agent{
				Report: func() status.Report {
					a.mu.Lock()
					defer a.mu.Unlock()
					r := a.report
					r.Judge()
					return r
				},
				Drain: func() {
					a.mu.Lock()
					defer a.mu.Unlock()
					a.drains++
					a.report.Draining = true
				},
				Over: a.over,
			}, logrus.NewEntry(logger))
		}()
		a.stopped = func() {
			cancel()
			<-done
		}
		t.Cleanup(a.stopped)
		all = append(all, a)
	}
	return all
}

func TestStatusCommand(t *testing.T) {
	all := agents(t, "0", "3")
	out, code, err := execute(t, "status")
	if code != program.ExitOK || strings.Count(out, "READY") != 2 {
		t.Errorf("two ready agents: %d, %v\n%s", code, err, out)
	}
	out, code, _ = execute(t, "status", "--instance", "3", "--json")
	var reports []status.Report
	if json.Unmarshal([]byte(out), &reports) != nil || code != program.ExitOK || len(reports) != 1 || reports[0].Agent.Instance != "3" {
		t.Errorf("one of them: %d\n%s", code, out)
	}
	all[1].set(func(r *status.Report) { r.Draining = true })
	if _, code, err := execute(t, "status"); code != program.ExitOK {
		t.Errorf("a draining agent is no fault: %d, %v", code, err)
	}
	all[1].set(func(r *status.Report) { r.Draining, r.Engine = false, status.Engine{Error: "the engine sleeps"} })
	if out, code, err = execute(t, "status"); code != program.ExitFailed || !strings.Contains(out, "the engine sleeps") || !strings.Contains(err.Error(), "agent 3") {
		t.Errorf("an agent that cannot work: %d, %v\n%s", code, err, out)
	}
	if _, code, _ = execute(t, "status", "--instance", "1"); code != program.ExitNone {
		t.Errorf("an instance that does not run: %d", code)
	}
	for _, a := range all {
		a.stopped()
	}
	if out, code, err = execute(t, "status", "--json"); code != program.ExitNone || out != "[]\n" || !strings.Contains(err.Error(), "no agent runs") {
		t.Errorf("nothing runs: %d, %v\n%s", code, err, out)
	}
}

func TestStatusWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	looks := 0
	err := watchStatus(ctx, &out, func() error {
		looks++
		cancel()
		return nil
	})
	if err != nil || looks != 1 {
		t.Errorf("%d looks, %v", looks, err)
	}
}

func TestDrainCommand(t *testing.T) {
	all := agents(t, "0", "1")
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no choice", []string{"drain"}, program.ExitUsage, "--instance (0, 1)"},
		{"timeout without wait", []string{"drain", "--timeout", "1s"}, program.ExitUsage, "--wait"},
		{"negative timeout", []string{"drain", "--wait", "--timeout", "-1s"}, program.ExitUsage, "--timeout"},
		{"unknown instance", []string{"drain", "--instance", "9"}, program.ExitNone, `"9"`},
		{"not a duration", []string{"drain", "--timeout", "soon"}, program.ExitUsage, "soon"},
	} {
		if _, code, err := execute(t, tt.args...); code != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d, %v", tt.name, code, err)
		}
	}
	if all[0].drains+all[1].drains != 0 {
		t.Error("a refused command drained an agent")
	}
	job := status.Job{JobID: "j", Stack: "acme/web/prod", Operation: "update", Phase: status.Running}
	all[1].set(func(r *status.Report) { r.Jobs = []status.Job{job} })
	if out, code, err := execute(t, "drain", "--instance", "1"); code != program.ExitOK || !strings.Contains(out, "exits after 1 job.") || all[1].drains != 1 || all[0].drains != 0 {
		t.Errorf("drain: %d, %v, %s", code, err, out)
	}

	out, code, err := execute(t, "drain", "--instance", "1", "--wait", "--timeout", "1200ms")
	if code != exitTime || !strings.Contains(out, "waiting for 1 job: update of acme/web/prod") || !strings.Contains(err.Error(), "still draining") {
		t.Errorf("a drain that takes too long: %d, %v\n%s", code, err, out)
	}

	all[1].set(func(r *status.Report) {
		r.Jobs, r.Ended = nil, []status.Outcome{{JobID: "j", Status: "failed"}}
	})
	close(all[1].over)
	if out, code, err := execute(t, "drain", "--instance", "1", "--wait"); code != program.ExitOK || !strings.Contains(out, "has exited") {
		t.Errorf("the end: %d, %v\n%s", code, err, out)
	}
	all[1].stopped()

	// A SIGTERM during the wait detaches jobs, which is not a success.
	all[0].set(func(r *status.Report) { r.Ended = []status.Outcome{{JobID: "k", Status: status.Detached}} })
	close(all[0].over)
	if _, code, err := execute(t, "drain", "--wait"); code != program.ExitFailed || !strings.Contains(err.Error(), "1 of its jobs continue") {
		t.Errorf("an agent that was stopped while it drained: %d, %v", code, err)
	}
}
