package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"github.com/moby/sys/user"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

type runnerFile struct {
	path   string
	size   int64
	arch   string
	volume string // name of the volume that contains the file
}

// findRunner returns the runner for arch, including the name of its volume. Only this agent writes
// to that volume.
func (e *Executor) findRunner(owner, arch string) (runnerFile, error) {
	path, err := executor.FindEmbeddable(e.opts.WorkingDirectory, arch)
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

// ensureRunner fills the runner's volume if the runner in the job's container is missing or
// incomplete.
func (c *creation) ensureRunner(ctx context.Context) error {
	c.filling.Lock()
	defer c.filling.Unlock()
	r := c.runner
	stat, err := c.engine.ContainerStatPath(ctx, c.job.Name, client.ContainerStatPathOptions{Path: runnerPath})
	switch {
	case err != nil && !errdefs.IsNotFound(err):
		return fmt.Errorf("finding the runner on the engine: %w", err)
	case err != nil || stat.Stat.Size != r.size || !stat.Stat.Mode.IsRegular():
		if err := c.fill(ctx); err != nil {
			return fmt.Errorf("copying the runner to the engine: %w", err)
		}
	}
	// The engine keeps volumes of earlier runners that are still in use.
	err = removeVolumes(ctx, c.engine, func(name string) bool { return name != r.volume }, labelOwner+"="+c.spec.Owner, labelKind+"="+kindRunner, labelArch+"="+r.arch)
	if err != nil {
		c.opts.Log.WithError(err).Debug("removing volumes of earlier runners failed")
	}
	return nil
}

// fill copies the runner into its volume.
func (c *creation) fill(ctx context.Context) error {
	r := c.runner
	file, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer file.Close()
	var header bytes.Buffer
	err = tar.NewWriter(&header).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: executor.RunnerName, Mode: 0o555, Size: r.size, ModTime: time.Unix(0, 0)})
	if err != nil {
		return err
	}
	// A tar archive consists of blocks of 512 bytes and ends with two blocks of zeros.
	end := bytes.NewReader(make([]byte, (512-r.size%512)%512+2*512))
	return c.fillVolume(ctx, runnerMount(c.spec.Owner, r, false), io.MultiReader(&header, io.LimitReader(file, r.size), end))
}

// fillVolume copies an archive into a volume, through a container of the job's image that never starts.
func (c *creation) fillVolume(ctx context.Context, volume mount.Mount, archive io.Reader) (err error) {
	config, host := c.fillContainer(volume)
	created, err := c.engine.ContainerCreate(ctx, client.ContainerCreateOptions{Name: c.job.copier(), Config: config, HostConfig: host})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		err = errors.Join(err, removeContainer(ctx, c.engine, created.ID))
	}()
	_, err = c.engine.CopyToContainer(ctx, created.ID, client.CopyToContainerOptions{DestinationPath: volume.Target, Content: archive})
	return err
}

func (c *creation) fillContainer(volume mount.Mount) (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image: c.image.id, Entrypoint: []string{runnerPath}, WorkingDir: "/", Labels: labels(c.spec, c.job, kindCopy, c.at),
	}
	return config, &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{volume}}
}

// removeVolumes removes the volumes that have all labels and a matching name.
func removeVolumes(ctx context.Context, engine *client.Client, match func(name string) bool, labels ...string) error {
	volumes, err := engine.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", labels...)})
	if err != nil {
		return fmt.Errorf("listing the volumes with runners: %w", err)
	}
	var errs []error
	for _, v := range volumes.Items {
		if !match(v.Name) {
			continue
		}
		if _, err := engine.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("removing the volume %s: %w", v.Name, err))
		}
	}
	return errors.Join(errs...)
}

// checkPlatform returns an error if the engine's host can neither run nor emulate the image's
// architecture, because the job would fail without an explanation. An engine does not report the
// architectures that it emulates, so checkPlatform starts the runner in a container of the image.
func (c *creation) checkPlatform(ctx context.Context) error {
	version, err := c.engine.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return failure(workflow.ReasonLaunch, "The job's image could not be checked", fmt.Errorf("reading the architecture of the Docker Engine: %w", err))
	}
	arch, img := version.Arch, c.image
	if arch == img.arch {
		return nil
	}
	runs, err := c.tryRunner(ctx)
	switch {
	case err != nil:
		return failure(workflow.ReasonLaunch, fmt.Sprintf("The agent could not test whether the engine runs images for linux/%s", img.arch), err)
	case !runs:
		return failure(workflow.ReasonImage, fmt.Sprintf("The image %s is for linux/%s, but the host of the Docker Engine is linux/%s without emulation for it: use an image for linux/%s", img.ref, img.arch, arch, arch), nil)
	}
	return nil
}

