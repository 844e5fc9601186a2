package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/service"
	"workflowagent/internal/host/update"
	"workflowagent/internal/host/upkeep"
)

// exitNewer is the exit code of update --check if a newer release is available.
const exitNewer = 10

func newUpdateCommand(version string, options func() config.LoadOptions, load loader) *cobra.Command {
	var check, asJSON bool
	m := upkeep.Manual{Version: version}
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Install the newest release, or report whether one is available",
		Long: `Find the newest release of update_channel, verify its signature, install all of its
programs together, restart a running service, and wait until the new version has
reached the server. If it does not, the update is rolled back.

Running deployments continue. It never installs an older version, and never changes a
program that dpkg, rpm or Homebrew installed. An installation of the machine needs root.

With --check the exit code is 0 if this is the newest release, 10 if a newer one is
available, and 1 if the check failed. Otherwise it is 0 if the newest release is
installed, and 1 if not.`,
		Example: `  customer-managed-workflow-agent update --check
  sudo customer-managed-workflow-agent update
  sudo customer-managed-workflow-agent update --version v1.2.3`,
		Args: operator.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			m.Load, m.Out = options(), cmd.ErrOrStderr()
			m.Service.User = os.Geteuid() != 0
			if err := release.CheckVersion(m.Want); err != nil && cmd.Flags().Changed("version") {
				return config.Invalid(err)
			}
			if cmd.Flags().Changed("service") {
				if err := upkeep.RequireService(ctx, m.Service); err != nil {
					return err
				}
			}
			do := m.Install
			if check {
				do = m.Check
			}
			answer, err := do(ctx)
			switch {
			case answer == nil:
				return err
			case asJSON:
				err = errors.Join(operator.PrintJSON(cmd.OutOrStdout(), answer), err)
			case answer.Text != "":
				fmt.Fprintln(cmd.OutOrStdout(), answer.Text)
			}
			if err == nil && check && answer.Newer {
				return program.Exit(exitNewer, nil)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&check, "check", false, "only report whether a newer release is available")
	f.StringVar(&m.Want, "version", "", "release to install instead of the newest, such as v1.2.3")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&m.Service.Name, "service", service.DefaultName, "name of the service to restart")
	cmd.AddCommand(newUpdateApplyCommand(load))
	return cmd
}

// newUpdateApplyCommand returns the update helper's command, which runs as the owner of the
// installation.
func newUpdateApplyCommand(load loader) *cobra.Command {
	var h upkeep.Helper
	var envFile string
	cmd := &cobra.Command{
		Use:    "apply",
		Short:  "Install the release that the service's agent has staged, or finish an interrupted update",
		Hidden: true,
		Args:   operator.NoArgs,
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
	cmd.Flags().StringVar(&h.Stage, "stage", "", "directory with the release that the agent has verified")
	cmd.Flags().DurationVar(&h.Timeout, "patience", 0, "how long the new version may take to its first poll")
	cmd.Flags().StringVar(&envFile, "env-file", "", "file of lines NAME=VALUE to add to the environment, if it exists")
	return cmd
}
