package harness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
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
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/testcert"
)

var built struct {
	once  sync.Once
	dir   string
	tools lab.Tools
	err   error
}

// Main runs the tests of a package, closes their cluster, removes the binaries that they built, and
// exits.
func Main(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if built.dir != "" && os.Getenv(binVariable) == "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// FullScale reports whether tests use full timers and amounts, instead of reduced ones.
var FullScale = os.Getenv("WORKFLOW_E2E_FULL") != ""

// binVariable names a directory with the product's binaries if the caller has already built them.
const binVariable = "WORKFLOW_BIN"

// Programs returns the directory of the product's binaries, and the CLI. The first call builds them
// if necessary.
func Programs(t testing.TB) (bin string, tools lab.Tools) {
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

// Site is one server, its agents and a git server, with their own directory.
type Site struct {
	Dir    string
	Bin    string
	Tools  lab.Tools
	Home   string // PULUMI_HOME of clients and, with the process executor, of jobs
	Server *lab.Server
	Git    *lab.GitServer
	Pool   struct{ ID, Token string }
	Agents []*lab.Agent

	AgentArgs []string          // additional arguments for agents
	AgentURL  string            // URL that agents use instead of the server's, or ""
	Last      lab.AgentOptions  // options of the newest agent
	options   lab.ServerOptions // options of the server
}

// NewSite starts a server and a git server.
func NewSite(ctx context.Context, bin string, tools lab.Tools, dir, host string, serverArgs ...string) (*Site, error) {
	return newSite(ctx, bin, tools, dir, lab.ServerOptions{Host: host, Args: serverArgs})
}

func newSite(ctx context.Context, bin string, tools lab.Tools, dir string, o lab.ServerOptions) (*Site, error) {
	w := &Site{Dir: dir, Bin: bin, Tools: tools, Home: filepath.Join(dir, "home")}
	if err := tools.Home(w.Home); err != nil {
		return nil, err
	}
	port, err := child.FreePort(cmp.Or(o.Host, "127.0.0.1"))
	if err != nil {
		return nil, err
	}
	// The port is chosen here, so that a restarted server has the same URL.
	o.Binary, o.Dir, o.Port, o.Env = filepath.Join(bin, "workflow-server"), dir, port, os.Environ()
	w.options = o
	if w.Server, err = lab.StartServer(context.WithoutCancel(ctx), w.options); err != nil {
		return nil, err
	}
	var listen string
	if o.Host != "" {
		listen = net.JoinHostPort(o.Host, "0")
	}
	if w.Git, err = lab.StartGitServer(ctx, filepath.Join(dir, "git"), lab.GitOptions{Listen: listen}); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Host returns the server's listen address.
func (w *Site) Host() string { return cmp.Or(w.options.Host, "127.0.0.1") }

// Close stops the agents, the server and the git server. It is safe to call twice.
func (w *Site) Close() {
	for _, a := range w.Agents {
		_ = a.Process.Stop(syscall.SIGTERM, 15*time.Second)
	}
	if w.Server != nil {
		_ = w.Server.Process.Stop(syscall.SIGTERM, 15*time.Second)
	}
	if w.Git != nil {
		_ = w.Git.Close()
		w.Git = nil
	}
}

// MakePool creates the organization's default pool, if it has not yet done so.
func (w *Site) MakePool(ctx context.Context) error {
	if w.Pool.ID != "" {
		return nil
	}
	var err error
	if w.Pool.ID, w.Pool.Token, err = w.Server.Pool(ctx, "default"); err != nil {
		return err
	}
	return w.Server.Call(ctx, "PATCH", "/api/orgs/"+w.Server.Organization,
		map[string]string{"setDefaultAgentPoolID": w.Pool.ID}, nil)
}

// StartAgent starts one more agent of the default pool and waits until the server lists it as
// online.
func (w *Site) StartAgent(ctx context.Context, target string, settings map[string]string, env ...string) (*lab.Agent, error) {
	a, err := w.LaunchAgent(ctx, target, settings, env...)
	if err != nil {
		return nil, err
	}
	return a, w.waitOnline(ctx, len(w.Agents), a)
}

// LaunchAgent is like [Site.StartAgent], but does not wait until the agent is online.
func (w *Site) LaunchAgent(ctx context.Context, target string, settings map[string]string, env ...string) (*lab.Agent, error) {
	if err := w.MakePool(ctx); err != nil {
		return nil, err
	}
	dir := filepath.Join(w.Dir, fmt.Sprintf("agent%d", len(w.Agents)))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	w.Last = lab.AgentOptions{
		Binary: filepath.Join(w.Bin, "customer-managed-workflow-agent"), Dir: dir,
		ServiceURL: cmp.Or(w.AgentURL, w.Server.URL), Token: w.Pool.Token, Target: target, Settings: settings, Args: w.AgentArgs,
		Env: append([]string{
			"PATH=" + w.Tools.Dir + string(os.PathListSeparator) + os.Getenv("PATH"),
			"HOME=" + dir,
		}, env...),
	}
	a, err := lab.StartAgent(context.WithoutCancel(ctx), w.Last)
	if err != nil {
		return nil, err
	}
	w.Agents = append(w.Agents, a)
	return a, nil
}

// RestartAgent restarts the newest agent after it has exited.
func (w *Site) RestartAgent(ctx context.Context) error {
	a, err := lab.StartAgent(context.WithoutCancel(ctx), w.Last)
	if err != nil {
		return err
	}
	w.Agents[len(w.Agents)-1] = a
	return nil
}

// RestartServer restarts the server with its data and address after it has exited.
func (w *Site) RestartServer(ctx context.Context) error {
	s, err := lab.StartServer(context.WithoutCancel(ctx), w.options)
	if err != nil {
		return err
	}
	w.Server = s
	return nil
}

func (w *Site) waitOnline(ctx context.Context, n int, a *lab.Agent) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return Until(ctx, func() (bool, error) {
		select {
		case <-a.Process.Done():
			return false, fmt.Errorf("the agent ended (%w): %s", a.Process.Err(), child.Tail(a.LogFile, 20))
		default:
		}
		online, err := w.Online(ctx)
		return online >= n, err
	})
}

// Online counts the agents of the default pool that the server lists as online.
func (w *Site) Online(ctx context.Context) (int, error) {
	var pool struct {
		Agents []struct {
			Status string `json:"status"`
		} `json:"agents"`
	}
	err := w.Server.Call(ctx, "GET", "/api/orgs/"+w.Server.Organization+"/agent-pools/"+w.Pool.ID, nil, &pool)
	online := 0
	for _, agent := range pool.Agents {
		if agent.Status == "online" {
			online++
		}
	}
	return online, err
}

// Patience is how long a test waits for what takes seconds on an idle machine.
const Patience = 5 * time.Minute

// Until calls ask every 50 ms until it returns true or an error, or ctx is done.
func Until(ctx context.Context, ask func() (bool, error)) error {
	return child.Poll(ctx, 50*time.Millisecond, ask)
}

// JobEnv returns the environment variables of deployments that let the process executor's jobs find
// the provider and keep the CLI from checking for updates.
func (w *Site) JobEnv() map[string]string {
	return map[string]string{
		"PULUMI_HOME":              w.Home,
		"PULUMI_SKIP_UPDATE_CHECK": "true",
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		"PULUMI_DISABLE_REGISTRY_RESOLVE":             "true",
	}
}

// Logs writes the last lines of all log files to out.
func (w *Site) Logs(out io.Writer) {
	fmt.Fprintf(out, "--- server log\n%s\n", child.Tail(w.Server.LogFile, 40))
	for i, a := range w.Agents {
		fmt.Fprintf(out, "--- agent %d log\n%s\n", i, child.Tail(a.LogFile, 60))
	}
}

// StartSite is like [NewSite], for a Go test. It stops the site when the test finishes, and prints
// the logs if the test has failed.
func StartSite(t *testing.T, host string, serverArgs ...string) *Site {
	t.Helper()
	return startSite(t, t.TempDir(), lab.ServerOptions{Host: host, Args: serverArgs})
}

// StartSecureSite is like [StartSite], but the server terminates TLS. caFile is the certificate of the private
// authority that has issued the server's.
func StartSecureSite(t *testing.T, serverArgs ...string) (w *Site, caFile string) {
	t.Helper()
	dir := t.TempDir()
	ca := must.Get(testcert.NewAuthority("the company"))(t)
	caFile = filepath.Join(dir, "ca.pem")
	Write(t, caFile, ca.PEM(), 0o600)
	c := &lab.ServerCertificate{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"), Roots: ca.Pool()}
	must.OK(t, testcert.Write(must.Get(ca.Issue(&x509.Certificate{}, "127.0.0.1"))(t), c.CertFile, c.KeyFile))
	return startSite(t, dir, lab.ServerOptions{Args: serverArgs, Certificate: c}), caFile
}

func startSite(t *testing.T, dir string, o lab.ServerOptions) *Site {
	t.Helper()
	bin, tools := Programs(t)
	w := must.Get(newSite(context.Background(), bin, tools, dir, o))(t)
	t.Cleanup(func() {
		w.Close()
		if t.Failed() {
			var buf bytes.Buffer
			w.Logs(&buf)
			t.Log(buf.String())
		}
	})
	return w
}

// Say runs a command that must succeed and returns its output.
func Say(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
