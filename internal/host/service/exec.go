package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// runner runs the service manager's own programs. Tests replace it and look at
// the command lines.
type runner interface {
	// run returns what the program wrote, without the last line break. The error
	// of a program that failed is an *exitError.
	run(ctx context.Context, name string, args ...string) (string, error)
	// stream copies what the program writes to out, until it ends or ctx does. What
	// it complains about goes to standard error.
	stream(ctx context.Context, out io.Writer, name string, args ...string) error
}

// exitError is a program that said no, in its own words.
type exitError struct {
	command string
	code    int
	said    string
}

// Error returns the command line and what the program said.
func (e *exitError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s ended with exit code %d", e.command, e.code)
	}
	return fmt.Sprintf("%s: %s", e.command, e.said)
}

// exitCode returns the exit code that err is about, or -1.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return -1
}

// execRunner runs programs on this machine.
type execRunner struct{}

func (execRunner) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "TZ=UTC") // of the times that systemctl shows
	err := cmd.Run()
	out := strings.TrimRight(stdout.String(), "\n")
	if ctx.Err() != nil {
		return out, fmt.Errorf("%s did not end in time: %w", commandLine(name, args), ctx.Err())
	}
	return out, failure(err, name, args, strings.TrimSpace(stderr.String()))
}

func (execRunner) stream(ctx context.Context, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // following ends when the caller has seen enough
	}
	return failure(err, name, args, "")
}

func failure(err error, name string, args []string, said string) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &exitError{command: commandLine(name, args), code: exit.ExitCode(), said: said}
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", commandLine(name, args), err)
	}
	return nil
}

func commandLine(name string, args []string) string {
	return strings.Join(append([]string{name}, args...), " ")
}
