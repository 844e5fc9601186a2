package main

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

	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/executor"
	"workflowagent/internal/agent/executor/process"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// maxDefinition limits a job definition, in bytes.
const maxDefinition = 16 << 20

func newDebugCommand(load loader) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "debug",
		Short:   "Find out why a job fails",
		Example: "  customer-managed-workflow-agent debug workflow-runner --job job.json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDebugRunnerCommand(load))
	return cmd
}

func newDebugRunnerCommand(load loader) *cobra.Command {
	var jobFile string
	var keep bool
	cmd := &cobra.Command{
		Use:   "workflow-runner --job FILE",
		Short: "Run a job definition from a file, here, without a server",
		Long: `Run the steps of a job definition as this agent's runner does with deploy_target process,
but without a server: nothing is claimed and nothing reported. The file holds the JSON
that GET /api/workflow/jobs/{id} answers with (docs/protocol.md).

The masked log goes to standard output, what the runner itself has to say to standard
error. The exit code is that of the job; 1 also if the runner cannot be started, 2 for a
mistake in command line, configuration or file. Step 0 is the agent's and is not run.

The job is real: a pulumi update in it changes infrastructure. An interrupt is passed on
once, and the job ends as it does when its deployment is cancelled. Variables of
env_forward_allowlist and ca_certificate_file are given to it as to every job.

To run it in an image instead, give the definition to the runner in a container:

  docker run --rm -i -v "$PWD/workflow-runner-embeddable:/workflow-runner:ro" \
    IMAGE /workflow-runner debug --job - <job.json`,
		Example: `  customer-managed-workflow-agent debug workflow-runner --job job.json
  customer-managed-workflow-agent debug workflow-runner --job - --keep <job.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if jobFile == "" {
				return usageError{errors.New("--job is needed: the file with the job definition, or - for standard input")}
			}
			c, err := load()
			if err != nil {
				return err
			}
			return debugRunner(cmd, c, jobFile, keep)
		},
	}
	cmd.Flags().StringVar(&jobFile, "job", "", "file with the job definition, - for standard input (required)")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the job's directory, and print its path")
	return cmd
}

func debugRunner(cmd *cobra.Command, c *config.Config, jobFile string, keep bool) (err error) {
	definition, err := readDefinition(cmd.InOrStdin(), jobFile)
	if err != nil {
		return usageError{err}
	}
	runner, err := executor.FindRunner(c.WorkingDirectory)
	if err != nil {
		return usageError{err}
	}
	caPEM, err := c.CACertificates()
	if err != nil {
		return usageError{err}
	}
	launch := protocol.Launch{
		Offline: true, JobID: "debug", Epoch: 1, Definition: definition, EchoLog: true,
		ForwardedEnv: reveal(c.ForwardedEnv()), Proxy: reveal(c.ProxyEnv()), CACertPEM: string(caPEM),
	}
	document, err := json.Marshal(launch)
	if err != nil {
		return errors.New("the launch document cannot be encoded") // the cause could quote a secret
	}
	dir, err := os.MkdirTemp("", "workflow-debug-")
	if err != nil {
		return fmt.Errorf("creating the job's directory: %w", err)
	}
	defer func() {
		if keep {
			cmd.PrintErrln("The job's directory is left in", dir)
			return
		}
		if removeErr := os.RemoveAll(dir); removeErr != nil {
			cmd.PrintErrln("The job's directory could not be removed:", removeErr)
		}
	}()
	return runRunner(cmd, runner, dir, document)
}

func readDefinition(stdin io.Reader, jobFile string) (*workflow.JobDefinition, error) {
	if jobFile != "-" {
		f, err := os.Open(jobFile)
		if err != nil {
			return nil, fmt.Errorf("the job definition: %w", err)
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, maxDefinition+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the job definition: %w", err)
	case len(data) > maxDefinition:
		return nil, fmt.Errorf("the job definition is longer than %d bytes", maxDefinition)
	}
	return workflow.ParseJobDefinition(data)
}

// runRunner runs the runner to its end and passes signals on; receiving one twice is harmless.
func runRunner(cmd *cobra.Command, runner, dir string, launch []byte) error {
	//nolint:noctx // only the job's own end ends it
	run := exec.Command(runner, "run", "--job-dir", dir)
	run.Env = process.PassedOn(os.Environ())
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(launch), cmd.OutOrStdout(), cmd.ErrOrStderr()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := run.Start(); err != nil {
		return fmt.Errorf("starting the runner: %w", err)
	}
	ctx, ended := context.WithCancel(cmd.Context())
	passing := make(chan struct{})
	go func() {
		defer close(passing)
		for {
			select {
			case sig := <-signals:
				_ = run.Process.Signal(sig) // it may have just ended
			case <-ctx.Done():
				return
			}
		}
	}()
	err := run.Wait()
	ended()
	<-passing
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("running the runner: %w", err)
	case exit.ExitCode() < 0:
		return fmt.Errorf("the runner was ended by a signal: %w", exit)
	}
	return codeError{code: exit.ExitCode()}
}
