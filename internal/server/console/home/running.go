package home

import (
	"cmp"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/queue"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// running is a deployment that runs.
type running struct {
	queue.Row
	Usual time.Duration // 0 if unknown
}

// deployments returns the first deployments of a stage.
func (p *pages) deployments(v *page.Visit, stage store.Stage, limit int) ([]queue.Row, []deployments.Listed, error) {
	found, err := p.Deployments.Page(v.Context(), v.Who, v.Org.ID, deployments.Query{Stage: stage, Limit: limit})
	return queue.Rows(v.Org.Name, found), found.Items, err
}

// active returns deployments that run, with their usual times.
func (p *pages) active(v *page.Visit) ([]running, error) {
	rows, items, err := p.deployments(v, deployments.StageActive, shownRunning)
	if err != nil {
		return nil, err
	}
	usual, err := p.Deployments.UsualTimes(v.Context(), items)
	out := make([]running, len(rows))
	for i, r := range rows {
		out[i] = running{r, usual[r.ID]}
	}
	return out, err
}

// since returns the time at which the deployment was handed out or started.
func (r running) since() time.Time {
	if r.Job.StartedAt.IsZero() {
		return r.Job.ClaimedAt
	}
	return r.Job.StartedAt
}

// text says what the deployment does now.
func (r running) text() string {
	if r.State == waiting.StateClaimed {
		return "starts on " + cmp.Or(r.Job.AgentHostname, "an agent")
	}
	text := string(r.Operation)
	for _, step := range r.Job.Steps {
		if step.Status == workflow.StepRunning {
			text = step.Name
		}
	}
	if r.Job.AgentHostname != "" {
		text += " on " + r.Job.AgentHostname
	}
	return text
}

// share returns how much of the usual time is over, in percent. It is less than 100 until the deployment ends.
func (r running) share(now time.Time) float64 {
	if r.Usual <= 0 {
		return 0
	}
	return min(97, max(0, 100*float64(now.Sub(r.since()))/float64(r.Usual)))
}

// direct says what an update does that no deployment runs.
func direct(s estate.Stack) string {
	text := s.LastKind + " from the CLI"
	if by := s.By(); by != "" {
		text += ", by " + by
	}
	return text
}

// counts returns the numbers of running and queued deployments in words, or "".
func (o overview) counts() string {
	var texts []string
	if n := o.Queues.Running + int64(len(o.Direct)); n > 0 {
		texts = append(texts, words.Number(n)+" running")
	}
	if n := o.Queues.Queued; n > 0 {
		texts = append(texts, words.Number(n)+" queued")
	}
	return strings.Join(texts, ", ")
}
