package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/daemon"
)

func newDebugCommand(load loader) *cobra.Command {
	return operator.Group(
		&cobra.Command{Use: "debug", Short: "Debug jobs that fail", Example: "  customer-managed-workflow-agent debug workflow-runner --job job.json"},
		newDebugRunnerCommand(load), newDebugPodCommand(load),
	)
}

func newDebugRunnerCommand(load loader) *cobra.Command {
	var o daemon.DebugOptions
	cmd := &cobra.Command{
		Use:   "workflow-runner --job FILE",
		Short: "Run a job definition from a file, without a server",
		Long: `Run the steps of a job definition as this agent's runner does with deploy_target process,
but without a server: the command claims and reports nothing. The file holds the JSON
that GET /api/workflow/jobs/{id} returns (docs/protocol.md).

The masked log goes to standard output, the runner's messages to standard error. The exit
code is the job's; 1 also if the runner cannot start, 2 if the command line, the
configuration or the file is wrong. Step 0 is the agent's: this command skips it.

The job is real: a pulumi update in it changes infrastructure. An interrupt cancels the
job, as if its deployment were cancelled. Like every job, it receives the variables of
env_forward_allowlist and ca_certificate_file.

To run it in an image instead, give the definition to the runner in a container:

  docker run --rm -i -v "$PWD/workflow-runner-embeddable:/workflow-runner:ro" \
    IMAGE /workflow-runner debug --job - <job.json`,
		Example: `  customer-managed-workflow-agent debug workflow-runner --job job.json
  customer-managed-workflow-agent debug workflow-runner --job - --keep <job.json`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.JobFile == "" {
				return config.Invalid(errors.New("--job is required: the file with the job definition, or - for standard input"))
			}
			c, err := load()
			if err != nil {
				return err
			}
			o.Config, o.In, o.Out, o.Err = c, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			code, err := daemon.Debug(cmd.Context(), o)
			return program.Exit(code, err)
		},
	}
	cmd.Flags().StringVar(&o.JobFile, "job", "", "file with the job definition, - for standard input (required)")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "keep the job's directory, and print its path")
	return cmd
}

func newDebugPodCommand(load loader) *cobra.Command {
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "pod NAME",
		Short: "Print a copy of a job's pod for debugging in Kubernetes",
		Long: `Print, as YAML, a copy of a job's pod in which you can run a shell. The pod of a job that
has ended remains only if PULUMI_AGENT_DEBUG_POD was true when the job started.

The copy has the same images, volumes and variables, but its main container only waits. The
job's token is missing, variables from Secrets and variables whose names suggest a secret
have the value "dummy", volumes from Secrets and CSI drivers are empty, and the copy runs
without the pod's service account. It therefore cannot claim a job or start an update.
Secrets that the pod template contains in arguments, or in variables with other names,
remain, and so do volumes of nodes and persistent volumes.

The command only reads the pod. Create the copy with your own rights, and delete it when
you have finished. It ends by itself after --for.`,
		Example: `  kubectl -n workflow-agent exec deploy/workflow-agent-pool -- \
    customer-managed-workflow-agent debug pod NAME | kubectl apply -f -
  kubectl -n workflow-agent-jobs exec -it NAME-debug -c pulumi-workflow -- sh`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.Invalid(errors.New("the name of a job's pod is missing; see --help"))
			}
			if life < time.Minute {
				return config.Invalid(errors.New("--for must be at least 1m"))
			}
			c, err := load()
			if err != nil {
				return err
			}
			return daemon.CopyPod(cmd.Context(), c, args[0], life, cmd.OutOrStdout())
		},
	}
	cmd.Flags().DurationVar(&life, "for", 4*time.Hour, "the copy's lifetime")
	return cmd
}
