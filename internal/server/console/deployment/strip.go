package deployment

import (
	"slices"
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// segment is a part of the time that a deployment took.
type segment struct {
	Name   string
	Status string
	Took   time.Duration
	// Usual is how long a step that has not begun usually takes, or 0.
	Usual time.Duration
	// Since is when the segment began if it has not ended; otherwise zero.
	Since time.Time
	Began time.Time // zero before
	// Share is the part of the whole time in percent.
	Share int
	// Step is the number of the step's log; -1 for the queue.
	Step int
	Exit *int
}

// mark returns the mark of a segment's state.
func (s segment) mark() string { return view.MarkOf(s.Status) }

// bar returns the class of a segment's share in the time.
func (s segment) bar() string {
	switch s.mark() {
	case view.MarkFailed:
		return "x"
	case view.MarkRunning:
		return "r"
	default:
		return "a"
	}
}

// time returns how long a segment took, or usually takes.
func (s segment) time() string {
	switch {
	case s.Status == "skipped":
		return "skipped"
	case s.Status == "queued" && s.Step >= 0 && s.Usual > 0:
		return "~" + words.Elapsed(s.Usual)
	case s.Began.IsZero():
		return ""
	default:
		return words.Elapsed(s.Took)
	}
}

// The names of the segments before the steps.
const (
	queueSegment = "Wait in the queue"
	startSegment = "Start the agent's job"
)

// segments divides the time of a job: queue and start, then the steps. usual are the usual times of the steps.
func segments(job store.Job, usual map[string]time.Duration, now time.Time) []segment {
	end := timeOr(job.EndedAt, now)
	queued := segment{Name: queueSegment, Step: -1, Status: "succeeded", Began: job.QueuedAt, Took: timeOr(job.ClaimedAt, end).Sub(job.QueuedAt)}
	if job.ClaimedAt.IsZero() {
		queued.Status = "running"
		if job.Status.Final() {
			queued.Status = "skipped"
		} else {
			queued.Since = job.QueuedAt
		}
	}
	list := []segment{queued}
	if !job.ClaimedAt.IsZero() {
		setup := segment{Name: startSegment, Status: "running", Began: job.ClaimedAt, Took: timeOr(firstStart(job), end).Sub(job.ClaimedAt)}
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
		one := segment{Name: s.Name, Step: i + 1, Status: stepStatus(s.Status), Exit: s.ExitCode, Began: s.StartedAt, Usual: usual[s.Name]}
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
	}
	return list
}

// ordered returns the segments with those that failed first, and the one that the log shows first.
func ordered(list []segment) (out []segment, current int) {
	out = slices.Clone(list)
	slices.SortStableFunc(out, func(a, b segment) int { return order(a) - order(b) })
	for i, s := range out {
		if s.Status == "failed" || s.Status == "running" {
			return out, i
		}
		if s.Status == "succeeded" {
			current = i
		}
	}
	return out, current
}

func order(s segment) int {
	if s.Status == "failed" {
		return 0
	}
	return 1
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
