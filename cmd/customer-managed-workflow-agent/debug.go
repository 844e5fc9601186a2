package main

import (
	"bytes"
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
		Short:   "Debug jobs that fail",
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
		Short: "Run a job definition from a file, without a server",
		Long: `Run the steps of a job definition as this agent's runner does with deploy_target process,
but without a server: nothing is claimed and nothing reported. The file holds the JSON
that GET /api/workflow/jobs/{id} answers with (docs/protocol.md).

The masked log goes to standard output, the runner's messages to standard error. The exit
code is the job's; 1 also if the runner cannot start, 2 if the command line, the
configuration or the file is wrong. Step 0 is the agent's: this command skips it.

The job is real: a pulumi update in it changes infrastructure. An interrupt cancels the
job, as if its deployment were cancelled. As every job, it receives the variables of
env_forward_allowlist and ca_certificate_file.

To run it in an image instead, give the definition to the runner in a container:

  docker run --rm -i -v "$PWD/workflow-runner-embeddable:/workflow-runner:ro" \
    IMAGE /workflow-runner debug --job - <job.json`,
		Example: `  customer-managed-workflow-agent debug workflow-runner --job job.json
  customer-managed-workflow-agent debug workflow-runner --job - --keep <job.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if jobFile == "" {
				return config.Invalid(errors.New("--job is required: the file with the job definition, or - for standard input"))
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
		return config.Invalid(err)
	}
	runner, err := executor.FindRunner(c.WorkingDirectory)
	if err != nil {
		return config.Invalid(err)
	}
	caPEM, err := c.CACertificates()
	if err != nil {
		return config.Invalid(err)
	}
	launch := protocol.Launch{
		Offline: true, JobID: "debug", Epoch: 1, Definition: definition, EchoLog: true,
		ForwardedEnv: config.Reveal(c.ForwardedEnv()), Proxy: config.Reveal(c.ProxyEnv()), CACertPEM: string(caPEM),
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

// runRunner runs the runner until it exits. A signal cancels the job, and its runner reports that.
func runRunner(cmd *cobra.Command, runner, dir string, launch []byte) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	run := exec.CommandContext(ctx, runner, "run", "--job-dir", dir)
	// The runner may have received the terminal's signal already: a second one is harmless.
	run.Cancel = func() error { return run.Process.Signal(syscall.SIGINT) }
	run.Env = process.PassedOn(os.Environ())
	run.Stdin, run.Stdout, run.Stderr = bytes.NewReader(launch), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err := run.Run()
	switch exit := run.ProcessState; {
	case exit == nil:
		return fmt.Errorf("starting the runner: %w", err)
	case exit.ExitCode() < 0:
		return fmt.Errorf("running the runner: %w", err)
	case exit.ExitCode() > 0:
		return codeError{code: exit.ExitCode()}
	}
	return nil
}
