// Package render writes the comments of pull requests as Markdown. All text that a program or a
// forge chose is escaped, so that it cannot contain HTML, mention users, or imitate other parts of
// a comment.
package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Style is what a forge's Markdown can do.
type Style struct {
	Limit int  // of a comment, in bytes
	Folds bool // whether the HTML element "details" works
}

// minLimit is the smallest limit for which [Comment] can write its fixed parts.
const minLimit = 2000

// Comment is what a server reports about one pull request.
type Comment struct {
	// Marker identifies the comment among the others of the server's account.
	Marker string
	Stacks []Stack
	// Notes are sentences above the table, such as why nothing runs.
	Notes []string
	// URL is the page with everything that the comment leaves out, or "".
	URL string
	// Secrets are masked in all text; nil means that none are known.
	Secrets *redact.Set
}

// Stack is the newest deployment of one stack for the pull request.
type Stack struct {
	Project, Name string
	Operation     workflow.Operation
	Status        workflow.Status
	Reason        string // why it ended as it did, or ""
	Outdated      bool   // whether it ran for an earlier commit
	Removed       bool   // whether the stack was removed since, with the updates that list its changes
	Took          time.Duration
	Commit        string
	URL           string // of the deployment
	// Changes is the result of the update, if any.
	Changes changes.Tree
	// Outputs are the outputs of a review stack. Secret outputs have no value.
	Outputs []Output
	// Policy is what the policy packs of the update found.
	Policy Policy
}

// Output is an output of a stack.
type Output struct {
	Name, Value string
	Secret      bool
}

// unchanged reports whether a stack needs only to be named.
func (s Stack) unchanged() bool {
	if s.Status != workflow.StatusSucceeded || s.Outdated || s.Removed || len(s.Outputs) > 0 || len(s.Changes.Messages) > 0 || !s.Policy.quiet() {
		return false
	}
	for op, n := range counts(s.Changes) {
		if n > 0 && op != "same" && op != "read" && op != "refresh" {
			return false
		}
	}
	return true
}

// counts returns the resources of an update by operation: those of the engine's summary, if it
// is known.
func counts(t changes.Tree) map[string]int {
	if t.Summarized {
		return t.Changes
	}
	return t.Totals
}

// Markdown returns a comment in a forge's style.
func Markdown(c Comment, style Style) string {
	w := writer{secrets: c.Secrets, limit: max(style.Limit, minLimit), folds: style.Folds}
	stacks := slices.SortedFunc(slices.Values(c.Stacks), func(a, b Stack) int {
		return cmp.Or(strings.Compare(a.Project, b.Project), strings.Compare(a.Name, b.Name))
	})
	var quiet, shown []Stack
	for _, s := range stacks {
		if s.unchanged() {
			quiet = append(quiet, s)
		} else {
			shown = append(shown, s)
		}
	}
	// The fixed parts come first in the budget, then rows, then details.
	foot := "\n\n" + marker(c.Marker) + "\n"
	more := w.more(c.URL)
	w.limit -= len(foot) + len(more) + 2
	for _, note := range c.Notes {
		w.add(w.text(note) + "\n\n")
	}
	left := w.table(shown)
	left = !w.quiet(quiet) || left
	left = !w.details(shown) || left
	out := strings.TrimRight(w.String(), "\n")
	if left {
		out += "\n\n" + more
	}
	return out + foot
}

// writer collects a comment's parts up to a limit.
type writer struct {
	strings.Builder
	secrets *redact.Set
	limit   int
	folds   bool
}

// add appends a part, unless it exceeds the limit.
func (w *writer) add(part string) bool {
	if w.Len()+len(part) > w.limit {
		return false
	}
	w.WriteString(part)
	return true
}

func (w *writer) more(url string) string {
	const text = "This comment is incomplete, because it would be too long."
	if url == "" {
		return text
	}
	return text + " " + link("Show everything", url)
}

