package stacksettings

import (
	"cmp"
	"slices"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/workflow"
)

// postRunKinds are the kinds of post-run commands, in the order in which the form stores them.
var postRunKinds = []struct{ name, label, hint string }{
	{workflow.WhenAlways, "in any case", "One per line. If one fails, the deployment fails."},
	{workflow.WhenSuccess, "after a success", ""},
	{workflow.WhenFailure, "after a failure", ""},
}

// postRunLines returns the post-run commands of a kind.
func postRunLines(set *workflow.Settings, when string) (out []string) {
	for _, c := range set.PostRunCommands() {
		if c.When == when || c.When == "" && when == workflow.WhenAlways {
			out = append(out, c.Command)
		}
	}
	return out
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
// The settings can have them in an order that the form cannot show.
func postRunPatch(v *page.Visit, set *workflow.Settings) (commands []workflow.PostRunCommand, changed bool) {
	for _, kind := range postRunKinds {
		lines := v.Lines("after-" + kind.name)
		// A stored command can have several lines, which the form shows like several commands.
		stored := strings.FieldsFunc(strings.Join(postRunLines(set, kind.name), "\n"), func(r rune) bool { return r == '\n' })
		for i := range stored {
			stored[i] = strings.TrimSpace(stored[i])
		}
		stored = slices.DeleteFunc(stored, func(line string) bool { return line == "" })
		changed = changed || !slices.Equal(lines, stored)
		for _, line := range lines {
			commands = append(commands, workflow.PostRunCommand{Command: line, When: kind.name})
		}
	}
	return commands, changed
}
