package main

import (
	"github.com/spf13/cobra"

	"workflowagent/internal/runner"
)

func newRunCommand(code *int) *cobra.Command {
	var jobDir string
	cmd := &cobra.Command{
		Use:   "run --job-dir DIR",
		Short: "Run the job from standard input",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			*code, err = runner.RunInput(cmd.Context(), cmd.InOrStdin(), jobDir, versionText())
			return err
		},
	}
	cmd.Flags().StringVar(&jobDir, "job-dir", "", "the job's own directory")
	_ = cmd.MarkFlagRequired("job-dir") // fails only for an undefined flag
	return cmd
}
