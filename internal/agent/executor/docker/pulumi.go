package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

const (
	pulumiDir = "/mnt/pulumi/cli" // read-only
	// pulumiWhole is the last file that enters a volume with a release of pulumi.
	pulumiWhole = ".complete"
)

// bringPulumi returns the release of pulumi for a job in an image of arch, if the job has one.
func bringPulumi(ctx context.Context, spec executor.Spec, arch string) (executor.Pulumi, error) {
	if spec.Pulumi == nil {
		return executor.Pulumi{}, nil
	}
	return spec.Pulumi(ctx, "linux", arch)
}

// pulumiVolume returns the name of the volume with the job's release of pulumi. Only this agent writes to
// the volume, which all jobs with the same release share.
func (c *creation) pulumiVolume() string {
	return pulumiVolume(c.spec.Owner, filepath.Base(c.pulumi.Dir))
}

func pulumiVolume(owner, release string) string {
	return "workflow-pulumi-" + executor.Digest(owner)[:8] + "-" + release
}

func (c *creation) pulumiMount(readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: c.pulumiVolume(), Target: pulumiDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: map[string]string{labelOwner: c.spec.Owner, labelKind: kindPulumi}},
	}
}

// ensurePulumi fills the volume with the job's release of pulumi if it is incomplete.
func (c *creation) ensurePulumi(ctx context.Context) error {
	if c.pulumi.Dir == "" {
		return nil
	}
	c.filling.Lock()
	defer c.filling.Unlock()
	_, err := c.engine.ContainerStatPath(ctx, c.job.Name, client.ContainerStatPathOptions{Path: pulumiDir + "/" + pulumiWhole})
	if err == nil {
		return nil
	}
	if !errdefs.IsNotFound(err) {
		return failure(workflow.ReasonLaunch, "The agent could not check its copy of pulumi on the engine", err)
	}
	if err := c.fillPulumi(ctx); err != nil {
		return failure(workflow.ReasonLaunch, fmt.Sprintf("The agent could not copy pulumi %s to the engine", c.pulumi.Version), err)
	}
	c.prunePulumi(ctx)
	return nil
}

// fillPulumi copies a release into its volume.
func (c *creation) fillPulumi(ctx context.Context) error {
	content, archive := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = archive.CloseWithError(writeRelease(archive, c.pulumi.Dir)) // never fails
	}()
	err := c.fillVolume(ctx, c.pulumiMount(false), content)
	_ = content.Close() // ends writeRelease
	<-written
	return err
}

// writeRelease writes the programs of a release as an archive, and then the file pulumiWhole.
func writeRelease(to io.Writer, dir string) error {
	w := tar.NewWriter(to)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := writeProgram(w, filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pulumiWhole, Mode: 0o444, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	return w.Close()
}

func writeProgram(w *tar.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(path), Mode: 0o555, Size: info.Size(), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}

// prunePulumi removes the volumes of releases that the agent no longer keeps. The engine keeps those that
// are in use.
func (c *creation) prunePulumi(ctx context.Context) {
	kept := map[string]bool{}
	entries, err := os.ReadDir(filepath.Dir(c.pulumi.Dir))
	for _, entry := range entries {
		kept[pulumiVolume(c.spec.Owner, entry.Name())] = true
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = removeVolumes(ctx, c.engine, func(name string) bool { return !kept[name] }, labelOwner+"="+c.spec.Owner, labelKind+"="+kindPulumi)
	}
	if err != nil {
		c.opts.Log.WithError(err).Debug("removing volumes of unused releases of pulumi failed")
	}
}
