package deployment

import (
	"cmp"
	"fmt"
	"strings"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/workflow"
)

// headline is the sentence at the top of the page.
func headline(d shown) string {
	job := d.Job
	switch statusOf(job) {
	case "queued":
		if d.Message == "" {
			return "Queued"
		}
		return "Queued: " + splitLines(d.Message)[0]
	case "claimed":
		return fmt.Sprintf("Starting on agent %s", job.AgentHostname)
	case "running":
		step := ""
		for _, s := range d.Steps {
			if s.Status == "running" {
				step = ": " + s.Name
			}
		}
		if job.CancelRequested {
			return "Cancelling" + step
		}
		return "Running" + step
	case "succeeded":
		return "Succeeded in " + view.Duration(run(job, d.Now))
	case "skipped":
		return "Skipped: " + cmp.Or(job.Message, string(job.Reason))
	case "cancelled":
		return "Cancelled: " + cmp.Or(job.Message, "a user cancelled the deployment")
	case "lost":
		return "Lost: " + cmp.Or(job.Message, "the server received nothing from the job for too long")
	default:
		text := "Failed"
		if took := run(job, d.Now); took > 0 {
			text += " after " + view.Duration(took)
		}
		return text + ": " + cmp.Or(job.Message, string(job.Reason))
	}
}

func splitLines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }

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

func imageOf(d shown) string {
	if d.Settings == nil || d.Settings.ExecutorContext == nil || d.Settings.ExecutorContext.ExecutorImage == nil {
		return ""
	}
	return d.Settings.ExecutorContext.ExecutorImage.Reference
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
