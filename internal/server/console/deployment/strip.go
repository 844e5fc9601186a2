package deployment

import (
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// segment is a part of the time that a deployment took.
type segment struct {
	Name   string
	Status string
	Took   time.Duration
	// Since is when the segment began if it has not ended; otherwise zero.
	Since time.Time
	// Share is the part of the whole time in percent, at least 2.
	Share int
	// Step is the number of the step's log; -1 for the queue.
	Step int
	Exit *int
}

// segments divides the time of a job: queue and start, then the steps.
func segments(job store.Job, now time.Time) []segment {
	end := timeOr(job.EndedAt, now)
	queued := segment{Name: "queue", Step: -1, Status: "succeeded", Took: timeOr(job.ClaimedAt, end).Sub(job.QueuedAt)}
	if job.ClaimedAt.IsZero() {
		queued.Status = "queued"
		if job.Status.Final() {
			queued.Status = "skipped"
		} else {
			queued.Since = job.QueuedAt
		}
	}
	list := []segment{queued}
	if !job.ClaimedAt.IsZero() {
		setup := segment{Name: "start", Status: "running", Took: timeOr(firstStart(job), end).Sub(job.ClaimedAt)}
		if !firstStart(job).IsZero() {
			setup.Status = "succeeded"
		} else if job.Status.Final() {
			setup.Status = "failed"
		} else {
			setup.Since = job.ClaimedAt
		}
		list = append(list, setup)
	}
	for i, s := range job.Steps {
		one := segment{Name: s.Name, Step: i + 1, Status: stepStatus(s.Status), Exit: s.ExitCode}
		if !s.StartedAt.IsZero() {
			one.Took = max(0, timeOr(s.FinishedAt, end).Sub(s.StartedAt))
		}
		switch {
		case one.Status == "running" && !job.Status.Final():
			one.Since = s.StartedAt
		case one.Status == "running":
			one.Status = "failed"
		case job.Status.Final() && one.Status == "queued":
			one.Status = "skipped"
		}
		if one.Status == "failed" && job.DriftFound {
			one.Status = view.StatusWord(waiting.StateDrift)
		}
		list = append(list, one)
	}
	var all time.Duration
	for _, s := range list {
		all += max(0, s.Took)
	}
	for i := range list {
		if all > 0 {
			list[i].Share = int(100 * max(0, list[i].Took) / all)
		}
		list[i].Share = max(2, list[i].Share)
	}
	return list
}

func firstStart(job store.Job) time.Time {
	for _, s := range job.Steps {
		if !s.StartedAt.IsZero() {
			return s.StartedAt
		}
	}
	return time.Time{}
}

func stepStatus(s workflow.StepStatus) string {
	switch s {
	case workflow.StepNotStarted:
		return "queued"
	case workflow.StepRunning:
		return "running"
	case workflow.StepSucceeded:
		return "succeeded"
	case workflow.StepFailed:
		return "failed"
	default:
		return string(s)
	}
}
