// Package docker runs jobs in containers on a local or remote Docker Engine. It uses only the
// engine's API, never the docker command.
//
// Each job has a container and a volume of the same name. The runner enters the container through a
// read-only volume, which all jobs with the same runner share. The executor reads the runner's
// files through the engine's archive API, so the engine may be on another host and the agent in a
// container. With a shared volume directory, the job's volume is a bind mount below that directory.
//
// The job's token and definition enter through the container's standard input and do not appear in
// the container's description.
package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Name is this executor's deploy_target value.
const Name = "docker"

// Paths in the container.
const (
	runnerDir     = "/mnt/pulumi/workflow" // read-only
	runnerPath    = runnerDir + "/" + executor.RunnerName
	defaultJobDir = "/mnt/pulumi/job"
)

const (
	pingTime    = 5 * time.Second
	cleanupTime = 30 * time.Second
	// stopTime is how long an engine that shuts down waits for a job. It allows for the longest
	// grace period for a cancellation, plus time for the log and the result.
	stopTime = 16 * time.Minute
)

// Config is the part of the agent's configuration for the engine.
type Config struct {
	// Host is the engine's address, in the format of DOCKER_HOST. If it is empty, the executor
	// tries DOCKER_HOST, the docker context and the usual sockets.
	Host string
	// PullImage makes the executor pull the image for each job, and fail if the pull fails. If it
	// is false, the image must already be present.
	PullImage     bool
	Network       string  // network mode for jobs; "" uses the engine's default
	ServerAddress string  // if set, jobs reach a server on loopback at this host:port and need not share the host's network
	Memory        int64   // memory limit per job in bytes; 0 means no limit
	CPUs          float64 // CPU limit per job; 0 means no limit
	PidsLimit     int64   // maximum number of processes and threads per job; 0 means no limit
}

// Options configure an [Executor].
type Options struct {
	Config
	// WorkingDirectory is the directory with the embeddable runners.
	WorkingDirectory string
	// SharedVolumeDirectory, if not empty, is a directory that has the same path on the agent's
	// system and on the engine's host. Jobs get bind mounts below it.
	SharedVolumeDirectory string
	PullStall             time.Duration // how long a pull may make no progress; 0 means 5 minutes
	Log                   *logrus.Entry
}

// Executor runs jobs in containers.
type Executor struct {
	opts Options

	mu       sync.Mutex
	conn     *client.Client // nil until an engine has been found
	starting sync.Map       // names of the containers that Start is currently starting
	filling  sync.Mutex     // held while a volume with a runner or a release of pulumi is being filled

	unmeasured atomic.Bool // the engine's last attempt to measure its volumes failed
}

// New returns an executor. It does not connect to the engine: [Executor.Check] reports if the
// engine is unavailable.
func New(o Options) (*Executor, error) {
	if o.SharedVolumeDirectory != "" && !filepath.IsAbs(o.SharedVolumeDirectory) {
		return nil, fmt.Errorf("shared_volume_directory %q is not an absolute path", o.SharedVolumeDirectory)
	}
	if strings.HasPrefix(o.Network, "container:") {
		return nil, fmt.Errorf("docker_network %q: jobs cannot join the network of another container", o.Network)
	}
	o.PullStall = cmp.Or(o.PullStall, defaultPullStall)
	return &Executor{opts: o}, nil
}

// Name returns [Name].
func (e *Executor) Name() string { return Name }

// Close closes the connections to the engine.
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

// Check pings the engine and checks that a runner for the engine's containers exists.
func (e *Executor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
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
	return executor.FindAnyEmbeddable(e.opts.WorkingDirectory)
}

