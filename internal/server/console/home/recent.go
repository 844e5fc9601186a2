package home

import (
	"strconv"

	"workflowagent/internal/server/console/queue"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// verbs say what a run did, by its kind, and what it failed to do.
var verbs = map[string]struct{ did, failed string }{
	"update":          {"updated", "failed to update"},
	"destroy":         {"destroyed", "failed to destroy"},
	"refresh":         {"refreshed", "failed to refresh"},
	"import":          {"imported", "failed to import"},
	"rename":          {"renamed", "failed to rename"},
	"detect-drift":    {"checked for drift and updated", "checked for drift and failed"},
	"remediate-drift": {"remediated drift", "failed to remediate drift"},
}

// did says what a change did, after the name of who did it.
func did(c estate.Change) string {
	v, ok := verbs[c.LastKind]
	switch {
	case c.LastResult == store.RunCancelled:
		return "cancelled " + c.LastKind
	case !ok:
		return c.LastKind
	case c.LastResult == store.RunFailed:
		return v.failed
	default:
		return v.did
	}
}

// who names who made a change: a user, or what started the deployment.
func who(c estate.Change) string {
	if by := c.By(); by != "" {
		return by
	}
	switch c.Initiator {
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

// message returns what a change is about: the message of its client, or its number.
func message(c estate.Change) string {
	switch {
	case c.LastMessage != "":
		return c.LastMessage
	case c.LastDeployment > 0:
		return "#" + strconv.FormatInt(c.LastDeployment, 10)
	default:
		return "version " + strconv.FormatInt(c.LastVersion, 10)
	}
}

// origin returns the icon and the words for what started a run.
func origin(c estate.Change) (icon, text string) {
	if c.LastDeployment == 0 {
		return "terminal", "from the CLI"
	}
	return queue.Origin(c.Initiator)
}
