package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"workflowagent/internal/checkup"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments/evaluator"
)

// checkEvaluator checks that the program that evaluates environments starts.
func (e *examination) checkEvaluator(ctx context.Context) checkup.Result {
	program := e.opts.Evaluator
	if program == "" {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return checkup.Skip("this program's directory is not known: " + err.Error())
		}
		program = filepath.Join(filepath.Dir(self), wire.Program)
	}
	const without = ": environments can be neither opened nor changed"
	hello, err := evaluator.Try(ctx, program)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn(evaluatorMissing, program+" does not exist"+without, "install "+wire.Program+" of version "+e.opts.Version+" next to workflow-server")
	case err != nil:
		return warn(evaluatorFails, program+" does not start"+without, "run it as the server's user, with </dev/null, and see its message", err.Error())
	case !hello.Sandbox:
		return checkup.OK(fmt.Sprintf("%s %s starts, without a sandbox, which this system does not have", wire.Program, hello.Version))
	}
	return checkup.OK(fmt.Sprintf("%s %s starts, in its sandbox", wire.Program, hello.Version))
}
