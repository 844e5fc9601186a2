// Package policy shows what policy packs found, as a part of the pages of updates, deployments and stacks.
package policy

import (
	"slices"
	"strings"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// Shown is the number of violations that a page lists.
const Shown = 200

// Tab is the part of a page that lists violations.
var Tab = view.Part{Name: "policy", Text: "Policy"}

// Run is what the packs of an update found.
type Run struct {
	results.Report
	Href    string // of the part of the page with all of it
	Preview bool
	Expired bool // the server no longer keeps the violations
}

// Summary says in one sentence what was found, or "".
func (r Run) Summary() string {
	return words.And(findings.Numbers(r.Mandatory, r.Advisory, r.Excepted))
}

// Noted reports whether a page has to mention the packs.
func (r Run) Noted() bool { return r.Total() > 0 || len(r.Missing) > 0 }

func (r Run) noteKind() string {
	if r.Mandatory > 0 {
		return "bad"
	}
	return "warn"
}

// omitted is the number of violations that are not listed.
func (r Run) omitted() int64 { return r.Total() - int64(len(r.Violations)) }

// covers are the sentences about policies that are advisory because of exceptions for the whole stack.
func (r Run) covers() (out []string) {
	for _, p := range r.Packs {
		for _, c := range p.Covered {
			out = append(out, words.Capital(exceptions.Sentence(p.Pack, c))+".")
		}
	}
	return out
}

func (r Run) unknown() string {
	names := make([]string, len(r.Unknown))
	for i, u := range r.Unknown {
		names[i] = u.Pack + " " + u.Policy
	}
	return strings.Join(names, ", ")
}

// packState says what a pack did in an update.
func packState(p store.PolicyRun, missing []string) string {
	switch {
	case slices.Contains(missing, p.Pack):
		return "not evaluated"
	case !p.Ran && len(p.Counts) == 0:
		return "no result yet"
	case p.Mandatory+p.Advisory+p.Excepted == 0:
		return "no violation"
	default:
		return words.Count(int(p.Mandatory+p.Advisory+p.Excepted), "violation")
	}
}

// origin says why a pack ran.
func origin(p store.PolicyRun) string {
	if p.Required() {
		return "required by the group " + p.Group
	}
	return "not required; the client has chosen it"
}

// packName is a pack with its version.
func packName(pack, tag string) string { return termtext.OneLine(strings.TrimSpace(pack+" "+tag), 200) }

// resource is a resource as rows show it.
func resource(urn string) string {
	kind, name := changes.Parts(urn)
	return termtext.OneLine(strings.TrimSpace(kind+" "+name), 0)
}

// message is a message of a policy as one line.
func message(text string) string { return termtext.OneLine(text, 0) }

// whole is the title of a row: the URN and the message.
func whole(urn, text string) string { return termtext.OneLine(urn, 0) + "\n" + text }

// mark is the mark of a level.
func mark(level string, exceptions []string) string {
	if level == "mandatory" && len(exceptions) == 0 {
		return view.MarkFailed
	}
	return view.MarkWarn
}

// levelText is the level of a violation, with the exceptions that apply, and those that only the client knows.
func levelText(level string, exceptions, claimed []string) string {
	if len(exceptions) > 0 {
		level += ", " + strings.Join(exceptions, ", ")
	}
	if len(claimed) > 0 {
		level += ", not an exception of this organization: " + strings.Join(claimed, ", ")
	}
	return level
}

// Stack is what is known about the policies of a stack.
type Stack struct {
	results.Standing
	Unevaluated bool // the last update ended without a required pack
	Exceptions  []store.PolicyException
}

// Empty reports whether there is nothing to show.
func (s Stack) Empty() bool {
	return len(s.Packs) == 0 && s.Issues.Total == 0 && len(s.Exceptions) == 0
}

func (s Stack) count() string {
	if s.Issues.Total == 0 {
		return ""
	}
	return words.Count(int(s.Issues.Total), "open issue")
}

// Score returns the mark and the words for a score; see [results.Score].
func Score(n int) (mark, text string) {
	switch {
	case n == results.ScoreProblem:
		return view.MarkFailed, "error"
	case n < 0:
		return view.MarkNever, "not run"
	case n == 100:
		return view.MarkOK, "100 %"
	default:
		return view.MarkWarn, words.Number(n) + " %"
	}
}

// exceptionText says what an exception covers.
func exceptionText(e store.PolicyException) string {
	covers := words.Count(e.Targets(), "resource")
	if e.WholeStack {
		covers = "the whole stack, as advisory for all clients"
	}
	return e.Pack + " " + strings.Join(e.Policies(), ", ") + ": " + covers + ", given by " + e.CreatedBy + ": " + termtext.OneLine(e.Reason, 0)
}
