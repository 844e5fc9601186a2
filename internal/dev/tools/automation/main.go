// Automation runs the whole life of a stack in deployments through the Automation API for Go. It
// prints one line per step. The program main.mjs next to it does the same in JavaScript.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optremotedestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optremotepreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optremoterefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optremoteup"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: remote ORGANIZATION/PROJECT/STACK REPOSITORY")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "remote:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, repository string) error {
	stack, err := auto.UpsertRemoteStackGitSource(ctx, name, auto.GitRepo{URL: repository, Branch: "refs/heads/main"},
		auto.RemoteEnvVars(map[string]auto.EnvVarValue{"LEVEL": {Value: "info"}, "KEY": {Value: "s3cret", Secret: true}}),
		auto.RemotePreRunCommands(`echo "level=$LEVEL key=$KEY"`),
		auto.RemoteInheritSettings(true),
	)
	if err != nil {
		return err
	}
	preview, err := stack.Preview(ctx, optremotepreview.ProgressStreams(os.Stdout))
	if err != nil {
		return err
	}
	fmt.Println("previewed:", preview.StdOut != "")
	up, err := stack.Up(ctx, optremoteup.ProgressStreams(os.Stdout))
	if err != nil {
		return err
	}
	fmt.Println("updated:", up.Summary.Kind, up.Summary.Result, up.Summary.Version, "with", len(up.Outputs), "outputs")
	refresh, err := stack.Refresh(ctx, optremoterefresh.ProgressStreams(os.Stdout))
	if err != nil {
		return err
	}
	fmt.Println("refreshed:", refresh.Summary.Kind, refresh.Summary.Result)
	destroy, err := stack.Destroy(ctx, optremotedestroy.ProgressStreams(os.Stdout))
	if err != nil {
		return err
	}
	fmt.Println("destroyed:", destroy.Summary.Kind, destroy.Summary.Result)
	history, err := stack.History(ctx, 10, 1)
	fmt.Println("history:", len(history), "updates")
	return err
}
