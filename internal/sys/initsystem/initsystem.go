// Package initsystem contains what agent and server share as services of systemd or launchd: reports of
// their state to the service manager, the files that register them, and the commands that control them.
package initsystem

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// callTimeout limits each call to systemctl or launchctl. Stopping a service can take as long as
// the unit's timeout.
const callTimeout = 90 * time.Second

// Runner runs the service manager's programs. Tests replace it to check the command lines.
type Runner interface {
	// Run returns the program's output without the last line break. If the program fails, the error
	// is an *[ExitError].
	Run(ctx context.Context, name string, args ...string) (string, error)
	// Stream copies the program's output to out, and its standard error to the standard error of
	// this process, until the program exits or ctx is canceled.
	Stream(ctx context.Context, out io.Writer, name string, args ...string) error
}

// ExitError is the failure of a program.
type ExitError struct {
	Command string
	Code    int
	Said    string
}

// Error returns the command and its message.
func (e *ExitError) Error() string {
	if e.Said == "" {
		return fmt.Sprintf("%s ended with exit code %d", e.Command, e.Code)
	}
	return fmt.Sprintf("%s: %s", e.Command, e.Said)
}

// ExitCode returns the exit code in err, or -1 if err contains none.
func ExitCode(err error) int {
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Code
	}
	return -1
}

// Exec runs programs of this machine. Timeout limits each call of Run; 0 means the default.
type Exec struct{ Timeout time.Duration }

// Run implements [Runner].
func (e Exec) Run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(e.Timeout, callTimeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "TZ=UTC") // for the times in systemctl's output
	err := cmd.Run()
	out := strings.TrimRight(stdout.String(), "\n")
	if ctx.Err() != nil {
		return out, fmt.Errorf("%s did not end in time: %w", CommandLine(name, args), ctx.Err())
	}
	return out, failure(err, name, args, strings.TrimSpace(stderr.String()))
}

// Stream implements [Runner].
func (Exec) Stream(ctx context.Context, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the caller ends ctx to stop following
	}
	return failure(err, name, args, "")
}

func failure(err error, name string, args []string, said string) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return &ExitError{Command: CommandLine(name, args), Code: exit.ExitCode(), Said: said}
	}
	if err != nil {
		return fmt.Errorf("running %s: %w", CommandLine(name, args), err)
	}
	return nil
}

// CommandLine returns a command for messages.
func CommandLine(name string, args []string) string {
	return strings.Join(append([]string{name}, args...), " ")
}
