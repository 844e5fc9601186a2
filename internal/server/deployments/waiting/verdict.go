package waiting

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// The states of a [Verdict]. They are finer than the public statuses.
const (
	StateQueued    = "queued"
	StateClaimed   = "claimed"
	StateRunning   = "running"
	StateSucceeded = "succeeded"
	StateFailed    = "failed"
	StateCancelled = "cancelled"
	StateSkipped   = "skipped"
	StateLost      = "lost"
	// StateDrift is the end of a detection that found drift. Its status is mostly failed, because pulumi expected no
	// changes.
	StateDrift = "drift"
)

// Verdict says in words how a deployment does or how it ended.
type Verdict struct {
	State string
	// Text is one full sentence, or a few.
	Text string
	// Since is when a started deployment began; otherwise zero. Text contains the time since then as Elapsed.
	Since   time.Time
	Elapsed string
	// Step is the index of the step that failed first, or -1.
	Step     int
	StepName string
}

// State returns the state of a job.
func State(job store.Job) string {
	switch {
	case job.Status == workflow.StatusNotStarted:
		return StateQueued
	case job.Status == workflow.StatusAccepted:
		return StateClaimed
	case job.Status == workflow.StatusRunning:
		return StateRunning
	case job.DriftFound:
		return StateDrift
	case job.Status == workflow.StatusSucceeded:
		return StateSucceeded
	case job.Reason == workflow.ReasonCancelled:
		return StateCancelled
	case job.Status == workflow.StatusSkipped:
		return StateSkipped
	case job.Reason == workflow.ReasonLost:
		return StateLost
	default:
		return StateFailed
	}
}

// Judge returns the verdict about a job. why is the reason for waiting of a queued job.
func Judge(job store.Job, why Why, now time.Time) Verdict {
	v := Verdict{State: State(job), Step: -1}
	for i, step := range job.Steps {
		if step.Status == workflow.StepFailed && v.State != StateDrift {
			v.Step, v.StepName = i, step.Name
			break
		}
	}
	switch v.State {
	case StateQueued:
		v.Text = queuedText(why)
	case StateClaimed:
		v.Since, v.Elapsed = job.ClaimedAt, words.Duration(now.Sub(job.ClaimedAt))
		v.Text = fmt.Sprintf("Starting: %s claimed the deployment %s ago and prepares it.", cmp.Or(job.AgentHostname, "an agent"), v.Elapsed)
	case StateRunning:
		v.Since = latest(job.StartedAt, job.ClaimedAt)
		v.Elapsed = words.Duration(now.Sub(v.Since))
		v.Text = runningText(job, v.Elapsed)
	case StateSucceeded:
		v.Text = "Succeeded" + after(job) + "."
	case StateDrift:
		v.Text = "Drift found" + after(job) + ": the resources differ from the stack's state."
	case StateCancelled:
		v.Text = cancelledText(job)
	case StateSkipped:
		v.Text = cmp.Or(job.Message, "Skipped.")
	case StateLost:
		v.Text = "Lost" + after(job) + ": " + cmp.Or(job.Message, "the server received nothing from it for too long.")
	default:
		v.Text = "Failed" + after(job) + ": " + cause(job, v)
	}
	return v
}

func queuedText(why Why) string {
	switch {
	case why.Position == 1:
		return "Queued, next in its pool. " + why.Text
	case why.Position > 1:
		return fmt.Sprintf("Queued, %s in its pool. %s", Ordinal(why.Position), why.Text)
	case why.Ahead > 0:
		return fmt.Sprintf("Queued, %s of its stack. %s", Ordinal(why.Ahead+1), why.Text)
	default:
		return "Queued. " + why.Text
	}
}

func runningText(job store.Job, elapsed string) string {
	text := "Running for " + elapsed
	running := slices.IndexFunc(job.Steps, func(s store.StepState) bool { return s.Status == workflow.StepRunning })
	if running >= 0 {
		text += ": " + job.Steps[running].Name
	}
	switch {
	case job.ForceRequested:
		text += ". It was asked to stop at once"
	case job.CancelRequested:
		text += ". It was asked to stop, and has up to 15 min to do so"
	}
	return text + "."
}

// after returns how long a finished job ran, or "" if it did not run.
func after(job store.Job) string {
	from := latest(job.StartedAt, job.ClaimedAt)
	if from.IsZero() || job.EndedAt.Before(from) {
		return ""
	}
	return " after " + words.Duration(job.EndedAt.Sub(from))
}

func cancelledText(job store.Job) string {
	by, rest, found := strings.Cut(job.Message, ".")
	rest = sentence(rest)
	switch ran := after(job); {
	case !found || !strings.HasPrefix(by, "Cancelled by "):
		return strings.TrimSpace("Cancelled" + ran + ". " + job.Message)
	case ran == "":
		return by + " before it started." + rest
	default:
		return by + ran + "." + rest
	}
}

// sentence returns the words of another message as a sentence that follows others.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return " " + text
}

// causes are the reasons in words. Messages of agents and runners follow them.
var causes = map[workflow.Reason]string{
	workflow.ReasonSignal:       "a signal ended it",
	workflow.ReasonOOM:          "it ran out of memory",
	workflow.ReasonTimeout:      "it took too long",
	workflow.ReasonImage:        "its image could not be used",
	workflow.ReasonLaunch:       "the agent could not start it",
	workflow.ReasonRefused:      "the agent refused it",
	workflow.ReasonEvicted:      "its host stopped or removed it",
	workflow.ReasonAgentStopped: "the agent was stopped together with its jobs",
	workflow.ReasonInvalidJob:   "its definition is invalid",
	workflow.ReasonAbandoned:    "its agents stopped reporting before they started it",
	workflow.ReasonQueueTimeout: "it waited in the queue for too long",
}

func cause(job store.Job, v Verdict) string {
	message := strings.TrimSuffix(job.Message, ".")
	if job.Reason == workflow.ReasonExitCode || job.Reason == workflow.ReasonNone {
		if code := exitCode(job, v.Step); code != "" {
			return v.subject() + " ended with exit code " + code + "."
		}
		return cmp.Or(message, "a step failed") + "."
	}
	text := cmp.Or(causes[job.Reason], string(job.Reason))
	switch {
	case job.Reason == workflow.ReasonInternalError:
		text = "a defect in this product, see the log"
	case message != "":
		text += ": " + message
	}
	return text + "."
}

func (v Verdict) subject() string {
	if v.StepName == "" {
		return "the job"
	}
	return "step " + v.StepName
}

func exitCode(job store.Job, step int) string {
	if step >= 0 && job.Steps[step].ExitCode != nil {
		return fmt.Sprint(*job.Steps[step].ExitCode)
	}
	if n := len(job.Results); n > 0 && job.Results[n-1].Result.ExitCode != nil {
		return fmt.Sprint(*job.Results[n-1].Result.ExitCode)
	}
	return ""
}

// Ordinal returns "1st", "2nd" and so on.
func Ordinal(n int64) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}
