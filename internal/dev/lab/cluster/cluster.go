// Package cluster starts a real Kubernetes with one node for tests: etcd, the API server, the
// controllers and the scheduler, a kubelet, and this machine's containerd with runc and CNI plugins.
//
// All of them run in separate namespaces for process IDs, mounts, the network and IPC, and end
// with the process that started the cluster, even if that process is killed; see the command bottle
// below this package. The only other traces on the machine are an interface, control groups and a
// temporary directory, which disappear with the cluster.
//
// The interface is one end of a link into the cluster's network. The test and all programs that it
// starts therefore run on the machine as in any other test: they reach the API server at
// [Cluster.URL] and each pod at its own address, and pods reach listeners on [Cluster.HostIP]. Pods
// do not reach other hosts, nor this machine's loopback interface, and there is no DNS.
//
// One cluster can serve several test binaries, one after the other: [Need] uses the cluster that
// WORKFLOW_TEST_CLUSTER names instead of starting one. Tests that share a cluster use namespaces of
// their own.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/cluster/layout"
)

// Variable names a running cluster's directory for [Need].
const Variable = "WORKFLOW_TEST_CLUSTER"

const (
	startPatience = 3 * time.Minute
	closePatience = time.Minute
	// maxDirectory leaves room for the names of sockets, whose paths are limited to 107 bytes.
	maxDirectory = 60
)

// Cluster is a running cluster.
type Cluster struct {
	// Dir holds the cluster's files; the subdirectory log holds the logs of its programs.
	Dir string
	// HostIP is this machine's address for pods.
	HostIP netip.Addr
	// NodeIP is the address of the node, whose name is [Node].
	NodeIP netip.Addr
	// URL is the address of the API server. Pods find it at the address of its service instead.
	URL string

	options Options
	binary  string // the program of [lab.Kubernetes]
	place   layout.Place
	keys    *authority
	api     *http.Client // as the administrator
	control *http.Client
	keeper  *keeper // nil if another process owns the cluster
}

// Options configure a cluster. The zero value is valid.
type Options struct {
	// Unreachable is how long the node may be silent before its pods are marked as lost. It must be
	// a multiple of a second. The default is 20 seconds, half of the default of Kubernetes.
	Unreachable time.Duration
	// Eviction is how long pods stay on a node that was marked unreachable, unless they tolerate
	// more. It must be a multiple of a second. The default is 10 seconds; that of Kubernetes is 5 min.
	Eviction time.Duration
	// Progress receives reports about builds that take minutes. The default is standard error.
	Progress io.Writer
}

// setDefaults replaces zero values.
func (o *Options) setDefaults() {
	if o.Unreachable == 0 {
		o.Unreachable = 20 * time.Second
	}
	if o.Eviction == 0 {
		o.Eviction = 10 * time.Second
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
}

// Available reports whether [Start] works on this machine, and if not, why.
func Available() (reason string, ok bool) {
	switch {
	case runtime.GOOS != "linux":
		return "a Kubernetes cluster requires Linux", false
	case os.Geteuid() != 0:
		return "a Kubernetes cluster requires root", false
	}
	for program, pkg := range map[string]string{
		"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2", "busybox": "busybox-static",
	} {
		if _, err := find(program); err != nil {
			return fmt.Sprintf("a Kubernetes cluster requires %s (Debian's %s)", program, pkg), false
		}
	}
	if _, err := plugins(); err != nil {
		return err.Error(), false
	}
	return "", true
}

// find returns the path of a program of the system.
func find(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), filepath.SplitList(layout.Path)...) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// Need returns a cluster for tests: the one that WORKFLOW_TEST_CLUSTER names, or a new one. The
// options apply only to a new one.
func Need(ctx context.Context, options Options) (*Cluster, error) {
	if dir := os.Getenv(Variable); dir != "" {
		return Open(dir)
	}
	return Start(ctx, options)
}

