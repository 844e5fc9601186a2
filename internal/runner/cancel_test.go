package runner_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/fakes"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// countSignals is a script that records every SIGINT, as does its child, and exits gracefully after
// the first.
const countSignals = `
trap 'echo leader >> signals; stop=1' INT
TEST_RUNNER_CHILD=witness "$TEST_BINARY" &
child=$!
while [ ! -s child.pid ]; do sleep 0.05; done
echo ready
n=0
while [ $n -lt 8 ]; do sleep 0.05; [ -n "$stop" ] && n=$((n+1)); done
kill -9 $child
echo ended gracefully
exit 3
`

func deployment(d *workflow.JobDefinition, op workflow.Operation) *workflow.JobDefinition {
	d.Deployment = &workflow.Deployment{
		ID: "dep-1", Version: 4, Organization: "acme", Project: "shop", Stack: "dev", Operation: op, BackendURL: "http://server.example",
	}
	return d
}

func (h *harness) signalsSeen() string {
	data, err := os.ReadFile(filepath.Join(h.dir, "work", "signals"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Error(err)
	}
	return string(data)
}

func (h *harness) whenReady(then func()) {
	go func() {
		h.server.WaitFor("the step's output", func() bool { return h.job.Has(1, "ready") })
		then()
	}()
}

func TestCancelSendsOneInterrupt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cancel func(h *harness)
		reason workflow.Reason
	}{
		{"by heartbeat", func(h *harness) { h.server.Update(func() { h.job.Cancel = true }) }, workflow.ReasonCancelled},
		{"by signal", func(h *harness) { h.signals <- syscall.SIGINT }, workflow.ReasonEvicted},
		{"by repeated signals and heartbeat", func(h *harness) {
			h.server.Update(func() { h.job.Cancel = true })
			h.signals <- syscall.SIGINT
			h.signals <- syscall.SIGTERM
			h.signals <- syscall.SIGINT
		}, workflow.ReasonCancelled},
		{"by end of the agent", func(h *harness) { h.signals <- syscall.SIGTERM }, workflow.ReasonAgentStopped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, shellSteps(countSignals, "echo not reached"))
			h.whenReady(func() { tt.cancel(h) })
			code, left := h.run()
			if code != 3 || left.Reason != tt.reason && tt.name != "by repeated signals and heartbeat" {
				t.Errorf("exit code %d, left %+v", code, left)
			}
			if got := h.signalsSeen(); got != "leader\n" {
				t.Errorf("the signals seen were %q, want one by the leader", got)
			}
			h.wantLog(1, "ended gracefully", "interrupting the running command", "error: ")
			if h.text(2) != "" {
				t.Error("another step was started")
			}
			if result := h.oneResult(); result.Status != workflow.StatusFailed || !left.Reported {
				t.Errorf("got %+v", result)
			}
		})
	}
}

// deaf is a script that ignores SIGINT, with a child in its own process group, like pulumi's
// plugins.
const deaf = `
trap '' INT
TEST_RUNNER_CHILD=plugin "$TEST_BINARY" &
while [ ! -s child.pid ]; do sleep 0.05; done
echo ready
while :; do sleep 0.05; done
`

