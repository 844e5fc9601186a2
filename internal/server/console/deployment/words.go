package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

func requester(d shown) string { return cmp.Or(d.User.Login, d.Requester, "the server") }

// called is the name of the requester, or else what [requester] returns.
func called(d shown) string { return cmp.Or(d.User.Name, requester(d)) }

// operationWords are the words for an operation: as the name of a run, while it runs, and of several runs.
type operationWords struct{ name, doing, many string }

var operationNames = map[workflow.Operation]operationWords{
	workflow.OperationUpdate:         {"Update", "Updating", "updates"},
	workflow.OperationPreview:        {"Preview", "Previewing", "previews"},
	workflow.OperationRefresh:        {"Refresh", "Refreshing", "refreshes"},
	workflow.OperationDestroy:        {"Destroy", "Destroying", "runs of destroy"},
	workflow.OperationDetectDrift:    {"Drift detection", "Detecting drift", "drift detections"},
	workflow.OperationRemediateDrift: {"Put back drift", "Putting back drift", "runs that put back drift"},
}

func wordsOf(op workflow.Operation) operationWords {
	if w, ok := operationNames[op]; ok {
		return w
	}
	return operationWords{string(op), string(op), "runs of " + string(op)}
}

// origin says what started a deployment, with the name of its icon.
func origin(d shown) (icon, text string) {
	branch := ""
	if g := d.Settings.Git(); g != nil {
		branch = strings.TrimPrefix(g.Branch, "refs/heads/")
	}
	to := func(what string) string {
		if branch == "" {
			return what
		}
		return what + " to " + branch
	}
	switch d.Initiator {
	case vcs.InitiatorPush:
		return "push", to("push")
	case vcs.InitiatorTag:
		return "tag", "tag"
	case vcs.InitiatorPull:
		return "pr", "pull request"
	case vcs.InitiatorReview:
		return "pr", "review stack"
	case deployments.InitiatorConsole:
		return "click", "console"
	case "schedule":
		return "clock", "schedule"
	case "api":
		return "terminal", "API"
	default:
		return "terminal", view.Initiator(d.Initiator)
	}
}

// shortCommit returns the beginning of the commit's id, as git shows it.
func shortCommit(id string) string { return id[:min(7, len(id))] }

// firstLine returns the first line of a message as text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return termtext.OneLine(line, 200)
}

// oneLine returns untrusted text as one printable line, also for attributes.
func oneLine(text string) string { return termtext.OneLine(text, 0) }

// about returns a usual time without false precision.
func about(d time.Duration) time.Duration {
	switch {
	case d >= 10*time.Minute:
		return d.Round(time.Minute)
	case d >= time.Minute:
		return d.Round(30 * time.Second)
	default:
		return max(time.Second, d.Round(time.Second))
	}
}

// usual says how long the last good runs took, or "".
func usual(d shown) string {
	u := d.Usual
	if u.Runs == 0 {
		return ""
	}
	low, high := words.Duration(about(u.Low)), words.Duration(about(u.High))
	text := "Usually " + words.Duration(about(u.Median))
	if low != high {
		text = "Usually " + low + " to " + high
	}
	return fmt.Sprintf("%s, from the last %d %s.", text, u.Runs, wordsOf(d.Operation).many)
}

// stateBadge returns the word for the state of a deployment and the kind of its badge; "" for none.
func stateBadge(d shown) (kind, text string) {
	switch d.Verdict.State {
	case waiting.StateQueued:
		switch {
		case d.Why.Position > 0:
			return "", "queued, " + waiting.Ordinal(d.Why.Position)
		case d.Why.Ahead > 0:
			return "", "queued, " + waiting.Ordinal(d.Why.Ahead+1)
		}
		return "", "queued"
	case waiting.StateClaimed:
		return "run", "starting"
	case waiting.StateRunning:
		if d.Job.CancelRequested {
			return "warn", "stopping"
		}
		return "run", strings.ToLower(wordsOf(d.Operation).doing)
	case waiting.StateFailed, waiting.StateLost:
		return "bad", d.Verdict.State
	case waiting.StateDrift:
		return "warn", "drift found"
	case waiting.StateSucceeded:
		return "", ""
	default:
		return "", d.Verdict.State
	}
}

