package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
)

// sharedJob is the subdirectory of a job's shared directory that the container mounts.
const sharedJob = "job"

// Remove removes the container with all of its processes, and the job's volume.
func (e *Executor) Remove(ctx context.Context, h executor.Handle) error {
	j, engine, err := e.open(h)
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
		return fmt.Errorf("%w: the agent's user is not permitted to remove files of the container's user; run both as the same user, or leave shared_volume_directory unset", err)
	}
	return err
}

func removeContainer(ctx context.Context, engine *client.Client, name string) error {
	return untilGone(ctx, func() error {
		_, err := engine.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		return err
	})
}

// removeVolume removes a volume. It retries, because the engine releases the volume only shortly
// after the removal of the container.
func removeVolume(ctx context.Context, engine *client.Client, name string) error {
	return untilGone(ctx, func() error {
		_, err := engine.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
		return err
	})
}

// untilGone repeats remove for a limited time while the engine reports a conflict.
func untilGone(ctx context.Context, remove func() error) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	return ignoreGone(retry.Policy{First: 100 * time.Millisecond, Max: time.Second}.Do(ctx, errdefs.IsConflict, remove))
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
	shared, err := e.listShared(owner)
	if err != nil {
		return nil, err
	}
	found := map[string]listed{}
	for _, l := range shared {
		found[l.Name] = l
	}
	for _, v := range volumes.Items {
		if l := readLabels(v.Labels); l.names(owner, v.Name) {
			found[l.Name] = l
		}
	}
	for _, c := range containers.Items {
		if l := readLabels(c.Labels); l.names(owner, containerNames(c.Names)...) {
			found[l.Name] = l
		}
	}
	var out []executor.Handle
	for _, l := range found {
		l.Engine = engine.DaemonHost()
		h, err := executor.NewHandle(Name, l.id, l.epoch, l.created, l.job)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

type listed struct {
	job
	id      string
	epoch   int64
	created time.Time
}

// readLabels decodes the labels that [labels] wrote. An invalid time becomes the zero time, which
// always permits removal.
func readLabels(labels map[string]string) listed {
	l := listed{job: job{Name: labels[labelName], JobDir: labels[labelJobDir], Shared: labels[labelShared]}, id: labels[labelJob]}
	l.epoch, _ = strconv.ParseInt(labels[labelEpoch], 10, 64)
	l.created, _ = time.Parse(time.RFC3339, labels[labelCreated])
	return l
}

// names reports whether the labels name a job of owner, and are those of an object with one of the
// names. Labels can be copies: an image made of a job's container passes them on to its containers.
func (l listed) names(owner string, names ...string) bool {
	return l.Name == executor.ObjectName(owner, l.id, l.epoch) && (slices.Contains(names, l.Name) || slices.Contains(names, l.copier()))
}

// containerNames returns the names of a container without the slash that the engine adds.
func containerNames(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, strings.TrimPrefix(name, "/"))
	}
	return out
}

func (e *Executor) listShared(owner string) ([]listed, error) {
	if e.opts.SharedVolumeDirectory == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(e.opts.SharedVolumeDirectory)
	if err != nil {
		return nil, fmt.Errorf("listing shared_volume_directory: %w", err)
	}
	var out []listed
	for _, entry := range entries {
		id, epoch, ours := executor.ParseObjectName(owner, entry.Name())
		info, err := entry.Info()
		if !ours || err != nil || !entry.IsDir() {
			continue
		}
		shared := filepath.Join(e.opts.SharedVolumeDirectory, entry.Name())
		out = append(out, listed{job{Name: entry.Name(), JobDir: defaultJobDir, Shared: shared}, id, epoch, info.ModTime()})
	}
	return out, nil
}
