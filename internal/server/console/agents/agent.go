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
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// agentPage is the page of one agent.
type agentPage struct {
	Org      string
	Admin    bool
	Pool     pools.Summary
	Agent    agentRow
	Rows     []runs.Row // finished
	Running  []runs.Row
	Problems []problem
}

// problem is what looks wrong with an agent, and what to do.
type problem struct {
	Kind, Head, Text string
	// Command is for the agent's host; it can be empty.
	Command string
}

// recent is the number of jobs from which the health of an agent is derived.
const recent = 10

// doctor checks an agent on its host.
const doctor = "customer-managed-workflow-agent doctor"

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
		a.Agent.AgentID, a.Agent.Hostname, a.Agent.Version, a.Agent.Active = job.AgentID, job.AgentHostname, job.AgentVersion, int64(len(a.Running))
	}
	a.Problems = a.problems()
	return view.Page{
		Title: a.Agent.Hostname, Section: "pools",
		Object: &view.Object{Mark: a.Agent.mark(), Word: a.Agent.state(), Name: a.Agent.Hostname, Badges: agentBadges(a), Facts: agentFacts(a), Actions: agentActions(a)},
		Body:   agentBody(a), Live: topics(v),
	}, nil
}

// known reports whether the server knows the agent still.
func (a agentPage) known() bool { return !a.Agent.LastSeenAt.IsZero() }

// problems returns what looks wrong with an agent.
func (a agentPage) problems() []problem {
	var out []problem
	agent := a.Agent
	switch {
	case !agent.Online && agent.Active > 0:
		out = append(out, problem{"warn", "The agent is offline, but its deployments continue and report for themselves.", "If the agent stays silent, check its host:", doctor})
	case !agent.Online:
		out = append(out, problem{"warn", "The agent is offline.", "Check on its host whether it runs:", doctor})
	case agent.Slots == 0 && agent.Drain == nil:
		out = append(out, problem{"warn", "The agent polls but takes no jobs.", "It stops, or it cannot start jobs, for example because Docker is not available or its disk is full. Check its host:", doctor})
	}
	if agent.Newer != "" {
		out = append(out, problem{"info", agent.Newer + " is available.", "The agent runs " + agent.Version + ". Update it the way it was installed.", ""})
	}
	failed := 0
	for _, r := range a.Rows[:min(len(a.Rows), recent)] {
		switch r.Job.Reason {
		case workflow.ReasonLaunch, workflow.ReasonImage, workflow.ReasonRefused, workflow.ReasonLost, workflow.ReasonAbandoned, workflow.ReasonInternalError:
			failed++
		}
	}
	if failed > 1 {
		out = append(out, problem{"warn", fmt.Sprintf("%d of its last %s did not start, or were lost.", failed, words.Count(min(len(a.Rows), recent), "deployment")), "Drain the agent, and check its host:", doctor})
	}
	return out
}