// table writes one row per stack. It leaves at least half of the comment to the details, and
// reports whether it left out rows.
func (w *writer) table(stacks []Stack) (left bool) {
	if len(stacks) == 0 {
		return false
	}
	w.add("| Stack | Operation | Result | Changes | Duration | Commit |\n| --- | --- | --- | --- | --- | --- |\n")
	end := w.limit
	w.limit = max(w.Len(), end/2)
	defer func() { w.limit = end }()
	for i, s := range stacks {
		if w.add(w.row(s)) {
			continue
		}
		w.limit = end
		w.add(fmt.Sprintf("\n%d more stacks are not listed.\n", len(stacks)-i))
		return true
	}
	return false
}

func (w *writer) row(s Stack) string {
	outcome := result(s)
	if policy := s.Policy.words(); policy != "" {
		outcome += ", " + policy
	}
	took := ""
	if s.Took > 0 {
		took = words.Short(s.Took.Round(time.Second))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", w.name(s), w.text(string(s.Operation)), w.text(outcome), summary(s), took, w.code(short(s.Commit)))
}

// name returns a stack's name with a link to its deployment.
func (w *writer) name(s Stack) string { return link(escape(w.title(s)), s.URL) }

// title returns a stack's name as one line of text. The text is not empty, because Markdown gives
// empty emphasis another meaning.
func (w *writer) title(s Stack) string { return cmp.Or(w.line(s.Project+"/"+s.Name), "?") }

// result returns the words for the state of a deployment.
func result(s Stack) string {
	text := string(s.Status)
	switch s.Status {
	case workflow.StatusNotStarted:
		text = "queued"
	case workflow.StatusAccepted:
		text = "starting"
	case workflow.StatusSucceeded:
		text = "✅ succeeded"
	case workflow.StatusFailed:
		text = "❌ failed"
	case workflow.StatusRunning, workflow.StatusSkipped:
	}
	if s.Outdated {
		text += " (outdated)"
	}
	return text
}

// The operations that a comment counts, with their signs.
var signs = []struct{ sign, op string }{
	{"+", "create"}, {"~", "update"}, {"-", "delete"}, {"±", "replace"}, {"=>", "import"},
}

// summary returns the number of resources by operation, or that they are unknown.
func summary(s Stack) string {
	have := counts(s.Changes)
	var parts []string
	for _, each := range signs {
		if n := have[each.op]; n > 0 {
			parts = append(parts, fmt.Sprintf("`%s%d`", each.sign, n))
		}
	}
	switch {
	case s.Removed:
		return "stack removed"
	case len(parts) == 0 && s.Status == workflow.StatusSucceeded:
		return "none"
	}
	return strings.Join(parts, " ")
}

// quiet names the stacks without changes in one line.
func (w *writer) quiet(stacks []Stack) bool {
	if len(stacks) == 0 {
		return true
	}
	names := make([]string, 0, len(stacks))
	size := 0
	for _, s := range stacks {
		name := w.name(s)
		if size += len(name); size > w.limit/4 {
			names = append(names, fmt.Sprintf("and %d more", len(stacks)-len(names)))
			break
		}
		names = append(names, name)
	}
	return w.add("\nNo changes: "+strings.Join(names, ", ")+"\n") && size <= w.limit/4
}

// maxStatus is the maximum length of the summary of a status; GitHub accepts 140 characters.
const maxStatus = 140

// Text returns a sentence as the summary of a status.
func Text(s string) string { return termtext.OneLine(s, maxStatus) }

// Line returns the state of a deployment as one line of plain text.
func Line(s Stack, secrets *redact.Set) string {
	w := writer{secrets: secrets}
	text := result(s)
	if changed := summary(s); changed != "" && s.Status.Final() {
		text += ": " + strings.ReplaceAll(changed, "`", "")
	}
	if policy := s.Policy.words(); policy != "" {
		text += ": " + policy
	}
	if s.Reason != "" && s.Status != workflow.StatusSucceeded {
		text += ": " + s.Reason
	}
	return w.cut(text, maxStatus)
}
