// Command workflow-server is the control plane. It stores the state of Pulumi stacks, queues
// deployments and assigns them to agents.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the build.
var version = ""

func main() { os.Exit(run()) }

// run runs the command line and returns the exit code. The first signal stops the server
// gracefully, and the second stops it immediately.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := newRootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error: "+err.Error())
		return 1
	}
	return 0
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "workflow-server",
		Short: "Control plane for Pulumi stacks and deployments",
		Long: "workflow-server serves the Pulumi Cloud REST API: the stock pulumi CLI logs in to it,\n" +
			"stores its state there, and runs deployments on agents that poll the server.",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newServeCommand(), newTokenCommand(), newUserCommand(), newOrgCommand(), newAdminCommand(), newSecretsCommand(), newOIDCCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText returns the version, or the VCS revision for builds without a version.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "v0.0.0-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "v0.0.0-dev"
}
