package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"workflowagent/internal/runner/source"
	"workflowagent/internal/runner/steps"
	"workflowagent/internal/workflow"
)

// asCommand is the environment variable that makes the test binary act as the runner's own
// commands. Its prefix is not reserved, so steps receive it.
const asCommand = "TEST_RUNNER_COMMAND"

// asChild is the environment variable that makes the test binary a child of a step's command:
// "witness" records its interrupts, and "plugin" leaves the process group, like pulumi's plugins. A
// shell's background processes would ignore interrupts.
const asChild = "TEST_RUNNER_CHILD"

func child(role string) {
	interrupts := make(chan os.Signal, 8)
	signal.Notify(interrupts, syscall.SIGINT)
	if role == "plugin" {
		if err := syscall.Setpgid(0, 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
	if err := os.WriteFile("child.pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for range interrupts {
		file, err := os.OpenFile("signals", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.WriteString("child\n")
			_ = file.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

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
	if role := os.Getenv(asChild); role != "" {
		child(role)
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
	p, err := steps.ReadParams()
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
		return steps.SourceGit(ctx, p, self, os.Stdout)
	case "dependencies":
		return steps.Dependencies(context.Background(), p, os.Stdout)
	case "pre-run":
		return steps.PreRun(p, os.Stdout)
	case "remove-stack":
		return steps.RemoveStack(p)
	}
	return steps.Pulumi(p, workflow.Operation(args[1]), os.Stdout)
}
