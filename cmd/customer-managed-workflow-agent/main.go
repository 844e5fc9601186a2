// Command customer-managed-workflow-agent is the agent that runs a team's deployments inside its
// own network: it polls a control plane for work and runs the work in containers or processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
)

// version is set by the linker.
var version = "v0.0.0-dev"

// Exit codes, for service managers and scripts.
const (
	exitOK     = 0
	exitFailed = 1 // a failure while running; a retry may help
	exitUsage  = 2 // an invalid command line or configuration; a retry does not help
	exitNone   = 3 // no agent is running
	exitTime   = 4 // the wait timed out; the agent still drains
)

// codeError is an error with its own exit code. If err is nil, the message has already been
// printed.
type codeError struct {
	err  error
	code int
}

func (e codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e codeError) Unwrap() error { return e.err }

func main() {
	err := newRootCommand(version).ExecuteContext(context.Background())
	if coded := (codeError{}); err != nil && (!errors.As(err, &coded) || coded.err != nil) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var invalid config.InvalidError
	var code codeError
	var none *control.NoneError
	var draining *control.DrainingError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code.code
	case errors.As(err, &invalid):
		return exitUsage
	case errors.As(err, &none):
		return exitNone
	case errors.As(err, &draining):
		return exitTime
	}
	return exitFailed
}
