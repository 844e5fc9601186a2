package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"workflowagent/internal/protocol"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
)

// CopySpool reads the log spool through the engine's archive API.
func (e *Executor) CopySpool(ctx context.Context, h executor.Handle, dst string) error {
	j, err := e.open(h)
	if err != nil {
		return err
	}
	engine, err := e.engine()
	if err != nil {
		return err
	}
	if err := copySpool(ctx, engine, j, dst); err != nil {
		return fmt.Errorf("copying the log spool of job %s: %w", h.JobID, err)
	}
	return nil
}

func copySpool(ctx context.Context, engine *client.Client, j job, dst string) (err error) {
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	copied, err := engine.CopyFromContainer(ctx, j.Name, client.CopyFromContainerOptions{SourcePath: path.Join(j.JobDir, protocol.DirSpool)})
	if errdefs.IsNotFound(err) {
		// Tell a missing spool from a missing container.
		_, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		return err
	}
	if err != nil {
		return err
	}
	defer copied.Content.Close()
	return extract(copied.Content, to)
}

func extract(r io.Reader, to *executor.SpoolCopy) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, inSpool := strings.CutPrefix(path.Clean(header.Name), protocol.DirSpool+"/")
		if header.Typeflag != tar.TypeReg || !inSpool {
			continue
		}
		if err := to.Add(name, header.Size, archive); err != nil {
			return err
		}
	}
}
