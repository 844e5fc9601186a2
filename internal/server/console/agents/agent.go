package agents

import (
	"fmt"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// agentPage is the page of one agent.
type agentPage struct {
	Org     string
	Admin   bool
	Pool    pools.Summary
	Agent   agentRow
	Rows    []runs.Row
	Running []runs.Row
	Health  []string
}

func (p *pages) agent(v *page.Visit) (view.Page, error) {
	pool, err := p.Pools.Summary(v.Context(), v.Who, v.Org.ID, v.Param("pool"))
	if err != nil {
		return view.Page{}, err
	}
	a := agentPage{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Pool: pool}
	list, err := p.agentsOf(v, pool.AgentPool)
	if err != nil {
		return view.Page{}, err
	}
	for _, row := range list {
		if row.AgentID == v.Param("agent") {
			a.Agent = row
		}
	}
	for stage, to := range map[store.Stage]*[]runs.Row{deployments.StageActive: &a.Running, deployments.StageFinished: &a.Rows} {
		found, err := p.Deployments.Page(v.Context(), v.Who, v.Org.ID, deployments.Query{Stage: stage, PoolID: pool.AgentPool.ID, AgentID: v.Param("agent")})
		if err != nil {
			return view.Page{}, err
		}
		*to = runs.Rows(v.Org.Name, found, nil)
	}
	if a.Agent.AgentID == "" {
		if len(a.Rows)+len(a.Running) == 0 {
			return view.Page{}, fault.NotFound("The pool %s has no agent %s. Agents are forgotten after an hour of silence.", pool.Name, v.Param("agent"))
		}
		job := append(a.Running, a.Rows...)[0].Job
		a.Agent.AgentID, a.Agent.Hostname, a.Agent.Version = job.AgentID, job.AgentHostname, job.AgentVersion
	}
	a.Health = health(a)
	return view.Page{
		Title: a.Agent.Hostname, Section: "pools",
		Crumbs: crumbs(v, view.Crumb{Text: pool.Name, Href: poolPath(v.Org.Name, pool.AgentPool.ID)}, view.Crumb{Text: a.Agent.Hostname}),
		Body:   agentBody(a), Live: topics(v),
	}, nil
}

// health returns what looks wrong with an agent, in sentences.
func health(a agentPage) []string {
	var out []string
	agent := a.Agent
	switch {
	case !agent.Online && len(a.Running) > 0:
		out = append(out, "The agent does not poll, but its jobs continue and report for themselves. If the agent stays silent, check its host.")
	case !agent.Online:
		out = append(out, "The agent does not poll. Check on its host whether it runs.")
	case agent.Slots == 0:
		out = append(out, "The agent polls but requests no jobs: it stops, or it cannot start jobs, for example because Docker is not available or its disk is full.")
	}
	if agent.Newer != "" {
		out = append(out, fmt.Sprintf("%s is available (running %s).", agent.Newer, agent.Version))
	}
	failed := 0
	for i, r := range a.Rows {
		if i == recent {
			break
		}
		switch r.Job.Reason {
		case "launch", "image", "refused", "lost", "abandoned", "internal-error":
			failed++
		}
	}
	if failed > 1 {
		out = append(out, fmt.Sprintf("%d of its last %d jobs did not start, or were lost.", failed, min(len(a.Rows), recent)))
	}
	return out
}
