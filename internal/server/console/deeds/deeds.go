// Package deeds says in words who changed what, and how.
package deeds

import (
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// verbs say what a run did, by its kind, what it failed to do, and what it is to do.
var verbs = map[string]struct{ did, failed, do string }{
	"update":          {"updated", "failed to update", "update"},
	"destroy":         {"destroyed", "failed to destroy", "destroy"},
	"refresh":         {"refreshed", "failed to refresh", "refresh"},
	"import":          {"imported", "failed to import", "import"},
	"rename":          {"renamed", "failed to rename", "rename"},
	"detect-drift":    {"checked for drift and updated", "checked for drift and failed", "check for drift"},
	"remediate-drift": {"put back drift", "failed to put back drift", "put back drift"},
}

// Did says what a run did, after the name of who did it. The result "" is that of a run that has not started.
func Did(kind string, result store.RunResult) string {
	v, ok := verbs[kind]
	switch {
	case result == store.RunDrift:
		return "found drift"
	case result == store.RunCancelled:
		return "cancelled " + kind
	case !ok:
		return kind
	case result == "":
		return "asked to " + v.do
	case result == store.RunRunning:
		return "began to " + v.do
	case result == store.RunFailed:
		return v.failed
	default:
		return v.did
	}
}

// Who names who made a change: a user, or what started the deployment. initiator is "" if the run is none.
func Who(by, initiator string) string {
	if by != "" {
		return by
	}
	switch initiator {
	case "schedule":
		return "Schedule"
	case vcs.InitiatorPush, vcs.InitiatorTag:
		return "Push"
	case vcs.InitiatorPull, vcs.InitiatorReview:
		return "Pull request"
	case "":
		return "A token"
	default:
		return "The server"
	}
}

// Origin returns the icon and the words for what started a run.
func Origin(deployment bool, initiator string) (icon, text string) {
	if !deployment {
		return "terminal", "from the CLI"
	}
	switch initiator {
	case "":
		return "deploys", "started by the server"
	case deployments.InitiatorConsole:
		return "click", "started in the console"
	case "schedule":
		return "clock", "started by a schedule"
	case vcs.InitiatorPush:
		return "push", "started by a push"
	case vcs.InitiatorTag:
		return "tag", "started by a tag"
	case vcs.InitiatorPull:
		return "pr", "started by a pull request"
	case vcs.InitiatorReview:
		return "pr", "started for a review stack"
	case "webhook":
		return "hook", "started by a webhook"
	default:
		return "terminal", "started by " + view.Initiator(initiator)
	}
}
