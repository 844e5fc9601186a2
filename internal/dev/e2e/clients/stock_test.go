package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// stockWorld is an agent with a server that has only the stock calls.
type stockWorld struct {
	t       *testing.T
	server  *stockServer
	options lab.AgentOptions
	agent   *lab.Agent
	image   string
}

func newStockWorld(t *testing.T, target, image string, env ...string) *stockWorld {
	t.Helper()
	bin, _ := harness.Programs(t)
	w := &stockWorld{t: t, server: newStockServer(t), image: image}
	dir := t.TempDir()
	w.options = lab.AgentOptions{
		Binary: filepath.Join(bin, "customer-managed-workflow-agent"), Dir: dir,
		ServiceURL: w.server.http.URL, Token: stockToken, Target: target,
		Settings: map[string]string{"polling_interval": "200ms", "job_status_loop_interval": "200ms", "pull_image": "false"},
		Env:      append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...),
	}
	w.startAgent()
	t.Cleanup(func() {
		_ = w.agent.Process.Stop(syscall.SIGTERM, 15*time.Second)
		if t.Failed() {
			t.Logf("the agent's log:\n%s", child.Tail(w.agent.LogFile, 60))
		}
	})
	return w
}

func (w *stockWorld) startAgent() {
	w.t.Helper()
	a := must.Get(lab.StartAgent(context.WithoutCancel(w.t.Context()), w.options))(w.t)
	w.agent = a
}

// waitFor waits until ok, called under the server's lock, returns true.
func (w *stockWorld) waitFor(what string, j *stockJob, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), harness.Patience)
	defer cancel()
	err := harness.Until(ctx, func() (done bool, err error) {
		w.server.look(func() { done = ok() })
		return done, nil
	})
	if err != nil {
		w.t.Fatalf("waiting for %s: %v; the job is %s, %q, with\n%v", what, err, j.status, j.states, j.lines)
	}
}

// finish waits until the job has finished, and checks its status. It first runs another job, so
// that the agent has sent everything.
func (w *stockWorld) finish(j *stockJob, status string) {
	w.t.Helper()
	w.waitFor("the end of "+j.ID, j, func() bool { return j.status == "succeeded" || j.status == "failed" })
	next := w.server.add(w.image, step("Say", "echo next"))
	w.waitFor("the job after "+j.ID, next, func() bool { return next.status == "succeeded" })
	w.server.look(func() {
		if j.status != status || j.claims != 1 {
			w.t.Errorf("%s is %s after %d claims, want %s: %q\n%v", j.ID, j.status, j.claims, status, j.states, j.lines)
		}
	})
}

func step(name, run string, more ...any) map[string]any {
	s := map[string]any{"name": name, "run": run}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i].(string)] = more[i+1]
	}
	return s
}

func theSame(t *testing.T, j *stockJob, step int, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, j.lines[step]); diff != "" {
		t.Errorf("log of step %d (-want +got):\n%s", step, diff)
	}
}

func TestClientsStockServer(t *testing.T) {
	stockServerRuns(t, newStockWorld(t, "process", "not/used:here"))
}

