package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
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
	"workflowagent/internal/workflow"
)

// Prepare gets the image and creates the job's container. If the engine disappears meanwhile,
// as during its update, Prepare waits for it and retries: nothing of the job has run.
func (e *Executor) Prepare(ctx context.Context, spec executor.Spec, progress func(line string)) (executor.Handle, error) {
	if spec.OS != "" && spec.OS != "linux" {
		return executor.Handle{}, failure(workflow.ReasonLaunch, fmt.Sprintf("This job asks for %s, and the agent runs jobs in Linux containers", spec.OS), nil)
	}
	patient, cancel := context.WithTimeout(ctx, enginePatience)
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
		e.opts.Log.WithError(err).WithField("job_id", spec.JobID).Warn("The Docker Engine went away while it prepared a job; waiting for it")
		progress("The Docker Engine does not answer; waiting for it")
		if err := e.await(patient); err != nil {
			if ctx.Err() != nil {
				return executor.Handle{}, ctx.Err()
			}
			return executor.Handle{}, failure(workflow.ReasonLaunch, fmt.Sprintf("The Docker Engine went away while it prepared the job and was not back within %s; nothing of the job was run", enginePatience), nil)
		}
		if err := e.discardUnstarted(ctx, spec); err != nil {
			return executor.Handle{}, failure(workflow.ReasonLaunch, "What was left of the job when the Docker Engine went away could not be removed", err)
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
	if err := ctx.Err(); err != nil {
		return executor.Handle{}, err
	}
	j := job{Name: executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch), JobDir: dir, Engine: engine.DaemonHost()}
	created := time.Now()
	if err := e.create(ctx, engine, spec, &j, img, runner, network, created); err != nil {
		return executor.Handle{}, err
	}
	progress("Created the container " + j.Name + " from image " + img.ref)
	return j.handle(spec.JobID, spec.Epoch, created)
}

func (e *Executor) create(ctx context.Context, engine *client.Client, spec executor.Spec, j *job, img image, runner runnerFile, network string, now time.Time) (err error) {
	if e.opts.SharedVolumeDirectory != "" {
		j.Shared = filepath.Join(e.opts.SharedVolumeDirectory, j.Name)
		if err := makeShared(j.Shared); err != nil {
			return failure(workflow.ReasonLaunch, "The job's directory could not be made in shared_volume_directory", err)
		}
	}
	config, host := e.container(spec, *j, img, runner, network, now)
	// An abandoned call could still succeed in the engine after the cleanup.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer cancel()
	_, err = engine.ContainerCreate(bounded, client.ContainerCreateOptions{Name: j.Name, Config: config, HostConfig: host})
	if err != nil {
		reason, what := workflow.ReasonLaunch, "The container could not be created"
		switch {
		case errdefs.IsConflict(err):
			what = "The job has a container already" // of an earlier Prepare: keep it
			return failure(reason, what, err)
		case errdefs.IsNotFound(err) && strings.Contains(err.Error(), "image"):
			reason, what = workflow.ReasonImage, "The image "+img.ref+" is not usable"
		}
		return errors.Join(failure(reason, what, err), e.discard(ctx, engine, *j))
	}
	if err := e.ensureRunner(ctx, engine, spec, *j, img, runner); err != nil {
		return errors.Join(failure(workflow.ReasonLaunch, "The runner could not be put into the container", err), e.discard(ctx, engine, *j))
	}
	if err := e.checkPlatform(ctx, engine, spec, *j, img, runner); err != nil {
		return errors.Join(err, e.discard(ctx, engine, *j))
	}
	if err := e.giveToUser(ctx, engine, *j, img); err != nil {
		return errors.Join(failure(workflow.ReasonLaunch, "The job's directory could not be given to the image's user "+img.user, err), e.discard(ctx, engine, *j))
	}
	return nil
}

func (e *Executor) discard(ctx context.Context, engine *client.Client, j job) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
	defer cancel()
	return e.remove(ctx, engine, j)
}

