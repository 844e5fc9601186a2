package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// checkPlatform refuses an image whose architecture the engine's host neither has nor emulates:
// the job would end with an exit code that explains nothing. An engine does not report what it
// emulates, so checkPlatform tries the image's runner.
func (e *Executor) checkPlatform(ctx context.Context, engine *client.Client, spec executor.Spec, j job, img image, r runnerFile) error {
	version, err := engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return failure(workflow.ReasonLaunch, "The job's image could not be checked", fmt.Errorf("asking the Docker Engine for its architecture: %w", err))
	}
	arch := version.Arch
	if arch == img.arch {
		return nil
	}
	runs, err := e.tryRunner(ctx, engine, spec, j, img, r)
	switch {
	case err != nil:
		return failure(workflow.ReasonLaunch, fmt.Sprintf("Whether the engine runs images for linux/%s could not be tried", img.arch), err)
	case !runs:
		return failure(workflow.ReasonImage, fmt.Sprintf("The image %s is for linux/%s, and the host of the Docker Engine is linux/%s without emulation of that: use an image for linux/%s", img.ref, img.arch, arch, arch), nil)
	}
	return nil
}

// tryRunner reports whether the runner starts in a container of the image, without a job.
func (e *Executor) tryRunner(ctx context.Context, engine *client.Client, spec executor.Spec, j job, img image, r runnerFile) (ok bool, err error) {
	// An abandoned call could still succeed in the engine after the cleanup.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cleanupPatience)
	defer cancel()
	config, host := tryContainer(spec, j, img, r, time.Now())
	created, err := engine.ContainerCreate(bounded, client.ContainerCreateOptions{Name: j.copier(), Config: config, HostConfig: host})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, removeContainer(bounded, engine, created.ID)) }()
	if _, err := engine.ContainerStart(bounded, created.ID, client.ContainerStartOptions{}); err != nil {
		if answered(err) {
			return false, nil // some engines detect the mismatch at once
		}
		return false, err
	}
	if err := waitStopped(bounded, engine, created.ID); err != nil {
		return false, err
	}
	found, err := engine.ContainerInspect(bounded, created.ID, client.ContainerInspectOptions{})
	if err != nil {
		return false, err
	}
	return found.Container.State.ExitCode == 0, nil
}

func tryContainer(spec executor.Spec, j job, img image, r runnerFile, now time.Time) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image: img.id, Entrypoint: []string{runnerPath, "--help"}, Labels: labels(spec, j, kindCopy, now),
		WorkingDir: "/", // not the image's, which may lead out of the container (CVE-2024-21626)
	}
	host := &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		IpcMode: container.IPCModePrivate, LogConfig: container.LogConfig{Type: "none"},
		Mounts: []mount.Mount{runnerMount(spec.Owner, r, true)},
	}
	return config, host
}
