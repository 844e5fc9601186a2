package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

const (
	// launchTime bounds how long the runner may take to read the launch document.
	launchTime = 30 * time.Second
	// closeTime bounds the wait until the engine confirms the end of input. Some engines never
	// confirm it.
	closeTime = 2 * time.Second
	// oomTime bounds the wait until the engine reports why a container was killed.
	oomTime = 3 * time.Second
	// waitTick is how long one call waits for an exit. Some engines never answer the call of a
	// container that has exited.
	waitTick = 30 * time.Second
	// resultTime bounds the read of the runner's result, which the engine sends as a stream.
	resultTime = 30 * time.Second
	// maxResult bounds a result file in bytes, because the job can write that file.
	maxResult = 64 << 10
)

// Start starts the container and writes launch to its input. It starts a container only once. If
// the agent exits meanwhile, the engine closes the container's input. The runner then receives an
// incomplete document and does not start the job.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	j, engine, err := e.open(h)
	if err != nil {
		return err
	}
	// The engine ignores a second start, so Start allows only one concurrent call per container.
	if _, taken := e.starting.LoadOrStore(j.Name, true); taken {
		return executor.ErrStarted
	}
	defer e.starting.Delete(j.Name)
	found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return failure(workflow.ReasonLaunch, "The job's container is missing", nil)
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
		// The runner may have received the complete document before the connection broke.
		return fmt.Errorf("starting job %s: %w", h.JobID, err)
	}
	return nil
}

func deliver(ctx context.Context, conn client.HijackedResponse, launch []byte) error {
	if err := conn.Conn.SetDeadline(time.Now().Add(launchTime)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := conn.Conn.Write(launch)
	if err == nil {
		err = conn.CloseWrite()
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("writing the launch document: %w", err)
	}
	// The engine closes its side after it has forwarded the complete document.
	if err := conn.Conn.SetReadDeadline(time.Now().Add(closeTime)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, conn.Reader); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("delivering the launch document: %w", err)
	}
	return nil
}

// Wait waits until the container exits. An engine restart interrupts the engine's wait call. After
// the restart, the engine reports how its containers exited, or, with live-restore, still runs
// them.
func (e *Executor) Wait(ctx context.Context, h executor.Handle) (executor.Exit, error) {
	j, engine, err := e.open(h)
	if err != nil {
		return executor.Exit{}, err
	}
	for {
		found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return gone(engine, j)
		case err != nil:
			e.forget(engine)
			return executor.Exit{}, fmt.Errorf("watching job %s: %w", h.JobID, err)
		}
		state := found.Container.State
		switch state.Status {
		case container.StateCreated:
			if state.Error != "" { // the engine failed to start the container
				return executor.Exit{Code: -1, Detail: engineText(state.Error)}, nil
			}
			return executor.Exit{}, executor.ErrNotStarted
		case container.StateExited, container.StateDead, container.StateRemoving:
			return ended(ctx, engine, j, state)
		}
		limited, cancel := context.WithTimeout(ctx, waitTick)
		err = waitStopped(limited, engine, j.Name)
		passed := limited.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && !passed && !errdefs.IsNotFound(err) {
			return executor.Exit{}, fmt.Errorf("watching job %s: %w", h.JobID, err)
		}
	}
}

func gone(engine *client.Client, j job) (executor.Exit, error) {
	if j.Engine != engine.DaemonHost() {
		return executor.Exit{}, fmt.Errorf("the Docker Engine at %[2]s does not have the job's container %[1]s: it was created on the engine at %[3]s, which the agent no longer uses", j.Name, engine.DaemonHost(), j.Engine)
	}
	return executor.Exit{Code: -1, Lost: true, Detail: "the job's container is missing"}, nil
}

func waitStopped(ctx context.Context, engine *client.Client, containerName string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := engine.ContainerWait(ctx, containerName, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return err
	case <-ctx.Done():
		select { // the client's goroutine is about to deliver the status or an error
		case <-wait.Result:
		case <-wait.Error: //nolint:errcheck // ctx was canceled
		}
		return ctx.Err()
	}
}

func ended(ctx context.Context, engine *client.Client, j job, state *container.State) (executor.Exit, error) {
	exit := executor.Exit{Code: state.ExitCode, Detail: engineText(state.Error)}
	if t, err := time.Parse(time.RFC3339Nano, state.FinishedAt); err == nil && t.Year() > 1 {
		exit.FinishedAt = t
	}
	reading, cancel := context.WithTimeout(ctx, resultTime)
	defer cancel()
	data, err := readFile(reading, engine, j.Name, j.JobDir+"/"+protocol.FileResult, maxResult)
	if err != nil && ctx.Err() != nil {
		return executor.Exit{}, ctx.Err()
	}
	if err == nil {
		var r protocol.Result
		if json.Unmarshal(data, &r) == nil {
			exit.Result = &r
		}
	}
	if exit.Code == 0 {
		return exit, nil
	}
	exit.OOMKilled = state.OOMKilled || exit.Code == 128+9 && outOfMemory(ctx, engine, j)
	if name := executor.SignalOf(exit.Code); name != "" {
		exit.Code, exit.Signal = -1, name
	}
	// An engine reports this code for a container that exited while the engine or the host
	// restarted.
	if exit.Code == 255 && !exit.OOMKilled {
		exit = executor.Exit{
			Code: -1, Lost: true, Result: exit.Result, FinishedAt: exit.FinishedAt,
			Detail: "the Docker Engine or its host was restarted while the job ran",
		}
	}
	return exit, nil
}

// outOfMemory reports whether a killed container ran out of memory. The engine detects this
// separately from the exit. It can detect it later or, on a busy host, never
// (https://github.com/containerd/containerd/issues/8893).
func outOfMemory(ctx context.Context, engine *client.Client, j job) bool {
	ctx, cancel := context.WithTimeout(ctx, oomTime)
	defer cancel()
	for retry.Sleep(ctx, oomTime/30) == nil {
		found, err := engine.ContainerInspect(ctx, j.Name, client.ContainerInspectOptions{})
		if err != nil {
			return false
		}
		if found.Container.State.OOMKilled {
			return true
		}
	}
	return false
}
