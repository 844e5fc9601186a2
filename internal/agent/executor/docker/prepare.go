package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	// engineTime is how long an unstarted job waits for the engine.
	engineTime = 10 * time.Minute
	// maxLosses is how many times the engine may become unavailable while one job is being
	// prepared.
	maxLosses = 5
)

// Prepare makes the image available and creates the job's container. If the engine becomes
// unavailable meanwhile, for example during an update, Prepare waits and retries. A retry is safe,
// because the job has not run.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	if spec.OS != "" && spec.OS != "linux" {
		return executor.Handle{}, failure(workflow.ReasonLaunch, fmt.Sprintf("This job requires %s, but the agent runs jobs in Linux containers", spec.OS), nil)
	}
	patient, cancel := context.WithTimeout(ctx, engineTime)
	defer cancel()
	for losses := 0; ; losses++ {
		engine, err := e.engine()
		if err != nil {
			return executor.Handle{}, failure(workflow.ReasonLaunch, "The agent has no Docker Engine", err)
		}
		h, err := e.prepare(ctx, engine, spec, progress)
		if err == nil || ctx.Err() != nil || losses == maxLosses || !e.lost(ctx, engine, err) {
			return h, err
		}
		e.opts.Log.WithError(err).WithField("job_id", spec.JobID).Warn("the Docker Engine became unavailable while it prepared a job; waiting for it")
		progress("The Docker Engine does not respond; waiting for it")
		if err := e.await(patient); err != nil {
			if ctx.Err() != nil {
				return executor.Handle{}, ctx.Err()
			}
			return executor.Handle{}, failure(workflow.ReasonLaunch, fmt.Sprintf("The Docker Engine became unavailable while it prepared the job, and was not available again within %s; the job did not run", engineTime), nil)
		}
		if err := e.discardUnstarted(ctx, spec); err != nil {
			return executor.Handle{}, failure(workflow.ReasonLaunch, "The job's objects from before the Docker Engine became unavailable could not be removed", err)
		}
	}
}

func (e *Executor) prepare(ctx context.Context, engine *client.Client, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	dir, err := jobDir(spec.RootPath)
	if err != nil {
		return executor.Handle{}, failure(workflow.ReasonLaunch, "The job cannot run here", err)
	}
	network, err := e.network(ctx, engine, spec)
	if err != nil {
		return executor.Handle{}, err
	}
	img, err := e.ensureImage(ctx, engine, spec.Image, progress)
	if err != nil {
		return executor.Handle{}, err
	}
	runner, err := e.findRunner(spec.Owner, img.arch)
	if err != nil {
		return executor.Handle{}, err
	}
	pulumi, err := bringPulumi(ctx, spec, img.arch)
	if err != nil {
		return executor.Handle{}, err
	}
	if err := ctx.Err(); err != nil {
		return executor.Handle{}, err
	}
	workspace := e.workspace(ctx, engine, spec, img, progress)
	j := e.newJob(spec)
	j.JobDir, j.Engine = dir, engine.DaemonHost()
	created := time.Now()
	if j.Shared != "" {
		if err := makeShared(j.Shared); err != nil {
			return executor.Handle{}, failure(workflow.ReasonLaunch, "The job's directory could not be created in shared_volume_directory", err)
		}
	}
	c := &creation{Executor: e, engine: engine, spec: spec, job: j, image: img, runner: runner, workspace: workspace, pulumi: pulumi, at: created}
	if err := c.create(ctx, network); err != nil {
		if errors.Is(err, errExists) {
			return executor.Handle{}, err
		}
		return executor.Handle{}, errors.Join(err, e.discard(ctx, engine, j))
	}
	progress("Created the container " + j.Name + " from image " + img.ref)
	h, err := executor.NewHandle(Name, spec.JobID, spec.Epoch, created, j)
	if c.pulumi.Dir != "" {
		h.PulumiDir = pulumiDir
	}
	return h, err
}

// errExists reports that the job already has a container. create must not change that container.
var errExists = errors.New("an earlier call prepared the job")