// verdict is what screen readers hear when the state changes.
func verdict(d shown) string {
	if d.Cause != nil {
		return d.Cause.Headline
	}
	return d.Verdict.Text
}

// headline returns the first sentence of a reason for waiting, without what is in brackets at its end, and the rest.
func headline(text string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimSuffix(text, "."), ". ")
	if rest != "" {
		rest += "."
	}
	if short, more, ok := strings.Cut(first, " ("); ok && strings.HasSuffix(more, ")") {
		first, rest = short, strings.TrimSpace(words.Capital(strings.TrimSuffix(more, ")"))+". "+rest)
	}
	return first, rest
}

// start says what must happen before a queued deployment starts, or "".
func start(why waiting.Why) string {
	switch why.Reason {
	case waiting.NoAgent:
		return "as soon as an agent is online"
	case waiting.Busy, waiting.Limit:
		return "as soon as a running deployment ends"
	case waiting.Drained, waiting.NotReady:
		return "as soon as an agent takes jobs"
	case waiting.NoPool:
		return "when a pool is chosen"
	case waiting.OrgPaused, waiting.StackPaused:
		return "when the queue is resumed"
	case waiting.Earlier, waiting.Lost, waiting.Group:
		return "after the deployments before it"
	case waiting.Next:
		return "within seconds"
	default:
		return ""
	}
}

// firstFailure says how a failure relates to the runs before it, or "".
func firstFailure(d shown) string {
	switch {
	case d.Good == nil:
		return ""
	case d.Failures > 0:
		return fmt.Sprintf("%s failure since then", waiting.Ordinal(int64(d.Failures)+1))
	case d.Goods == 1:
		return "First failure after 1 good run"
	default:
		return fmt.Sprintf("First failure after %d good runs", d.Goods)
	}
}

// waitsOnly reports whether a deployment begins without a decision of its users: it is no warning.
func (d shown) waitsOnly() bool {
	return slices.Contains([]string{waiting.Next, waiting.Earlier, waiting.Group, waiting.Limit, waiting.Busy}, d.Why.Reason)
}

// hint names the commands that resolve why a deployment waits, without what a button does: that of the page, or that of
// the page of the deployment before it.
func (d shown) hint() string {
	if d.Why.Action.Kind == waiting.Post {
		return ""
	}
	lines := strings.Split(d.Why.Hint, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "To cancel deployment #") }), "\n")
}

// goodName returns the name of the last good run.
func goodName(r deployments.Run) string {
	if r.Deployment > 0 {
		return fmt.Sprintf("#%d", r.Deployment)
	}
	return fmt.Sprintf("v%d", r.Update)
}

// copied returns what *Copy as text* copies, without the addresses.
func copied(d shown) string {
	lines := []string{fmt.Sprintf("%s/%s #%d %s: %s", d.St.Project, d.St.Name, d.Version, d.Verdict.State, d.Cause.Headline)}
	if d.says() {
		lines = append(lines, d.Cause.Message)
	}
	if d.Good != nil {
		lines = append(lines, "Last good: "+goodName(*d.Good)+". "+firstFailure(d)+".")
	}
	return strings.Join(lines, "\n")
}

// says reports whether the message of the cause says more than its headline.
func (d shown) says() bool {
	return d.Cause.Message != "" && (d.Cause.Kind == cause.Resource || strings.HasSuffix(d.Cause.Headline, "…"))
}

// previewName names a preview of a kind of update, as the CLI does: "pulumi preview" has its own kind.
func previewName(kind string) string {
	if kind == "preview" {
		return kind
	}
	return kind + " (preview)"
}