// container describes the job's container. Every client of the engine can read the description.
func (e *Executor) container(spec executor.Spec, j job, img image, runner runnerFile, network string, now time.Time) (*container.Config, *container.HostConfig) {
	all := labels(spec, j, kindJob, now)
	stopTimeout := int(e.opts.PatienceStop / time.Second)
	config := &container.Config{
		Image:       img.id,
		Entrypoint:  []string{runnerPath, "run", "--job-dir", j.JobDir},
		WorkingDir:  "/", // not the image's, which may lead out of the container (CVE-2024-21626)
		OpenStdin:   true,
		StdinOnce:   true, // closed after the launch document
		AttachStdin: true,
		Labels:      all,
		StopSignal:  "SIGINT", // an engine that shuts down stops a job as a cancellation does
		StopTimeout: &stopTimeout,
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	// An init reaps the job's orphans and passes a signal to the runner alone.
	yes := true
	pids := max(e.opts.PidsLimit, -1)
	host := &container.HostConfig{
		NetworkMode:   container.NetworkMode(network),
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Init:          &yes,
		SecurityOpt:   []string{"no-new-privileges"},
		CapDrop:       []string{"AUDIT_WRITE", "MKNOD", "NET_RAW"},
		IpcMode:       container.IPCModePrivate,
		// The job's log is its spool. The engine's copy serves the agent's own output and must
		// not fill the host's disk. The limit is high because an engine (20.10 does) ends a
		// followed log, without an error, when it begins another file.
		LogConfig: container.LogConfig{Type: "local", Config: map[string]string{"max-size": "512m", "max-file": "1", "compress": "false"}},
		Mounts:    []mount.Mount{runnerMount(spec.Owner, runner, true), jobMount(j, all)},
		Resources: container.Resources{
			Memory:     e.opts.Memory,
			MemorySwap: e.opts.Memory, // includes swap, so that the limit is strict
			NanoCPUs:   int64(e.opts.CPUs * 1e9),
			PidsLimit:  &pids,
		},
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

// makeShared makes the job's directory on the host. The parent's permissions keep other users
// of the host out. The engine mounts the inner directory, which the container's user, whatever
// its number, can write to.
func makeShared(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	inner := filepath.Join(dir, sharedJob)
	if err := os.Mkdir(inner, 0o700); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Chmod(inner, 0o777); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// network returns the network mode. A server on loopback needs the network of the agent's host.
func (e *Executor) network(ctx context.Context, engine *client.Client, spec executor.Spec) (string, error) {
	if !spec.Loopback {
		return e.opts.Network, nil
	}
	refuse := func(why string) (string, error) {
		return "", failure(workflow.ReasonLaunch, "The server's URL is on loopback, which the job's container cannot reach: "+why+
			". Give the server an --external-url that is valid in containers too", nil)
	}
	switch {
	case !spec.LoopbackOK && e.opts.Network != "host":
		// The server chooses the URL, so it must not open the host's network.
		return refuse("and the agent's service_url is not on loopback, so that the job does not get the host's network unless docker_network is host")
	case e.opts.Network != "" && e.opts.Network != "host":
		return refuse("docker_network is set to " + e.opts.Network)
	case runtime.GOOS != "linux":
		return refuse("on " + runtime.GOOS + " containers run in a virtual machine")
	case !local(engine):
		return refuse("the Docker Engine is on another host")
	}
	info, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return "", failure(workflow.ReasonLaunch, "The Docker Engine could not be asked where it runs", err)
	}
	host, err := os.Hostname()
	switch {
	case err != nil:
		return refuse("the agent's host has no name to compare with the engine's")
	case info.Info.Name != host:
		return refuse(fmt.Sprintf("the Docker Engine runs on %q and the agent on %q", info.Info.Name, host))
	case slices.ContainsFunc(info.Info.SecurityOptions, func(o string) bool { return strings.Contains(o, "rootless") }):
		return refuse("a rootless Docker Engine has a network of its own")
	}
	return "host", nil
}

func (j job) parent() (dir, name string) {
	return path.Dir(j.JobDir), path.Base(j.JobDir)
}
