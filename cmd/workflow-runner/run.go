package main

import (
	"time"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/runner"
	"workflowagent/internal/runner/pod"
)

// echoTime bounds the wait until a pod's node has read the output, which is only a copy of the log.
const echoTime = time.Second

func newRunCommand() *cobra.Command {
	var jobDir string
	var in runner.Input
	cmd := &cobra.Command{
		Use:   "run --job-dir DIR",
		Short: "Run the job from standard input or a file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Stdin = cmd.InOrStdin()
			code, err := runner.RunInput(cmd.Context(), in, jobDir, program.Version(version))
			if in.File != "" {
				pod.Settle(cmd.OutOrStdout(), echoTime)
				pod.Settle(cmd.ErrOrStderr(), echoTime)
			}
			return program.Exit(code, err)
		},
	}
	cmd.Flags().StringVar(&jobDir, "job-dir", "", "the job's own directory")
	cmd.Flags().StringVar(&in.File, "launch-file", "", "read the job from this file, and remove it, instead of standard input")
	cmd.Flags().StringVar(&in.HolderEnv, "holder-env", "", "environment variable with the runner's name, under which it asks the server to start the job")
	_ = cmd.MarkFlagRequired("job-dir") // fails only for an undefined flag
	return cmd
}
