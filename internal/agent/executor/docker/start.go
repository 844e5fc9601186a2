package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

const (
	// launchPatience is how long the runner may take to read the launch document.
	launchPatience = 30 * time.Second
	// closePatience bounds the confirmation of the end of input; not all engines send one.
	closePatience = 2 * time.Second
)

// Start starts the container once and writes launch to it. The engine ends the container's
// input when the connection breaks, so if the agent dies here, the runner gets an incomplete
// document and starts nothing.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	j, err := e.open(h)
	if err != nil {
		return err
	}
	if !e.claimStart(j.Name) {
		return executor.ErrStarted
	}
	defer e.releaseStart(j.Name)
	engine, err := e.engine()
	if err != nil {
		return err
	}
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return failure(workflow.ReasonLaunch, "The job's container is gone", nil)
	case err != nil:
		return fmt.Errorf("starting job %s: %w", h.JobID, err)
	case found.Container.State.Status != container.StateCreated:
		return executor.ErrStarted
	}
	attached, err := engine.ContainerAttach(ctx, j.Name, client.ContainerAttachOptions{Stream: true, Stdin: true})
	if err != nil {
		return fmt.Errorf("connecting to the input of job %s: %w", h.JobID, err)
	}
	defer attached.Close()
	if _, err := engine.ContainerStart(ctx, j.Name, client.ContainerStartOptions{}); err != nil {
		if answered(err) {
			return failure(workflow.ReasonLaunch, "The container could not be started", err)
		}
		return fmt.Errorf("starting job %s: %w", h.JobID, err)
	}
	if err := deliver(ctx, attached.HijackedResponse, launch); err != nil {
		// The runner may have received all of it before the connection broke.
		return fmt.Errorf("starting job %s: %w", h.JobID, err)
	}
	return nil
}

// claimStart makes Start exclusive in this process: the engine ignores a second start.
func (e *Executor) claimStart(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, taken := e.starting[name]; taken {
		return false
	}
	e.starting[name] = struct{}{}
	return true
}

func (e *Executor) releaseStart(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.starting, name)
}

func deliver(ctx context.Context, conn client.HijackedResponse, launch []byte) error {
	if err := conn.Conn.SetDeadline(time.Now().Add(launchPatience)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Conn.Write(launch); err != nil {
		return cause(ctx, fmt.Errorf("writing the launch document: %w", err))
	}
	if err := conn.CloseWrite(); err != nil {
		return cause(ctx, fmt.Errorf("ending the launch document: %w", err))
	}
	// The engine closes its side after it has passed on everything.
	if err := conn.Conn.SetReadDeadline(time.Now().Add(closePatience)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, conn.Reader); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("handing over the launch document: %w", err)
	}
	return nil
}
