package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/protocol"
)

// DebugOptions configure [Debug].
type DebugOptions struct {
	Config   *config.Config
	JobFile  string // path of a file with the job definition; "-" means In
	Keep     bool   // keep the job's directory
	In       io.Reader
	Out, Err io.Writer
}

// Debug runs a job with this agent's runner, but without a server. It returns the job's exit code.
func Debug(ctx context.Context, o DebugOptions) (code int, err error) {
	c := o.Config
	definition, err := protocol.ReadDefinition(o.In, o.JobFile)
	if err != nil {
		return 0, config.Invalid(err)
	}
	runner, err := executor.FindRunner(c.WorkingDirectory)
	if err != nil {
		return 0, config.Invalid(err)
	}
	caPEM, err := c.CACertificates()
	if err != nil {
		return 0, config.Invalid(err)
	}
	definition.Env = c.Mirrors.Add(definition.Env)
	launch := protocol.Launch{
		Offline: true, JobID: "debug", Epoch: 1, Definition: definition, EchoLog: true,
		ForwardedEnv: config.Reveal(c.ForwardedEnv()), Proxy: config.Reveal(c.ProxyEnv()), CACertPEM: string(caPEM),
	}
	document, err := json.Marshal(launch)
	if err != nil {
		return 0, errors.New("the launch document cannot be encoded") // the cause could quote a secret
	}
	dir, err := os.MkdirTemp("", "workflow-debug-")
	if err != nil {
		return 0, fmt.Errorf("creating the job's directory: %w", err)
	}
	defer func() {
		if o.Keep {
			fmt.Fprintln(o.Err, "The job's directory is left in", dir)
			return
		}
		if removeErr := os.RemoveAll(dir); removeErr != nil {
			fmt.Fprintln(o.Err, "The job's directory could not be removed:", removeErr)
		}
	}()
	return runRunner(ctx, o, runner, dir, document)
}

// runRunner runs the runner until it exits. A signal cancels the job, and the runner then reports
// the cancellation.
func runRunner(ctx context.Context, o DebugOptions, runner, dir string, launch []byte) (code int, err error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	run := exec.CommandContext(ctx, runner, "run", "--job-dir", dir)
	// The runner may already have received the terminal's signal. A second signal is harmless.
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGINT) }
	run.Env = process.PassedOn(os.Environ())
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(launch), o.Out, o.Err
	err = run.Run()
	switch exit := run.ProcessState; {
	case exit == nil:
		return 0, fmt.Errorf("starting the runner: %w", err)
	case exit.ExitCode() < 0:
		return 0, fmt.Errorf("running the runner: %w", err)
	default:
		return exit.ExitCode(), nil
	}
}
