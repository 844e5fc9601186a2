package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/dev/lab"
)

// built is what is made once and used by every test.
var built struct {
	once  sync.Once
	dir   string
	tools lab.Tools
	err   error
}

// Main runs the tests of a package, removes what they built, and exits.
func Main(m *testing.M) {
	code := m.Run()
	if built.dir != "" && os.Getenv(binVariable) == "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// fullScale says that nothing is scaled down: real timers, real amounts.
var fullScale = os.Getenv("WORKFLOW_E2E_FULL") != ""

// binVariable names a directory with the product's binaries, so that a caller
// that has built them already need not do it again.
const binVariable = "WORKFLOW_BIN"

// programs builds the product's binaries and finds the CLI, once.
func programs(t testing.TB) (bin string, tools lab.Tools) {
	t.Helper()
	built.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Minute)
		defer cancel()
		if built.tools, built.err = lab.PulumiTools(ctx, os.Stderr); built.err != nil {
			return
		}
		if built.dir = os.Getenv(binVariable); built.dir != "" {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "workflow-bin-"); built.err != nil {
			return
		}
		built.err = lab.BuildProduct(ctx, built.dir, os.Stderr)
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir, built.tools
}

// world is one server with everything around it, in a directory of its own.
type world struct {
	dir    string
	bin    string
	tools  lab.Tools
	home   string // PULUMI_HOME of clients and, with the process executor, of jobs
	server *lab.Server
	git    *lab.GitServer
	pool   struct{ id, token string }
	agents []*lab.Agent

	agentArgs []string          // more arguments of agents
	agentURL  string            // what agents use instead of the server's URL, "" if the same
	last      lab.AgentOptions  // of the newest agent
	options   lab.ServerOptions // of the server
}

