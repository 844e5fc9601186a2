package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/internal/runner/pod"
)

// newInstallCommand returns the command of a pod's init container.
func newInstallCommand() *cobra.Command {
	var to, launch, launchTo string
	cmd := &cobra.Command{
		Use:    "install --to DIR --launch FILE --launch-to FILE",
		Short:  "Copy this program and a job into a pod's volumes",
		Hidden: true, // only the agent starts it
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return pod.Install(to, launch, launchTo)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "directory for this program")
	cmd.Flags().StringVar(&launch, "launch", "", "file with the job")
	cmd.Flags().StringVar(&launchTo, "launch-to", "", "path of the job's copy")
	for _, name := range []string{"to", "launch", "launch-to"} {
		_ = cmd.MarkFlagRequired(name) // fails only for an undefined flag
	}
	return cmd
}

// newKeepCommand returns the command of a pod's sidecar.
func newKeepCommand() *cobra.Command {
	var jobDir string
	cmd := &cobra.Command{
		Use:    "keep --job-dir DIR",
		Short:  "Wait for SIGTERM, and then print the job's unsent log",
		Hidden: true, // only the agent starts it
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pod.Keep(cmd.Context(), jobDir, cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("keeping the job's log: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&jobDir, "job-dir", "", "the job's own directory")
	_ = cmd.MarkFlagRequired("job-dir")
	return cmd
}
