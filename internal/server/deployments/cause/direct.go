package cause

import (
	"cmp"
	"regexp"
	"strings"

	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// OfUpdate returns the cause of the failure of an update that no deployment ran, from what its client reported; nil if
// the events do not tell.
func OfUpdate(tree changes.Tree) *store.Cause {
	var e Evidence
	e.Read(tree)
	if len(e.Failed) > 0 {
		f := e.Failed[0]
		c := store.Cause{Kind: Resource, URN: f.URN, Headline: named(f.Name, verb(f.Op)), Step: -1}
		for _, r := range tree.Rows {
			if r.URN == f.URN && r.Errors > 0 {
				c.Message = reported(r.Message)
			}
		}
		return &c
	}
	for _, m := range tree.Messages {
		if ofProgram(m) {
			text := reported(m.Text)
			return &store.Cause{Kind: Program, Headline: clip("The program failed: "+cmp.Or(text, "see its messages"), maxHeadline), Message: text, Step: -1}
		}
	}
	return nil
}

// reported returns the first line of a message of the engine that says something.
func reported(text string) string {
	for l := range strings.Lines(text) {
		if l = message(joblog.ErrorLine{Text: l}); l != "" && !counted.MatchString(l) {
			return l
		}
	}
	return ""
}

// counted matches the first line of messages of bridged providers, which the errors follow.
var counted = regexp.MustCompile(`^\d+ errors? occurred:$`)
