// Command workflow-server is the control plane. It stores the state of Pulumi stacks, queues
// deployments and assigns them to agents.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"workflowagent/cmd/internal/program"
)

// version is set by the linker.
var version = ""

func main() { os.Exit(run()) }

// run runs the command line and returns the exit code. The first signal stops the server
// gracefully, and the second stops it immediately.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	code, line := program.Result(newRootCommand().ExecuteContext(ctx))
	if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
	return code
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
	root.AddCommand(newServeCommand(), newTokenCommand(), newUserCommand(), newOrgCommand(), newAdminCommand(), newSecretsCommand(), newOIDCCommand(), program.NewVersionCommand(program.Version(version)))
	return root
}
