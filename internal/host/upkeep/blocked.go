package upkeep

import (
	"slices"

	"workflowagent/internal/agent/status"
)

// Blocked says why an agent should not be restarted with another version now, in words
// that follow "the update"; "" if nothing is in the way. The jobs of an agent go on
// without it and are found again, so most do not count.
func Blocked(r status.Report) string {
	switch {
	case r.Draining || r.Stopping || r.State == status.Draining || r.State == status.Stopping || r.State == status.Ended:
		return "waits for the next start, as the agent is about to end"
	// Nobody could tell whether the new version reaches the server.
	case !r.Server.Connected:
		return "waits until the server answers the agent"
	case !r.Engine.Up:
		return "waits until jobs can run here"
	case r.Slots.Free == 0 && slices.ContainsFunc(r.Jobs, func(j status.Job) bool { return j.Epoch == 0 }):
		// Such a server is not asked for anything while there is no room for a job.
		return "waits for the end of a job, as this server can be asked for nothing before"
	}
	for _, j := range r.Jobs {
		switch j.Phase {
		case status.Preparing, status.StartingJob:
			return "waits until no job is being started"
		case status.Reattaching:
			return "waits until the jobs of the agent's last process are found again"
		}
	}
	return ""
}
