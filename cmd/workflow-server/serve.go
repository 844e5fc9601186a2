package main

import (
	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/sys/procguard"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "serve runs the server until it receives SIGINT or SIGTERM. The first start creates an organization,\n" +
			"an administrator and an access token, which is written to a file in the data directory.\n\n" +
			"Every setting can be given as a flag, as the environment variable shown after it, or in\n" +
			"the file given with --config; the first of these wins.",
		Args: cobra.NoArgs,
	}
	load := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		log := newLog(cfg, cmd.ErrOrStderr())
		if err := procguard.Protect(); err != nil {
			log.WithError(err).Warn("the server's memory is not protected from other processes of its user")
		}
		s, err := server.New(cmd.Context(), cfg, program.Version(version), log, cmd.OutOrStdout())
		if err != nil {
			return err
		}
		return s.Run(cmd.Context())
	}
	return cmd
}
