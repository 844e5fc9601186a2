package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// pulumiStep is the index of the step that runs pulumi in a row's job, after set-up, source,
// dependencies and the pre-run command.
const pulumiStep = 4

const patience = harness.Patience

// arena is the set-up of a row: one server, one agent that reaches it through a proxy, and one
// deployment that writes numbered lines and pauses half-way until it is resumed.
type arena struct {
	*harness.Site
	t     *testing.T
	row   faultRow
	place place
	proxy *faultProxy
	agent *lab.Agent
	stack *harness.Stack
	job   harness.Deployment

	repo    string
	on      string // file that resumes a paused job
	written int    // lines that the log of a killed job must have
}

var processes = place{
	name: "process",
	mark: func(a *arena, word string) string {
		return fmt.Sprintf("echo %s >>%s", word, filepath.Join(a.Dir, "ledger"))
	},
	marks: func(a *arena) map[string]int { return countLines(a.t, filepath.Join(a.Dir, "ledger")) },
	gate: func(a *arena) string {
		return fmt.Sprintf("while [ ! -e %s ]; do sleep 0.05; done", a.on)
	},
	open: func(a *arena) error { return os.WriteFile(a.on, nil, 0o600) },
	runner: func(a *arena) []int {
		return children(a.t, a.agent.Process.Pid())
	},
	left: func(*arena) ([]string, error) { return nil, nil },
	start: func(t *testing.T, serverArgs ...string) *harness.Site {
		return harness.StartSite(t, ownLoopback(), serverArgs...)
	},
}

var loopbacks atomic.Int64

// ownLoopback returns a loopback address that no other row uses, so that a restarted server finds
// its port free; "" where only one exists.
func ownLoopback() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	return fmt.Sprintf("127.9.%d.1", loopbacks.Add(1))
}

func newArena(t *testing.T, row faultRow, at place) *arena {
	t.Helper()
	ctx := t.Context()
	if row.job.lines == 0 {
		row.job.lines = 2000
	}
	if at.own != nil {
		at = at.own(t, row)
	}
	w := at.start(t, row.server...)
	a := &arena{Site: w, t: t, row: row, place: at, on: filepath.Join(w.Dir, "on")}
	a.proxy = startProxy(t, w.Host(), w.Server.URL)
	w.AgentURL = a.proxy.URL
	repo := w.Repo(ctx, t)
	a.repo = repo.URL
	must.OK(t, w.MakePool(ctx))
	a.stack = w.NewStack(ctx, t, "box", "dev", at.image, at.variables)
	if row.ready != nil {
		a.row.agent = append(slices.Clone(row.agent), row.ready(a)...)
	}
	a.startAgent()
	return a
}

func (p place) target() string {
	switch {
	case p.pods != nil:
		return "kubernetes"
	case p.image != "":
		return "docker"
	}
	return "process"
}

func (a *arena) startAgent() {
	a.t.Helper()
	settings := map[string]string{}
	maps.Copy(settings, a.place.settings)
	for _, setting := range a.row.agent {
		key, value, _ := strings.Cut(setting, "=")
		settings[key] = value
	}
	env := a.place.env
	if a.place.image == "" {
		stub := stubPulumi(a.t, a.place.mark(a, "pulumi")+"\nwhile [ -e "+a.busy()+" ]; do sleep 0.05; done")
		env = append([]string{"PATH=" + stub + string(os.PathListSeparator) + os.Getenv("PATH")}, env...)
	}
	agent := must.Get(a.Site.StartAgent(a.t.Context(), a.place.target(), settings, env...))(a.t)
	a.agent = agent
}

// busy is a file; pulumi runs until it is removed.
func (a *arena) busy() string { return filepath.Join(a.Dir, "busy") }

// stubPulumi replaces the CLI where a test counts executions: it leaves a mark and succeeds. A job
// that runs twice leaves two marks, whatever the product reports.
func stubPulumi(t *testing.T, mark string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	harness.Write(t, filepath.Join(dir, "pulumi"), []byte(harness.StubVersion+mark+"\n"), 0o755)
	return dir
}

