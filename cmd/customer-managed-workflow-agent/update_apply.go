package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/host/upkeep"
)

// newUpdateApplyCommand returns the helper's command, which the installation's owner runs.
func newUpdateApplyCommand(load loader) *cobra.Command {
	var h upkeep.Helper
	var envFile string
	cmd := &cobra.Command{
		Use:    "apply",
		Short:  "Install the release that the service's agent has staged, or finish an interrupted update",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := service.LoadEnvironment(envFile); err != nil {
				return config.Invalid(err)
			}
			logger := logrus.New()
			logger.SetOutput(cmd.ErrOrStderr())
			h.Log = logrus.NewEntry(logger)
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			install, err := update.FindOwn(ctx)
			if err != nil {
				return err
			}
			h.Load = load
			return h.Run(ctx, install)
		},
	}
	cmd.Flags().StringVar(&h.Options.Name, "service", service.DefaultName, "name of the service")
	cmd.Flags().BoolVar(&h.Options.User, "user", false, "the service is the current user's")
	cmd.Flags().StringVar(&h.Stage, "stage", "", "directory with what the agent has verified")
	cmd.Flags().DurationVar(&h.Timeout, "patience", 0, "how long the new version may take to its first poll")
	cmd.Flags().StringVar(&envFile, "env-file", "", "file of lines NAME=VALUE to add to the environment, if it exists")
	return cmd
}
