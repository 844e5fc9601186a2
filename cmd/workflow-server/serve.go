package main

import (
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/operator"
	"workflowagent/internal/server"
	"workflowagent/internal/sys/procguard"
)

func newServeCommand(version string, s source) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server until it receives SIGINT or SIGTERM. The first start creates an organization,
an administrator and an access token, which is written to a file in the data directory.

Every setting can be given as a flag, as the environment variable shown after it, or in the
configuration file; the first of these wins. Secrets have no flags.`,
		Example: `  workflow-server serve --data-dir /var/lib/workflow-server --external-url https://deployments.example.com
  workflow-server serve --config ./workflow-server.yaml`,
		Args: operator.NoArgs,
	}
	load := s.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		log := newLog(cfg, cmd.ErrOrStderr())
		if err := procguard.Protect(); err != nil {
			log.WithError(err).Warn("the server's memory is not protected from other processes of its user")
		}
		s, err := server.New(cmd.Context(), cfg, version, log, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		return s.Run(cmd.Context())
	}
	return cmd
}