// Start starts a cluster and waits until it runs pods. The caller must call Close.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if reason, ok := Available(); !ok {
		return nil, errors.New(reason)
	}
	options.setDefaults()
	binary, err := lab.Kubernetes(ctx, options.Progress)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("the cluster was not ready within %s", startPatience))
	defer cancel()
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return nil, fmt.Errorf("starting a cluster: %w", err)
	}
	if len(dir) > maxDirectory {
		return nil, errors.Join(fmt.Errorf("starting a cluster: the path %s is too long for sockets; set TMPDIR to a shorter one", dir), os.Remove(dir))
	}
	c := &Cluster{Dir: dir, binary: binary, options: options}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("starting a cluster: %w%s", err, c.tails())
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, dir := range []string{"log", "users", "registries", "keys"} {
		if err := os.Mkdir(filepath.Join(c.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := c.keep(ctx); err != nil {
		return err
	}
	var err error
	if c.keys, err = createAuthority(filepath.Join(c.Dir, "keys")); err != nil {
		return err
	}
	if err := c.keys.issueServer("apiserver", c.place); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.startPrograms(ctx); err != nil {
		return err
	}
	if err := c.awaitPods(ctx); err != nil {
		return err
	}
	state, err := json.Marshal(c.state())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.Dir, stateFile), state, 0o600)
}

const stateFile = "cluster.json"

// state is what [Open] needs to know.
type state struct {
	Place   layout.Place `json:"place"`
	Binary  string       `json:"binary"`
	Options struct {
		Unreachable, Eviction time.Duration
	} `json:"options"`
}

func (c *Cluster) state() state {
	s := state{Place: c.place, Binary: c.binary}
	s.Options.Unreachable, s.Options.Eviction = c.options.Unreachable, c.options.Eviction
	return s
}

// Open returns the running cluster with its files in dir. Its Close leaves the cluster running.
func Open(dir string) (*Cluster, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("opening a cluster: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("opening a cluster: %w", err)
	}
	c := &Cluster{Dir: dir, binary: s.Binary, place: s.Place, options: Options{
		Unreachable: s.Options.Unreachable, Eviction: s.Options.Eviction, Progress: os.Stderr,
	}}
	if c.keys, err = openAuthority(filepath.Join(dir, "keys")); err != nil {
		return nil, fmt.Errorf("opening a cluster: %w", err)
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("opening a cluster: %w", err)
	}
	return c, nil
}

// Close ends all processes of the cluster and removes its files. It does nothing to a cluster that
// another process owns.
func (c *Cluster) Close() error {
	if c.api != nil {
		c.api.CloseIdleConnections()
		c.control.CloseIdleConnections()
	}
	if c.keeper == nil {
		return nil
	}
	if err := c.keeper.close(); err != nil {
		return fmt.Errorf("closing a cluster: %w", err)
	}
	return nil
}

// tails returns the last lines of all logs.
func (c *Cluster) tails() string {
	var out strings.Builder
	logs, _ := filepath.Glob(layout.Log(c.Dir, "*"))
	for _, log := range logs {
		fmt.Fprintf(&out, "\n--- %s\n%s", filepath.Base(log), child.Tail(log, 10))
	}
	return out.String()
}

// keeper is the running command bottle.
type keeper struct {
	stdin  io.Closer
	stderr *bytes.Buffer
	ended  chan error
	kill   func() error
}

// keep starts the keeper, and waits until the cluster's namespaces and its network exist.
func (c *Cluster) keep(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	binary := filepath.Join(c.Dir, "bottle")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "./internal/dev/lab/cluster/bottle")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the cluster's keeper: %w\n%s", err, out)
	}
	cmd := exec.Command(binary, "keep", c.Dir) //nolint:noctx // The keeper outlives the context of the start.
	k := &keeper{stderr: new(bytes.Buffer), ended: make(chan error, 1)}
	cmd.Stderr = k.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	k.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the cluster's keeper: %w", err)
	}
	k.kill = cmd.Process.Kill
	c.keeper = k
	placed := make(chan error, 1)
	go func() {
		placed <- json.NewDecoder(stdout).Decode(&c.place)
		k.ended <- cmd.Wait()
	}()
	select {
	case err := <-placed:
		if err != nil {
			return fmt.Errorf("creating the cluster's namespaces: %w", errors.Join(err, k.close()))
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *keeper) close() error {
	_ = k.stdin.Close()
	select {
	case err := <-k.ended:
		k.ended <- nil
		if err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(k.stderr.Bytes()))
		}
		return nil
	case <-time.After(closePatience):
		return errors.Join(fmt.Errorf("the cluster's keeper did not end within %s", closePatience), k.kill())
	}
}
