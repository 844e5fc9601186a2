package agent

import (
	"fmt"
	"strings"

	"workflowagent/internal/protocol"

	"workflowagent/internal/agent/executor"
	"workflowagent/internal/delivery"
	"workflowagent/internal/workflow"
)

// judge reads the evidence of a runner that has ended without having delivered
// its result. cancelled says that the agent itself asked it to end because
// somebody had cancelled the deployment.
func judge(exit executor.Exit, cancelled bool) delivery.Verdict {
	v := delivery.Verdict{Status: workflow.StatusFailed, Signal: exit.Signal}
	if exit.Code >= 0 && exit.Signal == "" && !exit.Lost {
		code := exit.Code
		v.ExitCode = &code
	}
	switch {
	case exit.Result != nil && exit.Result.Status.Final():
		// The runner knew the end and only could not tell the server.
		code := exit.Result.ExitCode
		v.Status, v.Reason, v.ExitCode = exit.Result.Status, exit.Result.Reason, &code
		v.Signal = ""
		v.Message = "The runner ended before the server had its log and result; the agent delivers them."
	case exit.OOMKilled:
		v.Reason = workflow.ReasonOOM
		v.Message = "The job was killed because it ran out of memory: give job containers more (docker_memory), or make the program use less."
	case exit.Lost:
		v.Reason = workflow.ReasonLost
		v.Message = "The job is gone and nobody knows how it ended, as after a restart of its host or engine. Check the stack before the next deployment."
	case cancelled:
		v.Reason = workflow.ReasonCancelled
		v.Message = "The deployment was cancelled."
	case exit.Signal == "SIGKILL":
		v.Reason = workflow.ReasonSignal
		v.Message = "The runner was killed by SIGKILL, and not by this product: by somebody, or by the system because memory ran out. Check the stack before the next deployment."
	case exit.Signal != "":
		v.Reason = workflow.ReasonSignal
		v.Message = fmt.Sprintf("The runner was killed by %s from outside of this product. Check the stack before the next deployment.", exit.Signal)
	case exit.Code == protocol.ExitNoLaunch:
		v.Reason = workflow.ReasonLaunch
		v.Message = "The runner did not receive the job, as when the connection to the engine breaks; nothing of the job was run."
	case exit.Code != 0:
		v.Reason = workflow.ReasonExitCode
		v.Message = fmt.Sprintf("The runner ended with exit code %d before it could say how the job ended.", exit.Code)
	default:
		v.Reason = workflow.ReasonInternalError
		v.Message = "The runner ended without a result. This is a defect: please report it with this log."
	}
	if exit.Detail != "" && exit.Result == nil {
		v.Message += " (" + strings.TrimSpace(exit.Detail) + ")"
	}
	return v
}
