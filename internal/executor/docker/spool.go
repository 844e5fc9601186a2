package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"workflowagent/internal/executor"
)

// What a spool may hold: it is written by the job, and copied to the agent's disk.
const (
	maxSpoolBytes = 8 << 30
	maxSpoolFiles = 100_000
)

// CopySpool reads the log spool by the engine's archive API.
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

func copySpool(ctx context.Context, engine *client.Client, j job, dst string) error {
	if err := os.MkdirAll(dst, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dst)
	if err != nil {
		return err
	}
	defer root.Close()
	copied, err := engine.CopyFromContainer(ctx, j.Name, client.CopyFromContainerOptions{SourcePath: path.Join(j.JobDir, executor.DirSpool)})
	if errdefs.IsNotFound(err) {
		// No spool, or no container?
		_, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		return err
	}
	if err != nil {
		return err
	}
	defer copied.Content.Close()
	return extract(copied.Content, root)
}

// extract writes the regular files of an archive's spool directory to root.
// Whatever else the archive holds is left out; nothing in
// it leads out of root.
func extract(r io.Reader, root *os.Root) error {
	archive := tar.NewReader(r)
	var bytes int64
	for files := 0; ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, inSpool := strings.CutPrefix(path.Clean(header.Name), executor.DirSpool+"/")
		name = filepath.FromSlash(name)
		if header.Typeflag != tar.TypeReg || !inSpool || !filepath.IsLocal(name) {
			continue
		}
		files++
		bytes += header.Size
		if files > maxSpoolFiles || bytes > maxSpoolBytes {
			return fmt.Errorf("it is larger than %d files or %d bytes", maxSpoolFiles, int64(maxSpoolBytes))
		}
		if err := extractFile(archive, root, name); err != nil {
			return err
		}
	}
}

func extractFile(r io.Reader, root *os.Root, name string) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
