package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// startReplica starts another server on the database of a site's server.
func startReplica(t *testing.T, w *harness.Site, args []string) *lab.Server {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "server")
	must.OK(t, os.Mkdir(data, 0o700))
	for _, name := range []string{"admin-token", "master-key"} {
		harness.Write(t, filepath.Join(data, name), harness.Read(t, filepath.Join(w.Server.DataDir, name)), 0o600)
	}
	s := must.Get(lab.StartServer(context.WithoutCancel(t.Context()), lab.ServerOptions{
		Binary: filepath.Join(w.Bin, "workflow-server"), Dir: dir, Host: ownLoopback(), Env: os.Environ(), Args: args,
	}))(t)
	t.Cleanup(func() {
		_ = s.Process.Stop(syscall.SIGTERM, 15*time.Second)
		if t.Failed() {
			t.Logf("the replica's log:\n%s", child.Tail(s.LogFile, 40))
		}
	})
	return s
}

// TestFaultOneOfTwoServersDies kills first one and then the other of two servers while many
// deployments run.
func TestFaultOneOfTwoServersDies(t *testing.T) {
	if reason := needsPostgres(); reason != "" {
		t.Skip(reason)
	}
	jobs, lines := 10, 300
	if harness.FullScale {
		jobs, lines = 50, 1000
	}
	ctx := t.Context()
	routes := &route{retry: 10 * time.Second}
	balancer := startProxy(t, ownLoopback(), "http://servers")
	balancer.client.DialContext = routes.dial
	balancer.client.DisableKeepAlives = true // calls alternate between servers
	args := append(onPostgres(t, t.TempDir()), "--external-url", balancer.URL)
	w := harness.StartSite(t, ownLoopback(), args...)
	first := w.Server.URL
	second := startReplica(t, w, args)
	routes.set(first, second.URL)
	w.AgentURL, w.Server.URL = balancer.URL, balancer.URL
	must.Get(w.StartAgent(ctx, "process", map[string]string{"max_concurrent_jobs": fmt.Sprint(jobs)}))(t)
	repo := w.Repo(ctx, t)
	ledger, gate := filepath.Join(t.TempDir(), "ledger"), filepath.Join(t.TempDir(), "gate")

	// Each job reports that it runs, prints half of its lines, and prints the rest once both
	// servers have died. Every second job then fails.
	var stacks []*harness.Stack
	var deployments []harness.Deployment
	for n := range jobs {
		s := w.NewStack(ctx, t, "box", fmt.Sprintf("shared%d", n), "", nil)
		stacks = append(stacks, s)
		deployments = append(deployments, s.Deploy(ctx, t, "preview", repo.URL, fmt.Sprintf(
			`echo job-%[1]d >>%[2]s; for i in $(seq %[3]d); do echo "job-%[1]d says $i"; if [ $i = %[4]d ]; then for j in $(seq 2400); do [ -e %[5]s ] && break; sleep 0.1; done; fi; done; exit %[6]d`,
			n, ledger, lines, lines/2, gate, n%2*3,
		)))
	}
	running := func() (bool, error) {
		text, err := os.ReadFile(ledger)
		return err == nil && strings.Count(string(text), "\n") == jobs, nil
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := harness.Until(waiting, running); err != nil {
		t.Fatalf("the jobs do not run: %v", err)
	}
	must.OK(t, w.Server.Process.Stop(syscall.SIGKILL, patience))
	must.OK(t, w.RestartServer(ctx))
	w.Server.URL = balancer.URL
	must.OK(t, second.Process.Stop(syscall.SIGKILL, patience))
	harness.Write(t, gate, nil, 0o600)

	for n, s := range stacks {
		d := s.Finish(ctx, t, deployments[n])
		if want := []string{"succeeded", "failed"}[n%2]; d.Status != want {
			t.Errorf("job %d ended as %+v, want %s", n, d, want)
		}
		log := s.Log(ctx, t, d)
		for i := range lines {
			if got := strings.Count(log, fmt.Sprintf("\njob-%d says %d\n", n, i+1)); got != 1 {
				t.Errorf("the log of job %d has line %d %d times", n, i+1, got)
				break
			}
		}
	}
	for n := range jobs {
		if got := strings.Count("\n"+string(harness.Read(t, ledger)), fmt.Sprintf("\njob-%d\n", n)); got != 1 {
			t.Errorf("job %d ran %d times", n, got)
		}
	}
	for _, s := range stacks {
		var list struct{ Total int64 }
		err := w.Server.Call(ctx, http.MethodGet, strings.TrimSuffix(s.Path(""), "/"), nil, &list)
		if err != nil || list.Total != 1 {
			t.Errorf("stack %s has %d deployments, want 1 (%v)", s.Name, list.Total, err)
		}
	}
}
