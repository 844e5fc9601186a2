// Command workflow-server is the control plane. It stores the state of Pulumi stacks, queues
// deployments and assigns them to agents.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"workflowagent/cmd/internal/program"
	"workflowagent/internal/server"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// version is set by the linker.
var version = ""

// exitOld is the exit code, in addition to those that all programs have, if a newer server has upgraded the
// database so that this program must not use it. The service is not restarted then.
const exitOld = 4

func main() { os.Exit(run()) }

// run runs the command line and returns the exit code. The first signal stops the server
// gracefully, and the second stops it immediately.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	code, line := result(newRootCommand(program.Version(version)).ExecuteContext(ctx))
	if line != "" {
		fmt.Fprintln(os.Stderr, line)
	}
	return code
}

func result(err error) (code int, line string) {
	code, line = program.Result(err)
	if code != program.ExitFailed {
		return code, line
	}
	_, noDatabase := errors.AsType[*server.NoDatabaseError](err)
	_, old := errors.AsType[*store.OldProgramError](err)
	switch kind := fault.KindOf(err); {
	case old:
		code = exitOld
	case noDatabase, kind == fault.KindNotFound:
		code = program.ExitNone
	case kind == fault.KindInvalid:
		code = program.ExitUsage
	}
	return code, line
}
