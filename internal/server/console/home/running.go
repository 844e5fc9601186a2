package home

import (
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// deployments returns the first deployments of a stage, with their usual times if they run.
func (p *pages) deployments(v *page.Visit, stage store.Stage, limit int) ([]runs.Row, error) {
	found, err := p.Deployments.Page(v.Context(), v.Who, v.Org.ID, deployments.Query{Stage: stage, Limit: limit})
	if err != nil || stage != deployments.StageActive {
		return runs.Rows(v.Org.Name, found, nil), err
	}
	usual, err := p.Deployments.UsualTimes(v.Context(), found.Items)
	return runs.Rows(v.Org.Name, found, usual), err
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

// now says what a deployment does, and where.
func now(r runs.Row) string {
	if r.State == waiting.StateClaimed || r.Job.AgentHostname == "" {
		return r.Now()
	}
	return r.Now() + " on " + r.Job.AgentHostname
}
