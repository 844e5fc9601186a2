package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/protocol"
	"workflowagent/internal/sys/durable"
)

// launchTime bounds how long the runner may take to read the launch document. The runner uses the
// same limit.
const launchTime = 30 * time.Second

// Start starts the runner in its own session.
//
// Start records the runner's identity on disk before it sends the launch document. A runner that
// does not receive the complete document does not start the job. If the agent exits during Start,
// then either the job has not run, or the next agent process finds the runner.
func (e *Executor) Start(ctx context.Context, h executor.Handle, launch []byte) error {
	d, err := e.open(h)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	id, stdin, err := e.spawn(ctx, d)
	switch {
	case errors.Is(err, executor.ErrStarted):
		return err
	case err != nil:
		return launchError("The runner could not be started on the agent's host.", err)
	}
	e.reapers.Go(func() {
		if _, err := d.await(e.ctx, id); err != nil && e.ctx.Err() == nil {
			e.log.WithError(err).WithField("job_id", h.JobID).Warn("watching a job's runner failed")
		}
	})
	if err := deliver(ctx, stdin, launch); err != nil {
		if killErr := killTree(context.WithoutCancel(ctx), id, d.marker()); killErr != nil {
			return fmt.Errorf("starting job %s: %w", h.JobID, errors.Join(err, killErr))
		}
		return launchError("The runner exited or hung before it had read the launch document.", err)
	}
	return nil
}

// spawn starts the runner, but only once per job. It returns the write end of the runner's standard
// input.
func (e *Executor) spawn(ctx context.Context, d dir) (identity, *os.File, error) {
	unlock, err := d.lock(ctx)
	if err != nil {
		return identity{}, nil, err
	}
	defer unlock()
	started, err := os.OpenFile(d.path(fileStarted), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return identity{}, nil, executor.ErrStarted
	}
	if err != nil {
		return identity{}, nil, fmt.Errorf("marking the job as started: %w", err)
	}
	// Sync before the launch document is sent: after a power failure, a job that ran must not
	// appear as never started.
	if err := errors.Join(started.Sync(), started.Close(), durable.SyncDir(string(d))); err != nil {
		return identity{}, nil, fmt.Errorf("marking the job as started: %w", err)
	}
	workspace, err := e.workspace(ctx, d)
	if err != nil {
		e.log.WithError(err).Warn("the job runs without a workspace")
	}
	id, stdin, err := e.startRunner(d, workspace)
	if err != nil {
		never := exitRecord{Code: -1, Detail: "the runner could not be started", FinishedAt: time.Now()}
		return identity{}, nil, errors.Join(err, writeJSON(d.path(fileExit), never))
	}
	return id, stdin, nil
}

// startRunner starts the runner, records its identity, and returns the write end of its standard
// input.
func (e *Executor) startRunner(d dir, workspace string) (identity, *os.File, error) {
	output, err := os.OpenFile(d.path(fileOutput), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return identity{}, nil, err
	}
	defer output.Close()
	input, stdin, err := os.Pipe()
	if err != nil {
		return identity{}, nil, err
	}
	defer input.Close()
	env := append(environment(os.Environ(), d), d.marker())
	if workspace != "" {
		env = append(env, protocol.EnvWorkspace+"="+workspace)
	}
	p, err := os.StartProcess(e.runner, []string{filepath.Base(e.runner), "run", "--job-dir", d.path(dirJob)}, &os.ProcAttr{
		Dir:   d.path(dirJob),
		Env:   env,
		Files: []*os.File{input, output, output},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return identity{}, nil, errors.Join(err, stdin.Close())
	}
	// From now on, the agent finds the runner by its identity, in the same way as a later agent
	// process. The runner is a child, so its PID is not reused before this process waits for it.
	id, err := identify(p.Pid)
	if err == nil {
		err = writeJSON(d.path(fileProcess), id)
	}
	if err != nil { // without a launch document, the runner does not start the job
		_ = stdin.Close()
		_ = p.Kill()
		_, _ = p.Wait()
		return identity{}, nil, err
	}
	if err := p.Release(); err != nil {
		return identity{}, nil, errors.Join(err, stdin.Close())
	}
	return id, stdin, nil
}

// environment returns the runner's environment. It omits the agent's other variables, which may
// contain the agent's token.
func environment(agent []string, d dir) []string {
	return append([]string{"HOME=" + d.path(dirHome), "TMPDIR=" + d.path(dirTemp)}, PassedOn(agent)...)
}

// PassedOn returns the part of the agent's environment that jobs receive: the variables for the
// program search path, the language and the certificate authorities.
func PassedOn(agent []string) []string {
	var env []string
	path := false
	for _, entry := range agent {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "PATH":
			path = true
		case "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR":
		default:
			continue
		}
		env = append(env, entry)
	}
	if !path {
		env = append(env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	return env
}

func deliver(ctx context.Context, stdin *os.File, launch []byte) error {
	if err := stdin.SetWriteDeadline(time.Now().Add(launchTime)); err != nil {
		return errors.Join(err, stdin.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = stdin.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := stdin.Write(launch)
	if ctx.Err() != nil && err != nil {
		err = ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("writing the launch document: %w", err)
	}
	return errors.Join(err, stdin.Close())
}
