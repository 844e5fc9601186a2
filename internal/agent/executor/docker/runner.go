package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

type runnerFile struct {
	path   string
	size   int64
	arch   string
	volume string // the volume that holds it
}

// findRunner returns the runner for arch and its volume, which only this agent fills.
func (e *Executor) findRunner(owner, arch string) (runnerFile, error) {
	path, err := executor.FindEmbeddable(e.opts.RunnerDir, arch)
	if err != nil {
		return runnerFile{}, failure(workflow.ReasonLaunch, "The job cannot run here: "+err.Error(), nil)
	}
	sum, size, err := digest(path)
	if err != nil {
		return runnerFile{}, failure(workflow.ReasonLaunch, "The runner cannot be read on the agent's host", err)
	}
	return runnerFile{path: path, size: size, arch: arch, volume: "workflow-runner-" + executor.Digest(owner)[:8] + "-" + sum[:16]}, nil
}

func digest(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	hash := sha256.New()
	if size, err = io.Copy(hash, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

func runnerMount(owner string, r runnerFile, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: r.volume, Target: runnerDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelOwner: owner, labelKind: kindRunner, labelArch: r.arch}},
	}
}

// ensureRunner fills the runner's volume if the job's container shows it missing or incomplete.
func (e *Executor) ensureRunner(ctx context.Context, engine *client.Client, spec executor.Spec, j job, img image, r runnerFile) error {
	e.filling.Lock()
	defer e.filling.Unlock()
	ok, err := runnerThere(ctx, engine, j.Name, r)
	if err != nil {
		return err
	}
	if !ok {
		if err := e.fill(ctx, engine, spec, j, img, r); err != nil {
			return fmt.Errorf("copying the runner to the engine: %w", err)
		}
		if ok, err = runnerThere(ctx, engine, j.Name, r); err != nil {
			return err
		}
		if !ok {
			return errors.New("copying the runner to the engine: it is not there afterwards")
		}
	}
	e.dropOldRunners(ctx, engine, spec.Owner, r)
	return nil
}

func runnerThere(ctx context.Context, engine *client.Client, containerName string, r runnerFile) (bool, error) {
	stat, err := engine.ContainerStatPath(ctx, containerName, client.ContainerStatPathOptions{Path: runnerPath})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the runner on the engine: %w", err)
	}
	return stat.Stat.Size == r.size && stat.Stat.Mode.IsRegular(), nil
}

// fill copies the runner through a container of the job's image that never starts.
func (e *Executor) fill(ctx context.Context, engine *client.Client, spec executor.Spec, j job, img image, r runnerFile) (err error) {
	config, host := fillContainer(spec, j, img, r, time.Now())
	created, err := engine.ContainerCreate(ctx, client.ContainerCreateOptions{Name: j.copier(), Config: config, HostConfig: host})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		err = errors.Join(err, removeContainer(ctx, engine, created.ID))
	}()
	file, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader, writer := io.Pipe()
	packed := make(chan struct{})
	go func() {
		defer close(packed)
		writer.CloseWithError(pack(writer, file, r.size))
	}()
	_, err = engine.CopyToContainer(ctx, created.ID, client.CopyToContainerOptions{DestinationPath: runnerDir, Content: reader})
	_ = reader.CloseWithError(io.ErrClosedPipe) // ends the packing if the engine did not read it all
	<-packed
	return err
}

func fillContainer(spec executor.Spec, j job, img image, r runnerFile, now time.Time) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image: img.id, Entrypoint: []string{runnerPath}, WorkingDir: "/", Labels: labels(spec, j, kindCopy, now),
	}
	return config, &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{runnerMount(spec.Owner, r, false)}}
}

func pack(w io.Writer, file io.Reader, size int64) error {
	archive := tar.NewWriter(w)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: executor.RunnerName, Mode: 0o555, Size: size, ModTime: time.Unix(0, 0)}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.CopyN(archive, file, size); err != nil {
		return err
	}
	return archive.Close()
}

// dropOldRunners removes earlier runners' volumes. The engine refuses those in use.
func (e *Executor) dropOldRunners(ctx context.Context, engine *client.Client, owner string, current runnerFile) {
	filters := client.Filters{}.Add("label", labelOwner+"="+owner).Add("label", labelKind+"="+kindRunner).Add("label", labelArch+"="+current.arch)
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{Filters: filters})
	if err != nil {
		e.opts.Log.WithError(err).Debug("Old runner volumes could not be listed")
		return
	}
	for _, v := range volumes.Items {
		if v.Name == current.volume {
			continue
		}
		_, err := engine.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{})
		if err == nil {
			e.opts.Log.WithField("volume", v.Name).Debug("The volume of an older runner was removed")
		}
	}
}
