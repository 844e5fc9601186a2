package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/daemon"
)

func newRunCommand(version string, load loader) *cobra.Command {
	o := daemon.Options{Version: version, Load: load}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Poll for work and run it, until stopped",
		Long: `Poll the control plane for work and run it, until stopped.

After the first SIGTERM or SIGINT the agent claims no more jobs, detaches from its jobs and
exits. The jobs continue and report by themselves; the next start resumes them. A second
signal stops the agent immediately. No signal cancels a deployment.`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return daemon.Run(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.Debug, "debug", false, "log more")
	cmd.Flags().StringVar(&o.EnvFile, "env-file", "", "file of lines NAME=VALUE to add to the environment, if it exists")
	cmd.Flags().StringVar(&o.UpdateStage, "updates", "", "directory from which the service's helper installs updates")
	cmd.Flags().DurationVar(&o.FirstUpdateCheck, "first-update-check", 0, "time to the first check for an update")
	cmd.Flags().DurationVar(&o.CheckEvery, "update-check-interval", 0, "time between two checks for an update")
	for _, hidden := range []string{"updates", "first-update-check", "update-check-interval"} {
		_ = cmd.Flags().MarkHidden(hidden) // fails only for an undefined flag
	}
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		fmt.Fprintln(cmd.OutOrStdout(), "\nSettings, in the configuration file or the environment:")
		if err := config.Table().WriteHelp(cmd.OutOrStdout()); err != nil {
			cmd.PrintErrln(err)
		}
	})
	return cmd
}
