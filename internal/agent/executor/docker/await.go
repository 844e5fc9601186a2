package docker

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/retry"
)

const (
	// enginePatience is how long a job that did not start waits for its engine.
	enginePatience = 10 * time.Minute
	// maxLosses is how many times an engine may disappear while it prepares one job.
	maxLosses  = 5
	awaitPause = time.Second
)

func (e *Executor) lost(ctx context.Context, engine *client.Client, err error) bool {
	if answered(err) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingPatience)
	defer cancel()
	if _, pingErr := engine.Ping(ctx, client.PingOptions{}); pingErr == nil && !broken(err) {
		return false
	}
	e.forget(engine)
	return true
}

// broken reports whether the connection ended during a call: the engine may already be back.
func broken(err error) bool {
	var network *net.OpError
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &network)
}

func (e *Executor) await(ctx context.Context) error {
	for {
		if err := retry.Sleep(ctx, retry.Spread(awaitPause)); err != nil {
			return err
		}
		if e.Check(ctx) == nil {
			return nil
		}
	}
}

// discardUnstarted removes a lost engine's objects for a job, unless the job was started.
func (e *Executor) discardUnstarted(ctx context.Context, spec executor.Spec) error {
	engine, err := e.engine()
	if err != nil {
		return err
	}
	j := job{Name: executor.ObjectName(spec.Owner, spec.JobID, spec.Epoch)}
	if e.opts.SharedVolumeDirectory != "" {
		j.Shared = filepath.Join(e.opts.SharedVolumeDirectory, j.Name)
	}
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	switch {
	case err != nil && !errdefs.IsNotFound(err):
		return err
	case err == nil && found.Container.State.Status != container.StateCreated:
		return nil // the next attempt reports that one exists
	}
	return e.discard(ctx, engine, j)
}
