package agent_test

import (
	"slices"
	"testing"

	"workflowagent/internal/workflow"
)

// TestAnnouncesOnlyWhatItCanRun checks that a server is not told about types that the agent would
// refuse, although the configuration may name them.
func TestAnnouncesOnlyWhatItCanRun(t *testing.T) {
	w := newHarness(t)
	w.start()
	var types []string
	w.server.WaitFor("a poll", func() bool {
		if len(w.server.Polls) == 0 {
			return false
		}
		types = w.server.Polls[0].Types
		return true
	})
	if !slices.Equal(types, []string{string(workflow.TypeDeployment), string(workflow.TypePolicyEvaluation)}) {
		t.Errorf("the agent announces %q", types)
	}
}
