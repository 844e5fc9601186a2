package runs

import (
	"testing"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/store"
)

// TestCancelledRows begins each sentence about a cancelled run with a capital letter.
func TestCancelledRows(t *testing.T) {
	for message, want := range map[string]string{
		"Cancelled by ada. the deployment was cancelled while Pre-run command 1 was running": "Cancelled by ada. The deployment was cancelled while Pre-run command 1 was running",
		"Cancelled by ada.": "Cancelled by ada.",
		"":                  "the message",
	} {
		r := Row{Listed: deployments.Listed{DeploymentJob: store.DeploymentJob{Job: store.Job{Message: message}}}}
		r.State, r.Message = waiting.StateCancelled, "the message"
		if got, _ := r.says(); got != want {
			t.Errorf("%q is shown as %q, want %q", message, got, want)
		}
	}
}
