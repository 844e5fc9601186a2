package changes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/termtext"
)

// marks are the marks of operations in short texts.
var marks = map[string]string{"create": "+", "update": "~", "replace": "±", "delete": "−", "import": "="}

// totalOrder is the order of the operations in totals.
var totalOrder = []string{"create", "import", "update", "replace", "delete", "read", "refresh"}

// partOfReplacement are the steps of which the replacement of a resource consists.
var partOfReplacement = map[string]bool{
	"create-replacement": true, "delete-replaced": true, "read-replacement": true, "import-replacement": true, "discard-replaced": true,
}

// Total is a number of resources with the same operation.
type Total struct {
	Op    string
	Count int
}

// Totals returns the totals in the order of display: those of the engine's summary, if it is known.
func Totals(t changes.Tree) (list []Total, all int) {
	counts := t.Totals
	if t.Summarized && t.Changes != nil {
		counts = t.Changes
	}
	rest, parts := map[string]int{}, 0
	for op, n := range counts {
		if partOfReplacement[op] {
			parts = max(parts, n)
			continue
		}
		all += n
		rest[op] = n
	}
	if rest["replace"] == 0 && parts > 0 { // the step that marks a replacement is not always counted
		all += parts
		rest["replace"] = parts
	}
	for _, op := range totalOrder {
		if n := rest[op]; n > 0 {
			list = append(list, Total{op, n})
		}
		delete(rest, op)
	}
	delete(rest, "same")
	for _, op := range slices.Sorted(maps.Keys(rest)) {
		if rest[op] > 0 {
			list = append(list, Total{op, rest[op]})
		}
	}
	return list, all
}

// changed are the operations that change resources, in the CLI's order.
var changed = []struct{ op, word string }{
	{"create", "created"}, {"update", "updated"}, {"replace", "replaced"}, {"delete", "deleted"}, {"import", "imported"},
}

// nothing is the short form of no changes.
const nothing = "no changes"

// Brief returns an update's changes in short, such as "+2 ~1", and in words, from its counts by operation.
func Brief(counts map[string]int64) (short, long string) {
	var brief, said []string
	for _, c := range changed {
		if n := counts[c.op]; n > 0 {
			brief = append(brief, marks[c.op]+strconv.FormatInt(n, 10))
			said = append(said, fmt.Sprintf("%d %s", n, c.word))
		}
	}
	if len(brief) == 0 {
		return nothing, "no resource changed"
	}
	return strings.Join(brief, " "), strings.Join(said, ", ")
}

// oneLine returns untrusted text as one printable line, also for attributes.
func oneLine(text string) string { return termtext.OneLine(text, 0) }
