// Command customer-managed-workflow-agent is the agent that runs a team's deployments inside its
// own network: it polls a control plane for work and runs the work in containers or processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/control"
)

// version is set by the linker.
var version = ""

// exitTime is the exit code, in addition to those that all programs have, if the wait timed out and
// the agent still drains.
const exitTime = 4

func main() {
	code, line := result(newRootCommand(program.Version(version)).ExecuteContext(context.Background()))
	if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
	os.Exit(code)
}

func result(err error) (code int, line string) {
	var invalid config.InvalidError
	var none *control.NoneError
	var draining *control.DrainingError
	code, line = program.Result(err)
	switch {
	case code != program.ExitFailed:
	case errors.As(err, &invalid):
		code = program.ExitUsage
	case errors.As(err, &none):
		code = program.ExitNone
	case errors.As(err, &draining):
		code = exitTime
	}
	return code, line
}

func exitCode(err error) int {
	code, _ := result(err)
	return code
}
