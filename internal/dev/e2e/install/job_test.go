package install

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// logLines is the number of lines that a job writes before and after its gate.
func logLines() int {
	if harness.FullScale {
		return 50_000
	}
	return 1500
}

// gate is where jobs wait.
type gate struct {
	url    string
	starts atomic.Int64 // jobs that have arrived
	opened atomic.Bool
	// arrived is closed when the first job has arrived.
	arrived chan struct{}
}

// newGate serves a gate to pods.
func newGate(t *testing.T, s site) *gate {
	t.Helper()
	g := &gate{arrived: make(chan struct{})}
	listener := must.Get(net.Listen("tcp", net.JoinHostPort(s.Cluster.HostIP.String(), "0")))(t)
	g.url = "http://" + listener.Addr().String()
	var once sync.Once
	mux := http.NewServeMux()
	mux.HandleFunc("/start", func(http.ResponseWriter, *http.Request) {
		g.starts.Add(1)
		once.Do(func() { close(g.arrived) })
	})
	mux.HandleFunc("/opened", func(w http.ResponseWriter, _ *http.Request) {
		if !g.opened.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return g
}

// run is a deployment that the stock CLI started and follows.
type run struct {
	gate *gate
	cmd  *exec.Cmd
	out  *bytes.Buffer
	stop context.CancelFunc
}

// start starts a deployment whose job writes half of its log, waits at the gate, and writes the
// other half.
func (s site) start(t *testing.T, operation string) *run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	r := &run{gate: newGate(t, s), out: new(bytes.Buffer), stop: cancel}
	half := logLines()
	command := fmt.Sprintf("echo pod $(hostname); wget -q -O /dev/null %[1]s/start && seq 1 %[2]d | sed 's/^/line /'; "+
		"until wget -q -O /dev/null %[1]s/opened; do sleep 0.2; done; seq %[3]d %[4]d | sed 's/^/line /'", r.gate.url, half, half+1, 2*half)
	r.cmd = exec.CommandContext(ctx, filepath.Join(s.Tools.Dir, "pulumi"), "deployment", "run", operation, s.repo,
		"--stack", s.Server.Organization+"/box/dev", "--git-branch", "main", "--suppress-stream-logs=false", "--inherit-settings",
		"--pre-run-command", command)
	r.cmd.Env = s.Tools.Env(s.Home, s.Server.URL, s.Server.Token)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	must.OK(t, r.cmd.Start())
	return r
}

// wait waits until the job has arrived at the gate.
func (r *run) wait(t *testing.T) {
	t.Helper()
	select {
	case <-r.gate.arrived:
	case <-time.After(harness.Patience):
		r.stop()
		_ = r.cmd.Wait()
		t.Fatalf("the job did not start:\n%s", r.out)
	}
}

// finish opens the gate, and checks that the job ran once and succeeded, and its whole log.
func (r *run) finish(t *testing.T, result string) {
	t.Helper()
	r.gate.opened.Store(true)
	if err := r.cmd.Wait(); err != nil {
		t.Fatalf("pulumi deployment run: %v\n%s", err, r.end())
	}
	if n := r.gate.starts.Load(); n != 1 {
		t.Errorf("the job started %d times", n)
	}
	next := 1
	for line := range strings.Lines(r.out.String()) {
		if !strings.HasPrefix(line, "line ") {
			continue
		}
		if want := fmt.Sprintf("line %d\n", next); line != want {
			t.Fatalf("the log has %q, want %q", line, want)
		}
		next++
	}
	if next != 2*logLines()+1 {
		t.Errorf("the log has %d lines of the job, want %d", next-1, 2*logLines())
	}
	for _, want := range []string{"pod pulumi-workflow-runner-", result} {
		if !strings.Contains(r.out.String(), want) {
			t.Errorf("the output lacks %q; it ends with\n%s", want, r.end())
		}
	}
}

func (r *run) end() string {
	out := r.out.String()
	return out[max(0, len(out)-3000):]
}

// jobObjects lists the pods and Secrets of jobs.
func (s site) jobObjects(t *testing.T) []string {
	t.Helper()
	found := must.Get(s.Cluster.Objects(t.Context(), jobs, "pods", "secrets"))(t)
	return found
}

// cleared waits until the pods and Secrets of jobs are gone.
func (s site) cleared(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	var left []string
	err := harness.Until(ctx, func() (bool, error) {
		left = s.jobObjects(t)
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("the jobs left %v (%v)", left, err)
	}
}

// afterwards returns a context for the clean-up after a test.
func afterwards(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}