func TestEngineStockServer(t *testing.T) {
	if reason, ok := lab.EngineAvailable(); !ok {
		t.Skip(reason)
	}
	dir := must.Get(os.MkdirTemp("", "e2e-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	engine := must.Get(lab.NeedEngine(t.Context(), dir))(t)
	t.Cleanup(func() {
		if err := engine.Stop(); err != nil {
			t.Error(err)
		}
	})
	_, tools := harness.Programs(t)
	image := must.Get(lab.ExecutorImage(t.Context(), engine.Host, tools))(t)
	stockServerRuns(t, newStockWorld(t, "docker", image, "DOCKER_HOST="+engine.Host))
	harness.Leftovers(t.Context(), t, engine)
}

func stockServerRuns(t *testing.T, w *stockWorld) {
	dir := t.TempDir() // for jobs that share the host's files
	onHost := w.options.Target == "process"

	t.Run("succeeds", func(t *testing.T) {
		j := w.server.add(w.image,
			step("Write", `echo "$GREETING"; printf 'no newline'; echo kept >file; x=$(echo substituted); echo "$x and $((6*7))"`),
			step("Read", "cat file; for i in a b 'c d'; do echo \"$i\"; done\necho 'the token is '$PULUMI_ACCESS_TOKEN >&2"),
			step("Elsewhere", "pwd", "workingDir", "/tmp"),
		)
		w.finish(j, "succeeded")
		want := []string{
			"0 running", "0 succeeded", "1 running", "1 succeeded", "2 running", "2 succeeded", "3 running", "3 succeeded",
		}
		// The agent reports the set-up step, and the runner reports the others. Only the order
		// within each sender's reports is fixed.
		if diff := cmp.Diff(bySender(want), bySender(j.states)); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		theSame(t, j, 1, "hello from the definition", "no newlinesubstituted and 42")
		theSame(t, j, 2, "kept", "a", "b", "c d", "the token is [secret]")
		theSame(t, j, 3, "/tmp")
		if n := len(j.lines[0]); n == 0 || !strings.Contains(j.lines[0][0], "runs this job") || j.heartbeats == 0 {
			t.Errorf("set-up log %q, %d heartbeats", j.lines[0], j.heartbeats)
		}
	})
	t.Run("fails", func(t *testing.T) {
		j := w.server.add(w.image, step("Break", "echo before; exit 3"), step("Never", "echo never"))
		w.finish(j, "failed")
		if !slices.Contains(j.states, "1 failed") || len(j.lines[2]) > 0 || slices.Contains(j.states, "2 running") {
			t.Errorf("%q with %v", j.states, j.lines)
		}
		theSame(t, j, 1, "before", "error: Break exited with code 3")
	})
	t.Run("times out", func(t *testing.T) {
		j := w.server.add(w.image, step("Slow", "echo begun; sleep 300", "timeout", "8s"))
		w.finish(j, "failed")
		if log := strings.Join(j.lines[1], "\n"); !strings.Contains(log, "begun") || !strings.Contains(log, "timeout") {
			t.Errorf("log: %s", log)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		j := w.server.add(w.image, step("Long", `mkfifo never; trap 'echo interrupted; exit 130' INT; echo begun; read -r _ <>never`))
		w.waitFor("the job to begin", j, func() bool { return len(j.lines[1]) > 0 })
		w.server.look(func() { j.status = "failed" })
		w.waitFor("the interrupt", j, func() bool { return slices.Contains(j.lines[1], "interrupted") })
		w.finish(j, "failed")
		if n := strings.Count(strings.Join(j.lines[1], "\n"), "interrupted"); n != 1 {
			t.Errorf("interrupted %d times: %q", n, j.lines[1])
		}
	})
	t.Run("agent restarts", func(t *testing.T) {
		const lines = 3000
		j := w.server.add(w.image, counting(lines))
		w.waitFor("the first lines", j, func() bool { return len(j.lines[1]) > 100 })
		w.kill()
		w.startAgent()
		w.finish(j, "succeeded")
		theSame(t, j, 1, counted(lines)...)
	})
	t.Run("server away and responses lost", func(t *testing.T) {
		const lines = 2000
		w.server.lose.Store(true)
		defer w.server.lose.Store(false)
		j := w.server.add(w.image, counting(lines))
		w.waitFor("the first lines", j, func() bool { return len(j.lines[1]) > 100 })
		w.server.away.Store(true)
		had := 0
		w.server.look(func() { had = len(j.lines[1]) })
		w.waitFor("calls that are refused", j, func() bool { return w.server.refused["logs"] >= 3 && w.server.refused["status"] >= 2 })
		w.server.away.Store(false)
		w.finish(j, "succeeded")
		theSame(t, j, 1, counted(lines)...)
		if had == lines {
			t.Error("the job had ended before the server went away, so this test showed nothing")
		}
	})
	t.Run("is not started", func(t *testing.T) {
		var j *stockJob
		want := `requires operating system "windows"`
		if onHost {
			j = w.server.addFor("windows", w.image, step("Never", "echo never"))
		} else {
			want = "nobody/has-this:ever"
			j = w.server.add(want, step("Never", "echo never"))
		}
		w.finish(j, "failed")
		if diff := cmp.Diff([]string{"0 running", "0 failed"}, j.states); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		if log := strings.Join(j.lines[0], "\n"); !strings.Contains(log, want) {
			t.Errorf("the set-up log lacks %q:\n%s", want, log)
		}
	})
	if !onHost {
		return
	}
	t.Run("agent and runner die", func(t *testing.T) {
		pids := filepath.Join(dir, "pid")
		j := w.server.add(w.image, step("Count", "echo $PPID >"+pids+"; i=0; while :; do i=$((i+1)); echo line-$i; sleep 0.01; done"))
		w.waitFor("the first lines", j, func() bool { return len(j.lines[1]) > 50 })
		w.kill()
		data := harness.Read(t, pids)
		pid := must.Get(strconv.Atoi(strings.TrimSpace(string(data))))(t)
		must.OK(t, syscall.Kill(pid, syscall.SIGKILL))
		w.startAgent()
		w.finish(j, "failed")
		log := j.lines[1]
		for i, line := range log[:len(log)-1] {
			if line != "line-"+strconv.Itoa(i+1) {
				t.Fatalf("line %d is %q", i, line)
			}
		}
		if last := log[len(log)-1]; !strings.Contains(last, "killed by SIGKILL") && !strings.Contains(last, "its result is unknown") {
			t.Errorf("the last line is %q", last)
		}
	})
	w.server.look(func() {
		if len(w.server.unknown) > 0 {
			t.Errorf("calls that a stock server does not have: %v", w.server.unknown)
		}
	})
}

// counting returns a step that writes n numbered lines, 500 per second. counted returns the step's
// log.
func counting(n int) map[string]any {
	return step("Count", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo line-$i; [ $((i %% 50)) = 0 ] && sleep 0.1; done; true", n))
}

func counted(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, "line-"+strconv.Itoa(i+1))
	}
	return lines
}

func (w *stockWorld) kill() {
	w.t.Helper()
	if err := w.agent.Process.Stop(syscall.SIGKILL, harness.Patience); err != nil {
		w.t.Logf("killing the agent: %v", err)
	}
}

func bySender(states []string) [2][]string {
	var out [2][]string
	for _, state := range states {
		sender := 1
		if strings.HasPrefix(state, "0 ") {
			sender = 0
		}
		out[sender] = append(out[sender], state)
	}
	return out
}
