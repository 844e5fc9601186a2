package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
)

// Output returns a stream that follows the engine's copy of the runner's output. That copy can be
// incomplete. The engine keeps 512 MiB, older engines end the stream at that size without an error,
// and an engine restart ends the stream with an error. The complete log is in the spool.
func (e *Executor) Output(ctx context.Context, h executor.Handle) (io.ReadCloser, error) {
	j, engine, err := e.open(h)
	if err != nil {
		return nil, err
	}
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	if err != nil {
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	if found.Container.State.Status == container.StateCreated {
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, executor.ErrNotStarted)
	}
	ctx, cancel := context.WithCancel(ctx)
	logs, err := engine.ContainerLogs(ctx, j.Name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("following the output of job %s: %w", h.JobID, err)
	}
	reader, writer := io.Pipe()
	f := &follower{PipeReader: reader, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer logs.Close()
		followed, err := stdcopy.StdCopy(writer, writer, logs)
		if err == nil {
			err = copyRest(ctx, engine, j, followed, writer)
		}
		writer.CloseWithError(err) // if err is nil, the reader receives io.EOF
	}()
	return f, nil
}

// copyRest writes the stored output after the first followed bytes to dst. When the container
// exits, an engine ends a followed stream; under load, it does so before it has sent all the
// output.
func copyRest(ctx context.Context, engine *client.Client, j job, followed int64, dst io.Writer) error {
	if err := waitStopped(ctx, engine, j.Name); err != nil {
		return ignoreGone(err)
	}
	logs, err := engine.ContainerLogs(ctx, j.Name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return ignoreGone(err)
	}
	defer logs.Close()
	after := &skipper{dst: dst, skip: followed}
	_, err = stdcopy.StdCopy(after, after, logs)
	return err
}

func ignoreGone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

type skipper struct {
	dst  io.Writer
	skip int64
}

func (s *skipper) Write(p []byte) (int, error) {
	dropped := min(s.skip, int64(len(p)))
	s.skip -= dropped
	if dropped == int64(len(p)) {
		return len(p), nil
	}
	n, err := s.dst.Write(p[dropped:])
	return n + int(dropped), err
}

type follower struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

// Close closes the stream and waits for the goroutine that reads it.
func (f *follower) Close() error {
	f.cancel()
	err := f.PipeReader.Close()
	<-f.done
	return err
}

// Stop sends a signal to the container's init. The init passes an interrupt only to the runner, and
// killing the init kills every process in the container.
func (e *Executor) Stop(ctx context.Context, h executor.Handle, how executor.Stop) error {
	j, engine, err := e.open(h)
	if err != nil {
		return err
	}
	signal := "SIGINT"
	if how == executor.StopKill {
		signal = "SIGKILL"
	}
	_, err = engine.ContainerKill(ctx, j.Name, client.ContainerKillOptions{Signal: signal})
	switch {
	case err == nil || errdefs.IsNotFound(err):
		return nil
	case !errdefs.IsConflict(err):
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	}
	// The container is not running: either it has never been started, or it has exited.
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("stopping job %s: %w", h.JobID, err)
	case found.Container.State.Status == container.StateCreated:
		return fmt.Errorf("stopping job %s: %w", h.JobID, executor.ErrNotStarted)
	}
	return nil
}

// CopySpool copies the job's log spool through the engine's archive API.
func (e *Executor) CopySpool(ctx context.Context, h executor.Handle, dst string) (err error) {
	j, engine, err := e.open(h)
	if err != nil {
		return err
	}
	defer executor.Explain(&err, "copying the log spool of", h)
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	copied, err := engine.CopyFromContainer(ctx, j.Name, client.CopyFromContainerOptions{SourcePath: path.Join(j.JobDir, protocol.DirSpool)})
	if errdefs.IsNotFound(err) {
		// A missing spool is not an error; a missing container is.
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
			// A job can make any number of directories and links.
			if err := to.Skip(); err != nil {
				return err
			}
			continue
		}
		if err := to.Add(name, header.Size, archive); err != nil {
			return err
		}
	}
}
