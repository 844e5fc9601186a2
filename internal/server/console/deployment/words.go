package deployment

import (
	"cmp"
	"strings"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/workflow"
)

func requester(d shown) string { return cmp.Or(d.User.Login, d.Requester, "the server") }

// commit returns branch and commit of the source, or "".
func commit(d shown) string {
	if d.Settings == nil {
		return ""
	}
	git := d.Settings.Git()
	if git == nil {
		return ""
	}
	branch := strings.TrimPrefix(git.Branch, "refs/heads/")
	if git.Commit == "" {
		return branch
	}
	return branch + "@" + git.Commit[:min(7, len(git.Commit))]
}

// operations are the operations that users can start, with what they do.
var operations = []view.Option{
	{Value: string(workflow.OperationUpdate), Text: "Update", Hint: "Changes the resources to what the program describes."},
	{Value: string(workflow.OperationPreview), Text: "Preview", Hint: "Shows what an update would change, and changes nothing."},
	{Value: string(workflow.OperationRefresh), Text: "Refresh", Hint: "Reads the real resources into the state."},
	{Value: string(workflow.OperationDetectDrift), Text: "Detect drift", Hint: "Reports where the real resources differ from the state, and changes nothing."},
	{Value: string(workflow.OperationRemediateDrift), Text: "Remediate drift", Hint: "Changes the resources back to what the program describes."},
	{Value: string(workflow.OperationDestroy), Text: "Destroy", Hint: "Deletes all resources of the stack."},
}