// creation is the creation of a job's container.
type creation struct {
	*Executor

	engine    *client.Client
	spec      executor.Spec
	job       job
	image     image
	runner    runnerFile
	pulumi    executor.Pulumi
	workspace string // name of the workspace's volume; "" if the job has none
	at        time.Time
}

// create creates the container, checks that it can run the runner, and prepares the job's
// directory.
func (c *creation) create(ctx context.Context, network string) error {
	// The call is not canceled with ctx, because an abandoned call could still succeed in the
	// engine after the cleanup.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	config, host := c.container(network)
	_, err := c.engine.ContainerCreate(bounded, client.ContainerCreateOptions{Name: c.job.Name, Config: config, HostConfig: host})
	switch {
	case errdefs.IsConflict(err):
		return failure(workflow.ReasonLaunch, "The job already has a container", errExists)
	case errdefs.IsNotFound(err) && strings.Contains(err.Error(), "image"):
		return failure(workflow.ReasonImage, "The image "+c.image.ref+" is not usable", err)
	case err != nil:
		return failure(workflow.ReasonLaunch, "The container could not be created", err)
	}
	if err := c.ensureRunner(ctx); err != nil {
		return failure(workflow.ReasonLaunch, "The runner could not be copied into the container", err)
	}
	if err := c.ensurePulumi(ctx); err != nil {
		return err
	}
	if err := c.checkPlatform(ctx); err != nil {
		return err
	}
	if err := c.giveToUser(ctx); err != nil {
		return failure(workflow.ReasonLaunch, "The image's user "+c.image.user+" could not be made the owner of the job's directories", err)
	}
	if err := c.linkPulumiEnv(bounded); err != nil {
		return failure(workflow.ReasonLaunch, "The link "+protocol.FilePulumiEnv+" could not be created in the container", err)
	}
	return nil
}

func (e *Executor) discard(ctx context.Context, engine *client.Client, j job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return e.remove(ctx, engine, j)
}

