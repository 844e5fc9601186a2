package changes

import (
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/stacks/changes"
)

// sorted returns the messages in the order in which the engine reported them.
func (m Model) sorted() []changes.Message {
	list := slices.Clone(m.Messages)
	slices.SortStableFunc(list, func(a, b changes.Message) int { return int(min(1, max(-1, a.Sequence-b.Sequence))) })
	return list
}

// about returns the messages about a resource.
func (m Model) about(urn string) []changes.Message {
	return slices.DeleteFunc(m.sorted(), func(msg changes.Message) bool { return msg.URN != urn })
}

// severity returns the word for the severity of a message.
func severity(s string) string {
	if s == "info#err" { // what the program or a plugin wrote to its standard error
		return "info"
	}
	return s
}

// severityClass is the color of a severity.
func severityClass(s string) string {
	switch s {
	case "error":
		return "bad"
	case "warning", "policy":
		return "warn"
	default:
		return "dim"
	}
}

// label returns the type and the name in a URN.
func label(urn string) string {
	kind, name := changes.Parts(urn)
	return oneLine(strings.TrimSpace(ShortType(kind) + " " + name))
}

// textLines returns the lines of a message.
func textLines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }

// unlabelled returns a message without the word for its severity, which is above it.
func unlabelled(msg changes.Message) string {
	return strings.TrimPrefix(msg.Text, severity(msg.Severity)+": ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
