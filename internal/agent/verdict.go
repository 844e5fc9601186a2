package agent

import (
	"fmt"
	"strings"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/workflow"
)

// verdict is how a job ended, as far as the agent knows.
type verdict struct {
	status   workflow.Status
	reason   workflow.Reason
	message  string // one line for the deployment's log
	exitCode *int
	signal   string
}

// failure is the verdict of a job that could not be run to its end.
func failure(reason workflow.Reason, format string, args ...any) verdict {
	return verdict{status: workflow.StatusFailed, reason: reason, message: fmt.Sprintf(format, args...)}
}

// judge reads the evidence of a runner that has ended without having delivered
// its result. cancelled says that the agent itself asked it to end because
// somebody had cancelled the deployment.
func judge(exit executor.Exit, cancelled bool) verdict {
	v := verdict{status: workflow.StatusFailed, signal: exit.Signal}
	if exit.Code >= 0 && exit.Signal == "" && !exit.Lost {
		code := exit.Code
		v.exitCode = &code
	}
	switch {
	case exit.Result != nil && exit.Result.Status.Final():
		// The runner knew the end and only could not tell the server.
		code := exit.Result.ExitCode
		v.status, v.reason, v.exitCode = exit.Result.Status, exit.Result.Reason, &code
		v.signal = ""
		v.message = "The runner ended before the server had its log and result; the agent delivers them."
	case exit.OOMKilled:
		v.reason = workflow.ReasonOOM
		v.message = "The job was killed because it ran out of memory: give job containers more (docker_memory), or make the program use less."
	case exit.Lost:
		v.reason = workflow.ReasonLost
		v.message = "The job is gone and nobody knows how it ended, as after a restart of its host or engine. Check the stack before the next deployment."
	case cancelled:
		v.reason = workflow.ReasonCancelled
		v.message = "The deployment was cancelled."
	case exit.Signal == "SIGKILL":
		v.reason = workflow.ReasonSignal
		v.message = "The runner was killed by SIGKILL, and not by this product: by somebody, or by the system because memory ran out. Check the stack before the next deployment."
	case exit.Signal != "":
		v.reason = workflow.ReasonSignal
		v.message = fmt.Sprintf("The runner was killed by %s from outside of this product. Check the stack before the next deployment.", exit.Signal)
	case exit.Code == protocol.ExitNoLaunch:
		v.reason = workflow.ReasonLaunch
		v.message = "The runner did not receive the job, as when the connection to the engine breaks; nothing of the job was run."
	case exit.Code != 0:
		v.reason = workflow.ReasonExitCode
		v.message = fmt.Sprintf("The runner ended with exit code %d before it could say how the job ended.", exit.Code)
	default:
		v.reason = workflow.ReasonInternalError
		v.message = "The runner ended without a result. This is a defect: please report it with this log."
	}
	if exit.Detail != "" && exit.Result == nil {
		v.message += " (" + strings.TrimSpace(exit.Detail) + ")"
	}
	return v
}