func TestCancelKillsAfterPatience(t *testing.T) {
	h := newHarness(t, deployment(shellSteps(deaf), workflow.OperationPreview))
	h.timing.PatienceOther = 400 * time.Millisecond
	h.timing.PatienceChange = time.Hour
	h.whenReady(func() { h.server.Update(func() { h.job.Cancel = true }) })
	code, left := h.run()
	if code != 128+9 || left.Reason != workflow.ReasonCancelled {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	h.wantLog(1, "killing the command, which did not exit in time", "error: the deployment was cancelled while Step was running")
	h.wantDead("child.pid")
}

func TestForceKillsAtOnce(t *testing.T) {
	h := newHarness(t, deployment(shellSteps(deaf), workflow.OperationUpdate))
	h.whenReady(func() { h.server.Update(func() { h.job.Force = true }) })
	code, left := h.run()
	if code != 128+9 || left.Reason != workflow.ReasonCancelled {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	h.wantDead("child.pid")
}

// TestStopWhileTheLogIsBlocked checks that no signal waits for the log, whose lines wait for the reader of
// the runner's output.
func TestStopWhileTheLogIsBlocked(t *testing.T) {
	for _, tt := range []struct {
		name    string
		trap    string
		stop    func(j *fakes.ServerJob)
		signals string
	}{
		{"interrupt", "echo leader >> signals; exit 3", func(j *fakes.ServerJob) { j.Cancel = true }, "leader\n"},
		{"kill after patience", "", func(j *fakes.ServerJob) { j.Cancel = true }, ""},
		{"kill at once", "", func(j *fakes.ServerJob) { j.Force = true }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHarness(t, deployment(shellSteps("trap '"+tt.trap+`' INT
echo $$ > leader.pid
echo ready
while :; do sleep 0.05; done
`), workflow.OperationPreview))
			if tt.trap == "" {
				h.timing.PatienceOther = 50 * time.Millisecond
			}
			blocked, release := make(chan struct{}), make(chan struct{})
			h.launch.EchoLog = true
			block := sync.OnceFunc(func() {
				close(blocked)
				<-release
			})
			h.echo.hook = func(string) { block() }
			go func() {
				defer close(release)
				<-blocked
				h.server.Update(func() { tt.stop(h.job) })
				h.server.WaitFor("the end of the command", func() bool { return h.gone("leader.pid") })
			}()
			_, left := h.run()
			if got := h.signalsSeen(); got != tt.signals || left.Reason != workflow.ReasonCancelled {
				t.Errorf("the signals seen were %q, left %+v", got, left)
			}
			h.wantLog(1, "ready\n")
		})
	}
}

// TestCancelWhileTheLogCannotBeStored checks that a job whose output is stuck, because it has removed its
// spool, still obeys. The output exceeds the capacity of a pipe, so it is stuck when all of it is written.
func TestCancelWhileTheLogCannotBeStored(t *testing.T) {
	h := newHarness(t, shellSteps(`
trap 'echo leader >> signals; exit 3' INT
until rm -rf ../spool; do :; done
head -c 65537 /dev/zero | tr '\0' x
touch stuck
while :; do sleep 0.05; done
`))
	go func() {
		h.server.WaitFor("the output to be stuck", func() bool {
			_, err := os.Stat(filepath.Join(h.dir, "work", "stuck"))
			return err == nil
		})
		h.server.Update(func() { h.job.Cancel = true })
	}()
	_, left := h.run()
	if got := h.signalsSeen(); got != "leader\n" || left.Reason != workflow.ReasonCancelled {
		t.Errorf("the signals seen were %q, left %+v", got, left)
	}
}

// gone reports whether a process has been reaped whose number is in a file.
func (h *harness) gone(file string) bool {
	data, err := os.ReadFile(filepath.Join(h.dir, "work", file))
	if err != nil {
		h.t.Error(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		h.t.Error(err)
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func (h *harness) wantDead(file string) {
	h.t.Helper()
	pid, err := os.ReadFile(filepath.Join(h.dir, "work", file))
	if err != nil {
		h.t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		stat, err := os.ReadFile(filepath.Join("/proc", string(pid), "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("process %s is still alive", pid)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(d *workflow.JobDefinition)
	}{
		{"of the job", func(d *workflow.JobDefinition) { d.Timeout = workflow.Duration(2 * time.Second) }},
		{"of the step", func(d *workflow.JobDefinition) { d.Steps[1].Timeout = workflow.Duration(2 * time.Second) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := shellSteps(countSignals, "echo not reached")
			tt.set(d)
			h := newHarness(t, d)
			code, left := h.run()
			if code != 3 || left.Reason != workflow.ReasonTimeout {
				t.Errorf("exit code %d, left %+v", code, left)
			}
			h.wantLog(1, "the timeout expired")
			if got := h.signalsSeen(); got != "leader\n" {
				t.Errorf("the signals seen were %q", got)
			}
		})
	}
}

// TestCancelTooLate checks that a command that exits with 0 after an interrupt has succeeded.
func TestCancelTooLate(t *testing.T) {
	h := newHarness(t, shellSteps(strings.Replace(countSignals, "exit 3", "exit 0", 1)))
	h.whenReady(func() { h.signals <- syscall.SIGINT })
	code, left := h.run()
	if code != 0 || left.Status != workflow.StatusSucceeded {
		t.Errorf("exit code %d, left %+v", code, left)
	}
}

// TestStopWhileDelivering stops the container while the server is unreachable. The result and the
// spool must remain for the agent.
func TestStopWhileDelivering(t *testing.T) {
	h := newHarness(t, shellSteps("echo work"))
	h.timing.DeliveryStopped = 200 * time.Millisecond
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/heartbeat") {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	go func() {
		h.server.WaitFor("the end of the work", func() bool {
			return slices.Contains(h.job.Phases, protocol.PhaseFinishing)
		})
		h.signals <- syscall.SIGTERM
	}()
	code, left := h.run()
	if code != 0 || left.Status != workflow.StatusSucceeded || left.Reported {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	spool, err := os.ReadDir(filepath.Join(h.dir, "spool"))
	if err != nil || len(spool) == 0 {
		t.Errorf("the spool holds %v, %v", spool, err)
	}
}

func TestStrangeSignal(t *testing.T) {
	h := newHarness(t, shellSteps("kill -9 $$"))
	code, left := h.run()
	if code != 137 || left.Reason != workflow.ReasonSignal {
		t.Errorf("exit code %d, left %+v", code, left)
	}
	h.wantLog(1, "error: Step was killed by the signal SIGKILL")
	if result := h.oneResult(); result.Signal != "SIGKILL" {
		t.Errorf("got %+v", result)
	}
}