// tryRunner reports whether the runner starts, without a job, in a container of the image.
func (c *creation) tryRunner(ctx context.Context) (ok bool, err error) {
	// The call is not canceled with ctx, because an abandoned call could still succeed in the
	// engine after the cleanup.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cleanupTime)
	defer cancel()
	config, host := c.tryContainer()
	created, err := c.engine.ContainerCreate(bounded, client.ContainerCreateOptions{Name: c.job.copier(), Config: config, HostConfig: host})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, removeContainer(bounded, c.engine, created.ID)) }()
	if _, err := c.engine.ContainerStart(bounded, created.ID, client.ContainerStartOptions{}); err != nil {
		if answered(err) {
			return false, nil // some engines detect the mismatch immediately
		}
		return false, err
	}
	if err := waitStopped(bounded, c.engine, created.ID); err != nil {
		return false, err
	}
	found, err := c.engine.ContainerInspect(bounded, created.ID, client.ContainerInspectOptions{})
	if err != nil {
		return false, err
	}
	return found.Container.State.ExitCode == 0, nil
}

func (c *creation) tryContainer() (*container.Config, *container.HostConfig) {
	config := &container.Config{
		Image: c.image.id, Entrypoint: []string{runnerPath, "--help"}, Labels: labels(c.spec, c.job, kindCopy, c.at),
		WorkingDir: "/", // overrides the image's directory, which may be outside the container (CVE-2024-21626)
	}
	host := &container.HostConfig{
		NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		IpcMode: container.IPCModePrivate, LogConfig: container.LogConfig{Type: "none"},
		Mounts: []mount.Mount{runnerMount(c.spec.Owner, c.runner, true)},
	}
	return config, host
}

// maxUserFile bounds the size of an image's user database in bytes.
const maxUserFile = 1 << 20

// giveToUser makes the image's user the owner of the job's directory and of the workspace. Otherwise,
// root would own them, because the engine creates volumes as root.
func (c *creation) giveToUser(ctx context.Context) error {
	var dirs []string
	if c.job.Shared == "" {
		dirs = append(dirs, c.job.JobDir)
	}
	if c.workspace != "" {
		dirs = append(dirs, workspaceDir)
	}
	if len(dirs) == 0 || isRoot(c.image.user) {
		return nil
	}
	owner, err := c.imageUser(ctx)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		err := c.put(ctx, path.Dir(dir), &tar.Header{
			Typeflag: tar.TypeDir, Name: path.Base(dir) + "/", Mode: 0o700, Uid: owner.Uid, Gid: owner.Gid,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// imageUser returns the image's user according to the user database in the image.
func (c *creation) imageUser(ctx context.Context) (*user.ExecUser, error) {
	var databases [2]io.Reader // nil if missing
	for i, path := range []string{"/etc/passwd", "/etc/group"} {
		data, err := readFile(ctx, c.engine, c.job.Name, path, maxUserFile)
		switch {
		case err == nil:
			databases[i] = bytes.NewReader(data)
		case !errdefs.IsNotFound(err):
			return nil, err
		}
	}
	return user.GetExecUser(c.image.user, nil, databases[0], databases[1])
}

// linkPulumiEnv makes the path of Pulumi's documentation a link to the job's file. The engine may
// write to the root directory, unlike most users of images.
func (c *creation) linkPulumiEnv(ctx context.Context) error {
	return c.put(ctx, "/", &tar.Header{
		Typeflag: tar.TypeSymlink, Name: path.Base(protocol.FilePulumiEnv), Linkname: path.Join(c.job.JobDir, protocol.FileEnv), Mode: 0o777,
	})
}

// put creates a directory or a link in the job's container.
func (c *creation) put(ctx context.Context, dir string, header *tar.Header) error {
	header.ModTime = time.Now()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(header), w.Close()); err != nil {
		return err
	}
	_, err := c.engine.CopyToContainer(ctx, c.job.Name, client.CopyToContainerOptions{DestinationPath: dir, Content: &archive})
	return err
}

func readFile(ctx context.Context, engine *client.Client, containerName, path string, limit int64) ([]byte, error) {
	copied, err := engine.CopyFromContainer(ctx, containerName, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return nil, err
	}
	defer copied.Content.Close()
	archive := tar.NewReader(copied.Content)
	header, err := archive.Next()
	if err != nil {
		return nil, fmt.Errorf("reading %s in the container: %w", path, err)
	}
	if header.Typeflag != tar.TypeReg || header.Size > limit {
		return nil, fmt.Errorf("reading %s in the container: not a regular file of at most %d bytes", path, limit)
	}
	return io.ReadAll(archive)
}
