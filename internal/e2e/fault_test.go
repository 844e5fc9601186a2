package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/lab"
)

// ledgerPulumi stands in for the CLI where a test counts executions and is not
// about pulumi: it appends one line to a ledger and succeeds. Whoever runs a job
// twice leaves two lines, whatever our own code believes.
func ledgerPulumi(t *testing.T, ledger string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\nprintf '%s\\n' \"$PULUMI_CI_BUILD_ID\" >>" + ledger + "\n"
	if err := os.WriteFile(filepath.Join(dir, "pulumi"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lossyProxy stands between agents and server and swallows the answer of every
// nth poll that hands out a job: the server has claimed, the agent never hears.
func lossyProxy(t *testing.T, server string, nth int64) (base string, dropped *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	dropped = new(atomic.Int64)
	var claims atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if strings.HasSuffix(resp.Request.URL.Path, "/deployments/poll") && resp.StatusCode == http.StatusOK {
			if claims.Add(1)%nth == 0 {
				dropped.Add(1)
				return http.ErrAbortHandler
			}
		}
		return nil
	}
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	return s.URL, dropped
}

// TestFaultEachJobRunsOnce lets two agents share a queue while claims are lost
// on the wire. 500 jobs at full scale, fewer with the short timers of CI.
func TestFaultEachJobRunsOnce(t *testing.T) {
	ctx := t.Context()
	const stacks = 25
	perStack := 4
	if os.Getenv("WORKFLOW_E2E_FULL") != "" {
		perStack = 20
	}
	w := testWorld(t, "")
	ledger := filepath.Join(w.dir, "ledger")
	stub := ledgerPulumi(t, ledger)
	proxy, dropped := lossyProxy(t, w.server.URL, 7)
	repo, _, err := w.git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": yamlProgram})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.makePool(ctx); err != nil {
		t.Fatal(err)
	}
	type queued struct {
		s *stack
		d deployment
	}
	var all []queued
	for i := range stacks {
		s := w.newStack(ctx, t, "box", "s"+strconv.Itoa(i), "", nil)
		for range perStack {
			all = append(all, queued{s, s.deploy(ctx, t, "update", repo.URL)})
		}
	}
	w.agentURL = proxy
	for range 2 {
		if _, err := w.startAgent(ctx, "process", map[string]string{"max_concurrent_jobs": "4"}, "PATH="+stub+":"+os.Getenv("PATH")); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range all {
		if d := q.s.wait(ctx, t, q.d, 10*time.Minute, "succeeded", "failed", "skipped"); d.Status != "succeeded" {
			t.Fatalf("deployment %s/%d: %+v\n%s", q.s.name, d.Version, d, q.s.log(ctx, t, q.d))
		}
	}
	if dropped.Load() == 0 {
		t.Error("the proxy dropped no claim, so this test showed nothing")
	}
	runs := map[string]int{}
	data, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for id := range strings.Lines(string(data)) {
		runs[strings.TrimSpace(id)]++
	}
	for _, q := range all {
		if n := runs[q.d.ID]; n != 1 {
			t.Errorf("deployment %d of %s ran %d times", q.d.Version, q.s.name, n)
		}
	}
	if len(runs) != len(all) {
		t.Errorf("%d deployments ran, %d were queued", len(runs), len(all))
	}
	t.Logf("%d jobs, %d claims lost on the wire", len(all), dropped.Load())
}

// numbered is a pre-run command that writes n numbered lines over about the
// given time and tells by a file that it began.
func numbered(n int, over time.Duration, began string) string {
	return fmt.Sprintf("echo began >%s; i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line-$i; [ $((i %% 50)) = 0 ] && sleep %.3f; done; true",
		began, n, over.Seconds()/float64(n)*50)
}

// wantNumbered checks that the log holds lines 1 to n once each and in order.
func wantNumbered(t *testing.T, log string, n int) {
	t.Helper()
	next := 1
	for line := range strings.Lines(log) {
		number, ok := strings.CutPrefix(strings.TrimSpace(line), "line-")
		if !ok {
			continue
		}
		if number != strconv.Itoa(next) {
			t.Fatalf("after line %d the log has line %s", next-1, number)
		}
		next++
	}
	if next != n+1 {
		t.Fatalf("the log has %d of %d lines", next-1, n)
	}
}

// running starts a world with an agent and a deployment whose pre-run command
// writes numbered lines for a few seconds, and returns once that has begun.
func running(t *testing.T, lines int, over time.Duration) (*world, *lab.Agent, *stack, deployment, string) {
	t.Helper()
	ctx := t.Context()
	w := testWorld(t, "")
	ledger := filepath.Join(w.dir, "ledger")
	stub := ledgerPulumi(t, ledger)
	agent, err := w.startAgent(ctx, "process", nil, "PATH="+stub+":"+os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	repo, _, err := w.git.NewRepo(ctx, "box", map[string]string{"Pulumi.yaml": yamlProgram})
	if err != nil {
		t.Fatal(err)
	}
	s := w.newStack(ctx, t, "box", "dev", "", nil)
	began := filepath.Join(w.dir, "began")
	d := s.deploy(ctx, t, "update", repo.URL, numbered(lines, over, began))
	s.wait(ctx, t, d, time.Minute, "running", "failed")
	waiting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = until(waiting, func() (bool, error) {
		_, err := os.Stat(began)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the job did not begin: %v\n%s", err, s.log(ctx, t, d))
	}
	return w, agent, s, d, ledger
}

// ranOnce checks the ledger.
func ranOnce(t *testing.T, ledger string) {
	t.Helper()
	data, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "\n"); n != 1 {
		t.Errorf("pulumi ran %d times", n)
	}
}

// TestFaultJobGoesOn does things to the processes around a running job that
// must not disturb it.
func TestFaultJobGoesOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context, w *world, agent *lab.Agent) error
	}{
		{"the agent is killed and starts again", func(ctx context.Context, w *world, agent *lab.Agent) error {
			return errors.Join(agent.Process.Stop(syscall.SIGKILL, 10*time.Second), w.restartAgent(ctx))
		}},
		{"the agent is stopped", func(_ context.Context, _ *world, agent *lab.Agent) error {
			return agent.Process.Stop(syscall.SIGTERM, 12*time.Second)
		}},
		{"the server is killed and starts again", func(ctx context.Context, w *world, _ *lab.Agent) error {
			return errors.Join(w.server.Process.Stop(syscall.SIGKILL, 10*time.Second), w.restartServer(ctx))
		}},
		{"server and agent are killed and start again", func(ctx context.Context, w *world, agent *lab.Agent) error {
			return errors.Join(
				w.server.Process.Stop(syscall.SIGKILL, 10*time.Second), agent.Process.Stop(syscall.SIGKILL, 10*time.Second),
				w.restartServer(ctx), w.restartAgent(ctx),
			)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := t.Context()
			w, agent, s, d, ledger := running(t, 2000, 4*time.Second)
			if err := tc.do(ctx, w, agent); err != nil {
				t.Fatal(err)
			}
			if d := s.finish(ctx, t, d); d.Status != "succeeded" {
				t.Fatalf("it ended as %+v\n%s", d, s.log(ctx, t, d))
			}
			wantNumbered(t, s.log(ctx, t, d), 2000)
			ranOnce(t, ledger)
		})
	}
}

func TestFaultRunnerKilled(t *testing.T) {
	ctx := t.Context()
	_, agent, s, d, _ := running(t, 2000, 20*time.Second)
	for _, pid := range children(t, agent.Process.Pid()) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	d = s.finish(ctx, t, d)
	log := s.log(ctx, t, d)
	if d.Status != "failed" || d.Reason != "signal" {
		t.Errorf("it ended as %+v, want it failed by a signal\n%s", d, log)
	}
	if !strings.Contains(log, "line-1\n") || !strings.Contains(log, "killed") {
		t.Errorf("the log keeps neither what the job wrote nor how it ended:\n%s", log)
	}
}

// children returns the direct children of a process.
func children(t *testing.T, pid int) []int {
	t.Helper()
	var pids []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Skip("this system does not tell the children of a process")
	}
	for _, task := range tasks {
		data, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		for field := range strings.FieldsSeq(string(data)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	if len(pids) == 0 {
		t.Fatal("the agent has no runner")
	}
	return pids
}