// newWorld starts a server and a git server. Everything ends with the test, and
// on failure the logs are shown.
func newWorld(ctx context.Context, bin string, tools lab.Tools, dir, host string, serverArgs ...string) (*world, error) {
	w := &world{dir: dir, bin: bin, tools: tools, home: filepath.Join(dir, "home")}
	if err := tools.Home(w.home); err != nil {
		return nil, err
	}
	port, err := lab.FreePort(cmp.Or(host, "127.0.0.1"))
	if err != nil {
		return nil, err
	}
	// The port is chosen here so that a restarted server has the same URL.
	w.options = lab.ServerOptions{
		Binary: filepath.Join(bin, "workflow-server"), Dir: dir, Host: host, Port: port,
		Env: os.Environ(), Args: serverArgs,
	}
	if w.server, err = lab.StartServer(context.WithoutCancel(ctx), w.options); err != nil {
		return nil, err
	}
	var listen string
	if host != "" {
		listen = net.JoinHostPort(host, "0")
	}
	if w.git, err = lab.StartGitServer(ctx, filepath.Join(dir, "git"), lab.GitOptions{Listen: listen}); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// host is the address that the server listens on.
func (w *world) host() string { return cmp.Or(w.options.Host, "127.0.0.1") }

// close ends agents and server. It is safe to call twice.
func (w *world) close() {
	for _, a := range w.agents {
		_ = a.Process.Stop(syscall.SIGTERM, 15*time.Second)
	}
	if w.server != nil {
		_ = w.server.Process.Stop(syscall.SIGTERM, 15*time.Second)
	}
	if w.git != nil {
		_ = w.git.Close()
		w.git = nil
	}
}

// makePool makes the organization's default pool, once.
func (w *world) makePool(ctx context.Context) error {
	if w.pool.id != "" {
		return nil
	}
	var err error
	if w.pool.id, w.pool.token, err = w.server.Pool(ctx, "default"); err != nil {
		return err
	}
	return w.server.Call(ctx, "PATCH", "/api/orgs/"+w.server.Organization,
		map[string]string{"setDefaultAgentPoolID": w.pool.id}, nil)
}

// startAgent starts one more agent of the default pool and waits until the
// server lists it as online.
func (w *world) startAgent(ctx context.Context, target string, settings map[string]string, env ...string) (*lab.Agent, error) {
	a, err := w.launchAgent(ctx, target, settings, env...)
	if err != nil {
		return nil, err
	}
	return a, w.waitOnline(ctx, len(w.agents), a)
}

// launchAgent is startAgent without the wait, for an agent that cannot work yet.
func (w *world) launchAgent(ctx context.Context, target string, settings map[string]string, env ...string) (*lab.Agent, error) {
	if err := w.makePool(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(w.dir, fmt.Sprintf("agent%d", len(w.agents)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	w.last = lab.AgentOptions{
		Binary: filepath.Join(w.bin, "customer-managed-workflow-agent"), Dir: dir,
		ServiceURL: cmp.Or(w.agentURL, w.server.URL), Token: w.pool.token, Target: target, Settings: settings, Args: w.agentArgs,
		Env: append([]string{
			"PATH=" + w.tools.Dir + string(os.PathListSeparator) + os.Getenv("PATH"),
			"HOME=" + dir,
		}, env...),
	}
	a, err := lab.StartAgent(context.WithoutCancel(ctx), w.last)
	if err != nil {
		return nil, err
	}
	w.agents = append(w.agents, a)
	return a, nil
}

// restartAgent starts the newest agent again, after it ended.
func (w *world) restartAgent(ctx context.Context) error {
	a, err := lab.StartAgent(context.WithoutCancel(ctx), w.last)
	if err != nil {
		return err
	}
	w.agents[len(w.agents)-1] = a
	return nil
}

// restartServer starts the server again on its data and address, after it ended.
func (w *world) restartServer(ctx context.Context) error {
	s, err := lab.StartServer(context.WithoutCancel(ctx), w.options)
	if err != nil {
		return err
	}
	w.server = s
	return nil
}

func (w *world) waitOnline(ctx context.Context, n int, a *lab.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return until(ctx, func() (bool, error) {
		select {
		case <-a.Process.Done():
			return false, fmt.Errorf("the agent ended (%w): %s", a.Process.Err(), lab.Tail(a.LogFile, 20))
		default:
		}
		online, err := w.online(ctx)
		return online >= n, err
	})
}

// online counts the agents of the default pool that the server takes for online.
func (w *world) online(ctx context.Context) (int, error) {
	var pool struct {
		Agents []struct {
			Status string `json:"status"`
		} `json:"agents"`
	}
	err := w.server.Call(ctx, "GET", "/api/orgs/"+w.server.Organization+"/agent-pools/"+w.pool.id, nil, &pool)
	online := 0
	for _, agent := range pool.Agents {
		if agent.Status == "online" {
			online++
		}
	}
	return online, err
}

// until asks every 50 ms until the answer is yes, an error, or ctx ends.
func until(ctx context.Context, ask func() (bool, error)) error {
	return lab.Poll(ctx, 50*time.Millisecond, ask)
}

// jobEnv are the deployment's environment variables that let the process
// executor's jobs find the provider and keep the CLI from looking for updates.
func (w *world) jobEnv() map[string]string {
	return map[string]string{
		"PULUMI_HOME":              w.home,
		"PULUMI_SKIP_UPDATE_CHECK": "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		"PULUMI_DISABLE_REGISTRY_RESOLVE":             "true",
	}
}

// logs writes the ends of all log files, for a test that failed.
func (w *world) logs(out io.Writer) {
	fmt.Fprintf(out, "--- server log\n%s\n", lab.Tail(w.server.LogFile, 40))
	for i, a := range w.agents {
		fmt.Fprintf(out, "--- agent %d log\n%s\n", i, lab.Tail(a.LogFile, 60))
	}
}

// testWorld is newWorld for a Go test.
func testWorld(t *testing.T, host string, serverArgs ...string) *world {
	t.Helper()
	bin, tools := programs(t)
	w, err := newWorld(context.Background(), bin, tools, t.TempDir(), host, serverArgs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.close()
		if t.Failed() {
			var buf bytes.Buffer
			w.logs(&buf)
			t.Log(buf.String())
		}
	})
	return w
}

// say runs a command that must succeed and returns what it prints.
func say(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
