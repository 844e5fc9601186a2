package stacksettings

import (
	"cmp"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/workflow"
)

type postRunKind struct{ name, label, hint string }

// postRunKinds are the kinds of post-run commands, in the order in which the form stores them.
var postRunKinds = []postRunKind{
	{workflow.WhenAlways, "after it in any case", "One per line. If one fails, the deployment fails."},
	{workflow.WhenSuccess, "after a success", ""},
	{workflow.WhenFailure, "after a failure", ""},
}

// postRunLines returns the post-run commands of a kind.
func postRunLines(set *workflow.Settings, when string) (out []string) {
	for _, c := range set.PostRunCommands() {
		if cmp.Or(c.When, workflow.WhenAlways) == when {
			out = append(out, c.Command)
		}
	}
	return out
}

// postRunEditable reports whether the form can show post-run commands as they are stored: in the order of their
// kinds, and each on one line.
func postRunEditable(set *workflow.Settings) bool {
	last := 0
	for _, c := range set.PostRunCommands() {
		kind := slices.IndexFunc(postRunKinds, func(k postRunKind) bool { return k.name == cmp.Or(c.When, workflow.WhenAlways) })
		if kind < last || strings.ContainsAny(c.Command, "\r\n") {
			return false
		}
		last = kind
	}
	return true
}

// postRunText returns post-run commands in words.
func postRunText(commands []workflow.PostRunCommand) string {
	var lines []string
	for _, c := range commands {
		lines = append(lines, c.Command+" ("+cmp.Or(c.When, workflow.WhenAlways)+")")
	}
	return strings.Join(lines, "\n")
}

// postRunPatch returns the post-run commands in a form, and whether they differ from those in the settings.
func postRunPatch(v *page.Visit, set *workflow.Settings) (commands []workflow.PostRunCommand, changed bool) {
	if !postRunEditable(set) {
		return nil, false
	}
	for _, kind := range postRunKinds {
		lines, stored := v.Lines("after-"+kind.name), postRunLines(set, kind.name)
		for i := range stored {
			stored[i] = strings.TrimSpace(stored[i])
		}
		changed = changed || !slices.Equal(lines, stored)
		for _, line := range lines {
			commands = append(commands, workflow.PostRunCommand{Command: line, When: kind.name})
		}
	}
	return commands, changed
}
