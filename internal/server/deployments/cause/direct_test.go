package cause_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/stacks/changes"
)

// TestOfUpdate finds the causes of updates that no deployment ran.
func TestOfUpdate(t *testing.T) {
	fold := func(name string) changes.Tree {
		var fold changes.Reducer
		for event := range strings.Lines(recorded(t, name)) {
			fold.Add([]byte(event))
		}
		return fold.Tree()
	}
	if c := cause.OfUpdate(fold("resource.jsonl")); c == nil || c.Headline != "value could not be created" || c.Kind != cause.Resource ||
		c.Message != "creating the file's directory: mkdir /proc/nothing: no such file or directory" {
		t.Errorf("a resource: %+v", c)
	}
	if c := cause.OfUpdate(fold("program.jsonl")); c == nil || c.Kind != cause.Program || c.Headline != `The program failed: resource, variable, or config value "nowhere" not found` {
		t.Errorf("a program: %+v", c)
	}
	if c := cause.OfUpdate(changes.Tree{}); c != nil {
		t.Errorf("without events: %+v", c)
	}
	hostile := "\x1b[31m<b>\u202egnp.exe\n" + strings.Repeat("x", 2000)
	tree := changes.Tree{Rows: []changes.Row{{URN: "u", Type: "pkg:index:Thing", Name: hostile, Op: "create", State: changes.Failed, Errors: 1, Message: "error: 1 error occurred:\n* " + hostile}}}
	c := cause.OfUpdate(tree)
	if c == nil || len(c.Headline) > 500 || len(c.Message) > 2000 || strings.ContainsAny(c.Headline+c.Message, "\x1b\n\u202e") || !strings.HasSuffix(c.Headline, " could not be created") {
		t.Errorf("a hostile resource: %+v", c)
	}
}
