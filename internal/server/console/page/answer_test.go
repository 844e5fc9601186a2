package page

import (
	"testing"

	"workflowagent/internal/server/fault"
)

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"the name is taken":                         "The name is taken.",
		"carol@corp.example signed in at Corp.":     "carol@corp.example signed in at Corp.",
		"operationContext.oidc: must be an object":  "operationContext.oidc: must be an object.",
		"name: must have at least 2 characters":     "Name: must have at least 2 characters.",
		"built-in runners are off":                  "Built-in runners are off.",
		"'x' is not the name of one of your stacks": "'x' is not the name of one of your stacks.",
	} {
		if got := Sentence(fault.Invalid("%s", text)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	named := fault.While(fault.Conflict("%s is disabled", "alice"), "inviting a user")
	if got := Sentence(named); got != "alice is disabled." {
		t.Errorf("a login became %q", got)
	}
}
