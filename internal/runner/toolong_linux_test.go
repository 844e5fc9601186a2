package runner_test

import (
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

// TestRunTooLongForTheSystem checks that the log names the text that a step cannot start with.
func TestRunTooLongForTheSystem(t *testing.T) {
	long := strings.Repeat("x", 140_000)
	for name, tt := range map[string]struct {
		definition *workflow.JobDefinition
		want       string
	}{
		"a variable":         {shellSteps("true"), "the environment variable LONG_VALUE has 140011 bytes"},
		"a command":          {shellSteps("true #" + long), "the command has 140006 bytes"},
		"a command's output": {shellSteps(`printf 'LATE=%0140000d' 0 >"$PULUMI_ENV"`, "true"), "the environment variable LATE has 140005 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a variable" {
				tt.definition.Env["LONG_VALUE"] = long
			}
			h := newHarness(t, tt.definition)
			if code, _ := h.run(); code == 0 {
				t.Error("the job succeeded")
			}
			h.wantLog(len(tt.definition.Steps)-1, tt.want)
		})
	}
}
