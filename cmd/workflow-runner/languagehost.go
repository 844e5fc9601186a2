package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/internal/runner/languagehost"
)

// newLanguageHostCommand returns the command of the program that is called by the name of the
// language host. pulumi starts it, with its own address and options of its log.
func newLanguageHostCommand() *cobra.Command {
	return &cobra.Command{
		Use:                languagehost.Program + " [ADDRESS]",
		Short:              "Run policy packs that are programs, for pulumi",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return languagehost.Serve(ctx, os.Stdin, cmd.OutOrStdout())
		},
	}
}
