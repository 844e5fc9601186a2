// Package docker runs jobs in containers of a Docker Engine, local or remote. It uses only the
// engine's API, never the docker command.
//
// A job is a container and a volume of the same name. The runner enters the container through a
// read-only volume that all jobs with the same runner share, and the executor reads its files
// through the engine's archive API. So the engine may be on another host and the agent in a
// container itself. With a shared volume directory, the job's volume is a bind mount below it.
//
// What the job must not leak (its token, its definition) enters by the container's standard
// input and appears nowhere in the container's description.
package docker

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Name is the deploy_target value of this executor.
const Name = "docker"

// Paths in the container.
const (
	runnerDir     = "/mnt/pulumi/workflow" // read-only
	runnerPath    = runnerDir + "/" + executor.RunnerName
	defaultJobDir = "/mnt/pulumi/job"
)

const (
	pingPatience    = 5 * time.Second
	cleanupPatience = 30 * time.Second
	defaultStop     = 16 * time.Minute // the longest grace period of a cancellation, plus a reserve for log and result
	defaultPids     = 4096
)

// Options configure an [Executor].
type Options struct {
	// Host is the engine's address, as in DOCKER_HOST. If empty, the executor tries
	// DOCKER_HOST, the docker context and the usual sockets.
	Host string
	// PullImage pulls the image for each job and fails if the pull fails. If false, the image
	// must be present.
	PullImage bool
	// RunnerDir is the directory of the embeddable runners.
	RunnerDir string
	// SharedVolumeDirectory, if not empty, is a directory with the same path for the agent and
	// for the engine's host. Jobs get bind mounts below it.
	SharedVolumeDirectory string
	Network               string        // network mode of jobs; "" = the engine's default
	Memory                int64         // bytes a job may use; 0 = no limit
	CPUs                  float64       // processors a job may use; 0 = no limit
	PidsLimit             int64         // processes and threads of a job; 0 = 4096, negative = no limit
	PatienceStop          time.Duration // how long an engine that shuts down waits for a job; 0 = 16 minutes
	PullStall             time.Duration // how long a pull may make no progress; 0 = 5 minutes
	Log                   *logrus.Entry

	// Getenv and Home are used to find the engine; nil and "" mean the agent's own environment
	// and home directory.
	Getenv func(name string) string
	Home   string
}

// Executor runs jobs in containers.
type Executor struct {
	opts Options

	mu       sync.Mutex
	conn     *client.Client      // nil until an engine was found
	starting map[string]struct{} // names of containers that a Start is working on
	filling  sync.Mutex          // held while a runner volume is being filled
}

// New returns an executor. It does not connect to the engine: [Executor.Check] reports one that
// is down.
func New(o Options) (*Executor, error) {
	if o.SharedVolumeDirectory != "" && !filepath.IsAbs(o.SharedVolumeDirectory) {
		return nil, fmt.Errorf("shared_volume_directory %q is not an absolute path", o.SharedVolumeDirectory)
	}
	if strings.HasPrefix(o.Network, "container:") {
		return nil, fmt.Errorf("docker_network %q: jobs cannot join the network of another container", o.Network)
	}
	if o.PatienceStop == 0 {
		o.PatienceStop = defaultStop
	}
	if o.PullStall == 0 {
		o.PullStall = defaultPullStall
	}
	if o.PidsLimit == 0 {
		o.PidsLimit = defaultPids
	}
	return &Executor{opts: o, starting: map[string]struct{}{}}, nil
}

// Name returns [Name].
func (e *Executor) Name() string { return Name }

// Close drops the connections to the engine.
func (e *Executor) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return nil
	}
	err := e.conn.Close()
	e.conn = nil
	return err
}

// Check pings the engine and checks that a runner for its containers exists.
func (e *Executor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	engine, err := e.engine()
	if err != nil {
		return err
	}
	ping, err := engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		e.forget(engine)
		return explain(engine.DaemonHost(), err)
	}
	if ping.OSType != "" && ping.OSType != "linux" {
		return fmt.Errorf("the Docker Engine at %s runs %s containers: switch it to Linux containers", engine.DaemonHost(), ping.OSType)
	}
	return executor.FindAnyEmbeddable(e.opts.RunnerDir)
}

func (e *Executor) engine() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn != nil {
		return e.conn, nil
	}
	at, err := discover(e.opts)
	if err != nil {
		return nil, err
	}
	conn, err := client.New(at.options()...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the Docker Engine at %s (from %s): %w", at.host, at.origin, err)
	}
	e.conn = conn
	return conn, nil
}

// forget drops a broken connection, because engines such as Docker Desktop change their
// sockets.
func (e *Executor) forget(engine *client.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == engine {
		_ = engine.Close() // only idle connections
		e.conn = nil
	}
}

func failure(reason workflow.Reason, what string, err error) error {
	message := what
	if err != nil {
		message = what + ": " + engineText(err.Error())
	}
	return &executor.Error{Reason: reason, Message: message, Err: err}
}

func engineText(s string) string {
	return termtext.OneLine(strings.TrimPrefix(s, "Error response from daemon: "), 0)
}

// answered reports whether err came from an engine, rather than from its absence.
func answered(err error) bool {
	return err != nil && !client.IsErrConnectionFailed(err) &&
		(errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsConflict(err) ||
			errdefs.IsInternal(err) || errdefs.IsPermissionDenied(err) || errdefs.IsNotImplemented(err))
}

func local(engine *client.Client) bool {
	u, err := url.Parse(engine.DaemonHost())
	return err == nil && u.Scheme == "unix"
}

var _ executor.Executor = (*Executor)(nil)
