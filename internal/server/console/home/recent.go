package home

import (
	"strconv"

	"workflowagent/internal/server/console/deeds"
	"workflowagent/internal/server/stacks/estate"
)

// did says what a change did, after the name of who did it.
func did(c estate.Change) string { return deeds.Did(c.LastKind, c.LastResult) }

// who names who made a change: a user, or what started the deployment.
func who(c estate.Change) string { return deeds.Who(c.By(), c.Initiator) }

// origin returns the icon and the words for what started a run.
func origin(c estate.Change) (icon, text string) {
	return deeds.Origin(c.LastDeployment > 0, c.Initiator)
}

// message returns what a change is about: the message of its client, or its number.
func message(c estate.Change) string {
	switch {
	case c.LastMessage != "":
		return c.LastMessage
	case c.LastDeployment > 0:
		return "#" + strconv.FormatInt(c.LastDeployment, 10)
	default:
		return "v" + strconv.FormatInt(c.LastVersion, 10)
	}
}