// container returns the configuration of the job's container. It must contain no secrets, because
// every client of the engine can read it.
func (c *creation) container(network string) (*container.Config, *container.HostConfig) {
	all := labels(c.spec, c.job, kindJob, c.at)
	stopTimeout := int(stopTime / time.Second)
	config := &container.Config{
		Image:       c.image.id,
		Entrypoint:  []string{runnerPath, "run", "--job-dir", c.job.JobDir},
		WorkingDir:  "/", // overrides the image's directory, which may be outside the container (CVE-2024-21626)
		OpenStdin:   true,
		StdinOnce:   true, // the input closes after the launch document
		AttachStdin: true,
		Labels:      all,
		StopSignal:  "SIGINT", // an engine that shuts down stops a job in the same way as a cancellation does
		StopTimeout: &stopTimeout,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	// The container's init reaps orphans and passes a signal only to the runner.
	yes := true
	pids := cmp.Or(c.opts.PidsLimit, -1) // -1 means no limit
	host := &container.HostConfig{
		NetworkMode:   container.NetworkMode(network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Init:          &yes,
		SecurityOpt:   []string{"no-new-privileges"},
		CapDrop:       []string{"AUDIT_WRITE", "MKNOD", "NET_RAW"},
		IpcMode:       container.IPCModePrivate,
		// The job's log is in the spool. The engine's copy is only for the agent's own output and
		// must not fill the host's disk. The limit is high because some engines, such as 20.10, end
		// a followed log without an error when they start another log file.
		LogConfig: container.LogConfig{Type: "local", Config: map[string]string{"max-size": "512m", "max-file": "1", "compress": "false"}},
		Mounts:    []mount.Mount{runnerMount(c.spec.Owner, c.runner, true), jobMount(c.job, all)},
		Resources: container.Resources{
			Memory:     c.opts.Memory,
			MemorySwap: c.opts.Memory, // the limit includes swap, so the container cannot exceed it by swapping
			NanoCPUs:   int64(c.opts.CPUs * 1e9),
			PidsLimit:  &pids,
		},
	}
	if c.workspace != "" {
		config.Env = []string{protocol.EnvWorkspace + "=" + workspaceDir}
		host.Mounts = append(host.Mounts, workspaceMount(c.workspace, workspaceLabels(c.spec, c.image, c.at)))
	}
	if c.pulumi.Dir != "" {
		host.Mounts = append(host.Mounts, c.pulumiMount(true))
	}
	return config, host
}

func jobMount(j job, labels map[string]string) mount.Mount {
	if j.Shared != "" {
		return mount.Mount{Type: mount.TypeBind, Source: filepath.Join(j.Shared, sharedJob), Target: j.JobDir}
	}
	return mount.Mount{
		Type: mount.TypeVolume, Source: j.Name, Target: j.JobDir,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: labels},
	}
}

// makeShared creates the job's directory on the host. The permissions of the outer directory
// exclude the host's other users. The engine mounts the inner directory, which every user in a
// container can write to.
func makeShared(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	inner := filepath.Join(dir, sharedJob)
	err := os.Mkdir(inner, 0o700)
	if err == nil {
		err = os.Chmod(inner, 0o777) // regardless of the umask
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// network returns the network mode for a job. A job whose server is on loopback requires the
// network of the agent's host.
func (e *Executor) network(ctx context.Context, engine *client.Client, spec executor.Spec) (string, error) {
	if !spec.Loopback {
		return e.opts.Network, nil
	}
	refuse := func(why string) (string, error) {
		return "", failure(workflow.ReasonLaunch, "The server's URL is on loopback, which the job's container cannot reach: "+why+
			". Set the server's --external-url to a URL that containers can reach", nil)
	}
	if spec.LoopbackOK && e.opts.ServerAddress != "" {
		return e.opts.Network, nil
	}
	switch {
	case !spec.LoopbackOK && e.opts.Network != "host":
		// The server chooses the URL, so the URL alone must not permit access to the host's
		// network.
		return refuse("and the agent's service_url is not on loopback, so the job gets the host's network only if docker_network is host")
	case e.opts.Network != "" && e.opts.Network != "host":
		return refuse("docker_network is set to " + e.opts.Network)
	case runtime.GOOS != "linux":
		return refuse("on " + runtime.GOOS + " containers run in a virtual machine")
	case !local(engine):
		return refuse("the Docker Engine is on another host")
	}
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", failure(workflow.ReasonLaunch, "Reading the host of the Docker Engine failed", err)
	}
	host, err := os.Hostname()
	switch {
	case err != nil:
		return refuse("the agent's host has no name to compare with the engine's")
	case info.Info.Name != host:
		return refuse(fmt.Sprintf("the Docker Engine runs on %q and the agent on %q", info.Info.Name, host))
	case slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") }):
		return refuse("a rootless Docker Engine has its own network")
	}
	return "host", nil
}

// lost reports whether the engine became unavailable during a call that returned err.
func (e *Executor) lost(ctx context.Context, engine *client.Client, err error) bool {
	if answered(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	if _, pingErr := engine.Ping(ctx, client.PingOptions{}); pingErr == nil && !broken(err) {
		return false
	}
	e.forget(engine)
	return true
}

// broken reports whether the connection broke during a call, even if the engine is available again.
func broken(err error) bool {
	var network *net.OpError
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

// await waits until an engine can run jobs.
func (e *Executor) await(ctx context.Context) error {
	always := func(error) bool { return true }
	return retry.Policy{First: time.Second, Max: time.Second}.Do(ctx, always, func() error { return e.Check(ctx) })
}

// discardUnstarted removes the objects that a job left when the engine became unavailable, unless
// the job was started.
func (e *Executor) discardUnstarted(ctx context.Context, spec executor.Spec) error {
	engine, err := e.engine()
	if err != nil {
		return err
	}
	j := e.newJob(spec)
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	switch {
	case err != nil && !errdefs.IsNotFound(err):
		return err
	case err == nil && found.Container.State.Status != container.StateCreated:
		return nil // the next attempt reports the existing container
	}
	return e.discard(ctx, engine, j)
}
