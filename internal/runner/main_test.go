package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/runner"
	"workflowagent/internal/runner/source"
	"workflowagent/internal/workflow"
)

// asCommand makes the test binary stand in for the runner's own commands. It does
// not have a reserved prefix, so it reaches the steps.
const asCommand = "TEST_RUNNER_COMMAND"

// TestMain lets the test binary be what a job's steps call.
func TestMain(m *testing.M) {
	if file := os.Getenv(source.AskpassEnv); file != "" {
		answer, err := source.Answer(file, strings.Join(os.Args[1:], " "))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(answer)
		return
	}
	if os.Getenv(asCommand) != "" {
		if err := command(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "error: "+err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func command(args []string) error {
	p, err := runner.ReadParams()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	switch strings.Join(args, " ") {
	case "source git":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT)
		defer stop()
		return runner.SourceGit(ctx, p, self, os.Stdout)
	case "dependencies":
		return runner.Dependencies(p, os.Stdout)
	case "pre-run":
		return runner.PreRun(p, os.Stdout)
	case "remove-stack":
		return runner.RemoveStack(p)
	}
	return runner.Pulumi(p, workflow.Operation(args[1]), os.Stdout)
}
