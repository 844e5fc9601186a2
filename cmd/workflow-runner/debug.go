package main

import (
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/runner"
)

func newDebugCommand() *cobra.Command {
	var jobFile string
	var keep bool
	cmd := &cobra.Command{
		Use:   "debug --job FILE",
		Short: "Run a job definition from a file, without a server",
		Long: `Run the steps of a job definition, the JSON that GET /api/workflow/jobs/{id} returns,
locally and without a server: the masked log goes to standard output, the runner's own
messages go to standard error, and the exit code is the job's. Use it to find
out what a job does in an image:

  docker run --rm -i -v "$PWD/workflow-runner-embeddable:/workflow-runner:ro" \
    IMAGE /workflow-runner debug --job - <job.json

The environment is the caller's. Step 0 belongs to the agent and is not run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return program.Exit(runner.Debug(cmd.Context(), cmd.InOrStdin(), jobFile, keep, program.Version(version)))
		},
	}
	cmd.Flags().StringVar(&jobFile, "job", "", "file with the job definition, - for standard input")
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the job's directory and print its path")
	_ = cmd.MarkFlagRequired("job") // fails only for an undefined flag
	return cmd
}
