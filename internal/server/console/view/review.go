package view

import (
	"strings"

	"github.com/a-h/templ"

	"workflowagent/internal/words"
)

// Review is the page about a preview that waits for approval: what the update would do, deletes and replaces first, and
// the decision. Only the gallery shows it and [ApprovalChip]: the server has no approvals yet, and their pages use these
// parts when it has.
type Review struct {
	Plan Plan
	// Unsafe are a [Difference] for each delete and replace, and Safe the rows of a list of the other changes.
	Unsafe, Safe templ.Component
	// SideBySide is the path of all differences.
	SideBySide string
	Decision   Decision
	// Cards are what helps to decide: policies and commits.
	Cards templ.Component
}

// Plan is how many resources an update would delete, replace, update and create, and how many it leaves as they are.
type Plan struct{ Delete, Replace, Update, Create, Same int }

// unsafe returns the changes to read before a decision, in words, or "".
func (p Plan) unsafe() string {
	var list []string
	if p.Delete > 0 {
		list = append(list, words.Count(p.Delete, "delete"))
	}
	if p.Replace > 0 {
		list = append(list, words.Count(p.Replace, "replace"))
	}
	return strings.Join(list, ", ")
}

// Decision is what a user may decide about a preview.
type Decision struct {
	// Action is the path of the form.
	Action string
	// Given and Needed are numbers of approvals.
	Given, Needed int
	// Rules says who may approve, and whether the state is that of the preview.
	Rules string
	// Stale says why the preview cannot be approved any more, or is "".
	Stale string
}

func (d Decision) count() string {
	return words.Number(d.Given) + " of " + words.Count(d.Needed, "approval")
}
