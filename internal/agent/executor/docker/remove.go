package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
)

// sharedJob is the directory in a job's shared directory that the container mounts.
const sharedJob = "job"

// Remove removes the container with all its processes, and its volume.
func (e *Executor) Remove(ctx context.Context, h executor.Handle) error {
	j, err := e.open(h)
	if err != nil {
		return err
	}
	engine, err := e.engine()
	if err != nil {
		return err
	}
	if err := e.remove(ctx, engine, j); err != nil {
		return fmt.Errorf("removing job %s: %w", h.JobID, err)
	}
	return nil
}

func (e *Executor) remove(ctx context.Context, engine *client.Client, j job) error {
	for _, name := range []string{j.Name, j.copier()} {
		if err := removeContainer(ctx, engine, name); err != nil {
			return err
		}
	}
	if j.Shared == "" {
		return removeVolume(ctx, engine, j.Name)
	}
	base := e.opts.SharedVolumeDirectory
	if filepath.Join(base, j.Name) != filepath.Clean(j.Shared) {
		return fmt.Errorf("the job's directory %s is not in shared_volume_directory %q", j.Shared, base)
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return err
	}
	defer root.Close()
	err = root.RemoveAll(j.Name)
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the container's user left files that the agent's user may not remove; run both as the same user, or leave shared_volume_directory unset", err)
	}
	return err
}

func removeContainer(ctx context.Context, engine *client.Client, name string) error {
	return untilGone(ctx, func() error {
		_, err := engine.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return err
	})
}

// removeVolume removes a volume. The engine releases it a moment after its container.
func removeVolume(ctx context.Context, engine *client.Client, name string) error {
	return untilGone(ctx, func() error {
		_, err := engine.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
		return err
	})
}

// untilGone repeats remove for a limited time while the engine reports a conflict.
func untilGone(ctx context.Context, remove func() error) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupPatience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := remove()
		switch {
		case err == nil || errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return err
		}
	}
}

// List returns the jobs of owner that have a container, a volume or a shared directory.
func (e *Executor) List(ctx context.Context, owner string) ([]executor.Handle, error) {
	engine, err := e.engine()
	if err != nil {
		return nil, err
	}
	filters := client.Filters{}.Add("label", labelOwner+"="+owner)
	containers, err := engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{Filters: filters})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	found := &found{engine: engine.DaemonHost(), seen: map[string]bool{}}
	for _, c := range containers.Items {
		found.add(c.Labels)
	}
	for _, v := range volumes.Items {
		found.add(v.Labels)
	}
	if err := e.addShared(found, owner); err != nil {
		return nil, err
	}
	return found.handles, found.err
}

type found struct {
	engine  string
	seen    map[string]bool
	handles []executor.Handle
	err     error
}

func (f *found) add(labels map[string]string) {
	name := labels[labelName]
	epoch, err := strconv.ParseInt(labels[labelEpoch], 10, 64)
	if err != nil || !executor.IsObjectName(name) {
		return // a runner's volume, or not this agent's
	}
	created, err := time.Parse(time.RFC3339, labels[labelCreated])
	if err != nil {
		created = time.Time{} // old enough for the janitor
	}
	f.addJob(job{Name: name, JobDir: labels[labelJobDir], Shared: labels[labelShared], Engine: f.engine}, labels[labelJob], epoch, created)
}

func (f *found) addJob(j job, jobID string, epoch int64, created time.Time) {
	if f.seen[j.Name] {
		return
	}
	f.seen[j.Name] = true
	h, err := j.handle(jobID, epoch, created)
	f.err = errors.Join(f.err, err)
	f.handles = append(f.handles, h)
}

func (e *Executor) addShared(f *found, owner string) error {
	if e.opts.SharedVolumeDirectory == "" {
		return nil
	}
	entries, err := os.ReadDir(e.opts.SharedVolumeDirectory)
	if err != nil {
		return fmt.Errorf("listing shared_volume_directory: %w", err)
	}
	for _, entry := range entries {
		jobID, epoch, ours := executor.ParseObjectName(owner, entry.Name())
		info, err := entry.Info()
		if !ours || err != nil || !entry.IsDir() {
			continue
		}
		shared := filepath.Join(e.opts.SharedVolumeDirectory, entry.Name())
		f.addJob(job{Name: entry.Name(), JobDir: defaultJobDir, Shared: shared, Engine: f.engine}, jobID, epoch, info.ModTime())
	}
	return nil
}