func (e *Executor) engine() (*client.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn != nil {
		return e.conn, nil
	}
	at, err := discover(e.opts.Host)
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

// forget closes the connections after a failure, because an engine such as Docker Desktop can
// replace its socket.
func (e *Executor) forget(engine *client.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == engine {
		_ = engine.Close() // closes only idle connections
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

// answered reports whether err is a response from the engine, which proves that the engine is
// available.
func answered(err error) bool {
	return err != nil && !client.IsErrConnectionFailed(err) &&
		(errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsConflict(err) ||
			errdefs.IsInternal(err) || errdefs.IsPermissionDenied(err) || errdefs.IsNotImplemented(err))
}

func local(engine *client.Client) bool { return strings.HasPrefix(engine.DaemonHost(), "unix://") }

var _ executor.Executor = (*Executor)(nil)

// Labels of the objects that the executor creates. The executor never removes an object without
// these labels.
const (
	labelPrefix  = "workflowagent."
	labelOwner   = labelPrefix + "owner"
	labelKind    = labelPrefix + "kind"
	labelName    = labelPrefix + "name" // the job's object name
	labelJob     = labelPrefix + "job"
	labelEpoch   = labelPrefix + "epoch"
	labelJobDir  = labelPrefix + "job-dir"
	labelShared  = labelPrefix + "shared-directory"
	labelCreated = labelPrefix + "created"
	labelArch    = labelPrefix + "arch" // the runner's architecture
	labelScope   = labelPrefix + "scope"
	labelStack   = labelPrefix + "stack"
	labelUser    = labelPrefix + "user"  // the user of the image that a workspace is for
	labelImage   = labelPrefix + "image" // the ID of that image
)

const (
	kindJob    = "job"    // a job's container and volume
	kindCopy   = "copy"   // a container that copies a runner into a volume, or tests a runner
	kindRunner = "runner" // a volume that contains a runner
	kindPulumi = "pulumi" // a volume that contains a release of pulumi

	kindWorkspace = "workspace" // a volume that jobs of one scope use in turn
)

// job is the executor's own data in an [executor.Handle].
type job struct {
	Name   string `json:"name"`             // name of the container and the volume
	JobDir string `json:"jobDir"`           // the job directory's path in the container
	Shared string `json:"shared,omitempty"` // the path of the job's directory on the host if the job has no volume
	Engine string `json:"engine"`           // the engine's address
}

func (j job) copier() string { return j.Name + "-copy" }

// labels returns the labels for a job's objects. The labels in spec cannot replace the executor's
// labels. Every executor label is set, even to "", because a container inherits the labels of its
// image, and List must not use those.
func labels(spec executor.Spec, j job, kind string, now time.Time) map[string]string {
	out := map[string]string{}
	for k, v := range spec.Labels {
		out[labelPrefix+k] = v
	}
	maps.Copy(out, map[string]string{
		labelOwner:   spec.Owner,
		labelKind:    kind,
		labelName:    j.Name,
		labelJob:     spec.JobID,
		labelEpoch:   strconv.FormatInt(spec.Epoch, 10),
		labelJobDir:  j.JobDir,
		labelCreated: now.UTC().Format(time.RFC3339),
		labelShared:  j.Shared,
	})
	return out
}

// newJob returns the job's object name and, if a shared volume directory is configured, the path of
// the job's directory in it.
func (e *Executor) newJob(spec executor.Spec) job {
	j := job{Name: executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch)}
	if e.opts.SharedVolumeDirectory != "" {
		j.Shared = filepath.Join(e.opts.SharedVolumeDirectory, j.Name)
	}
	return j
}

// open decodes a handle and returns the job and the engine. It checks the names in the handle,
// because handles are read from files.
func (e *Executor) open(h executor.Handle) (j job, _ *client.Client, err error) {
	if err := h.Decode(Name, &j); err != nil {
		return j, nil, err
	}
	if !executor.IsObjectName(j.Name) || !path.IsAbs(j.JobDir) {
		return j, nil, fmt.Errorf("the handle of job %s does not name an object of this executor: %q", h.JobID, j.Name)
	}
	engine, err := e.engine()
	return j, engine, err
}

// jobDir returns the path of the job directory in the container. If rootPath is set, this directory
// is below it.
func jobDir(rootPath string) (string, error) {
	if rootPath == "" {
		return defaultJobDir, nil
	}
	clean := path.Clean(rootPath)
	if !path.IsAbs(rootPath) || clean == "/" {
		return "", fmt.Errorf("the job's root path %q is not an absolute path below /", rootPath)
	}
	for _, taken := range []string{runnerDir, workspaceDir, "/proc", "/sys", "/dev"} {
		if clean == taken || strings.HasPrefix(clean, taken+"/") {
			return "", fmt.Errorf("the job's root path %q cannot be used: it is in %s", rootPath, taken)
		}
	}
	return path.Join(clean, "workflow-job"), nil
}