// enqueue queues the deployment. It pauses half-way until [arena.resume].
func (a *arena) enqueue() {
	a.t.Helper()
	const batch = 50
	pause := ":"
	if over := a.row.job.over; over > 0 {
		pause = fmt.Sprintf("[ $((i %% %d)) = 0 ] && sleep %.3f", batch, over.Seconds()/float64(a.row.job.lines)*batch)
	}
	script := a.place.mark(a, "job") + fmt.Sprintf(`
i=0
while [ $i -lt %d ]; do
  i=$((i+1))
  echo line-$i
  %s
  if [ $i = %d ]; then %s; %s; %s; fi
  if [ $i = %d ]; then %s; fi
done`, a.row.job.lines, pause, a.row.job.lines/2, a.place.mark(a, "half"), a.place.gate(a), cmp.Or(a.row.job.then, ":"), a.row.job.lines/4*3, a.place.mark(a, "late"))
	a.job = a.stack.Deploy(a.t.Context(), a.t, "update", a.repo, script)
}

// enqueueFree queues the deployment without the pause.
func (a *arena) enqueueFree() {
	a.t.Helper()
	a.resume()
	a.enqueue()
}

func (a *arena) resume() {
	a.t.Helper()
	must.OK(a.t, a.place.open(a))
}

// running queues the deployment and waits until it pauses.
func (a *arena) running() {
	a.t.Helper()
	a.enqueue()
	a.marked(patience+a.row.job.over, "half")
}

func (a *arena) marked(limit time.Duration, word string) {
	a.t.Helper()
	a.eventually(limit, "the job is at the mark "+word, func() (bool, error) {
		return a.place.marks(a)[word] > 0, nil
	})
}

// shown waits until the deployment's log has the job's first n lines.
func (a *arena) shown(n int) {
	a.t.Helper()
	a.written = n
	line := fmt.Sprintf("line-%d\n", n)
	a.eventually(patience, "the log has "+strings.TrimSpace(line), func() (bool, error) {
		return strings.Contains(a.stack.Log(a.t.Context(), a.t, a.job), line), nil
	})
}

func (a *arena) status(limit time.Duration, status string) harness.Deployment {
	a.t.Helper()
	return a.stack.Wait(a.t.Context(), a.t, a.job, limit, status)
}

func (a *arena) eventually(limit time.Duration, what string, ask func() (bool, error)) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), limit)
	defer cancel()
	if err := harness.Until(ctx, ask); err != nil {
		a.t.Fatalf("waiting until %s: %v\nthe deployment's log:\n%s", what, err, tail(a.stack.Log(a.t.Context(), a.t, a.job), 30))
	}
}

// pass waits for the duration of a fault.
func (a *arena) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-a.t.Context().Done():
	}
}

func tail(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

func (a *arena) runner() int {
	a.t.Helper()
	pids := a.place.runner(a)
	if len(pids) != 1 {
		a.t.Fatalf("the runners are %v, want one", pids)
	}
	return pids[0]
}

func (a *arena) kill(p *child.Process) {
	a.t.Helper()
	must.OK(a.t, p.Stop(syscall.SIGKILL, patience))
}

func (a *arena) killAgent()  { a.t.Helper(); a.kill(a.agent.Process) }
func (a *arena) killServer() { a.t.Helper(); a.kill(a.Server.Process) }

// signal sends a signal to a process that is not a child of the test.
func (a *arena) signal(pid int, sig syscall.Signal) {
	a.t.Helper()
	must.OK(a.t, syscall.Kill(pid, sig))
}

// killRunner kills a runner and waits until it is dead, or a zombie. Before that it may still
// receive data that it never reads.
func (a *arena) killRunner(pid int) {
	a.t.Helper()
	a.signal(pid, syscall.SIGKILL)
	a.eventually(patience, "the killed runner is dead", func() (bool, error) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return true, nil //nolint:nilerr // it exited, or the directory does not exist
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X"), nil
	})
}

// bringBack restarts agent and server if they are not running, and lifts all rules of the proxy.
func (a *arena) bringBack() {
	a.t.Helper()
	if ended(a.Server.Process) {
		must.OK(a.t, a.RestartServer(a.t.Context()))
	}
	if ended(a.agent.Process) {
		must.OK(a.t, a.RestartAgent(a.t.Context()))
		a.agent = a.Agents[len(a.Agents)-1]
	}
	a.proxy.liftAll()
}

func ended(p *child.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}
