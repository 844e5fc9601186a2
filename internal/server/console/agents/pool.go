package agents

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// detail is the page of one pool.
type detail struct {
	Org     string
	Pool    pools.Summary
	Agents  []agentRow
	Queue   deployments.Listing
	Rows    []runs.Row
	Tokens  []store.Token
	Reasons []string // why nothing is handed out
	Install []Way
	Way     string
	Open    bool // shows the ways to install
	Admin   bool
	// DeleteProblem and EditProblem are the errors of forms.
	DeleteProblem, EditProblem string
}

// agentRow is an agent with its work.
type agentRow struct {
	pools.Agent
	deployments.AgentWork
	Org, Path string
	// Newer is the version to which the agent can be updated; it can be empty.
	Newer string
}

// state is the state of the agent in a word.
func (a agentRow) state() string {
	switch {
	case !a.Online:
		return "offline"
	case len(a.Running) > 0:
		return "busy"
	case a.Slots == 0, a.Drain != nil:
		return "draining"
	default:
		return "free"
	}
}

func (a agentRow) jobPath(e store.QueueEntry) string {
	return links.Path(a.Org, e.Project, e.Stack, "deployments", strconv.FormatInt(e.Version, 10))
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	return p.detailPage(v, func(*detail) {})
}

func (p *pages) detailPage(v *page.Visit, change func(*detail)) (view.Page, error) {
	d, err := p.load(v)
	if err != nil {
		return view.Page{}, err
	}
	change(&d)
	return view.Page{
		Title: d.Pool.Name, Section: "pools",
		Crumbs: crumbs(v, view.Crumb{Text: d.Pool.Name}),
		Body:   detailBody(d), Live: topics(v),
	}, nil
}

func (p *pages) load(v *page.Visit) (detail, error) {
	ctx, id := v.Context(), v.Param("pool")
	d := detail{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Way: cmp.Or(v.Query("install"), "script")}
	var err error
	if d.Pool, err = p.Pools.Summary(ctx, v.Who, v.Org.ID, id); err != nil {
		return d, err
	}
	if d.Agents, err = p.agentsOf(v, d.Pool.AgentPool); err != nil {
		return d, err
	}
	if d.Queue, err = p.Deployments.Page(ctx, v.Who, v.Org.ID, deployments.Query{Stage: deployments.StageQueued, PoolID: id, Limit: shownQueue}); err != nil {
		return d, err
	}
	d.Rows = runs.Rows(v.Org.Name, d.Queue, nil)
	if d.Tokens, err = p.Pools.Tokens(ctx, v.Org.ID, id); err != nil { // shown only to administrators
		return d, err
	}
	load, err := p.Deployments.Queues(ctx, v.Who, v.Org.ID, "")
	if err != nil {
		return d, err
	}
	d.Reasons = reasons(d, load)
	d.Install, d.Open = Ways(p.URL, p.Releases), len(d.Agents) == 0 || v.Query("install") != ""
	return d, nil
}

// shownQueue is the number of queued deployments on the page of a pool.
const shownQueue = 10

func (p *pages) agentsOf(v *page.Visit, pool store.AgentPool) ([]agentRow, error) {
	known, err := p.Pools.Get(v.Context(), v.Org.ID, pool.ID)
	if err != nil {
		return nil, err
	}
	work, err := p.Deployments.Work(v.Context(), v.Who, pool)
	if err != nil {
		return nil, err
	}
	var online, others []agentRow
	for _, a := range known.Agents {
		row := agentRow{Agent: a, AgentWork: work[a.AgentID], Org: v.Org.Name, Path: poolPath(v.Org.Name, pool.ID, "agents", a.AgentID)}
		if pools.Older(a.Version, p.Server.Version) {
			row.Newer = p.Server.Version
		}
		if a.Online {
			online = append(online, row)
		} else {
			others = append(others, row)
		}
	}
	return append(online, others...), nil
}

// reasons returns why queued deployments of a pool are not handed out, in sentences.
func reasons(d detail, load deployments.Queues) []string {
	var out []string
	if len(d.Tokens) == 0 && !d.Pool.BuiltIn {
		out = append(out, "The pool has no token, so no agent can connect. Create a token below.")
	}
	if load.Org.Paused {
		out = append(out, "All deployments of the organization are paused.")
	}
	if load.Active >= load.Cap {
		out = append(out, fmt.Sprintf("The organization has reached its limit of %d active deployments.", load.Cap))
	}
	switch {
	case d.Pool.Online == 0 && len(d.Agents) > 0:
		out = append(out, "No agent is online. Check the agents below on their hosts with: customer-managed-workflow-agent doctor")
	case d.Pool.Online > 0 && d.Pool.Slots == 0:
		out = append(out, "The online agents get no deployments: they are drained, or cannot start jobs.")
	case d.Pool.Online > 0 && d.Pool.Queued > 0 && d.Pool.Free() == 0:
		out = append(out, "All online agents are busy. To run more at once, start another agent or raise max_concurrent_jobs.")
	}
	return out
}

func (p *pages) setDefault(chosen bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		id := ""
		if chosen {
			id = v.Param("pool")
		}
		err := p.Pools.SetDefault(v.Context(), v.Org.ID, id)
		return page.See(page.Back(v, links.Path(v.Org.Name, "-", "pools"))), err
	}
}

func (p *pages) edit(v *page.Visit) (page.Answer, error) {
	name, description := v.Form("name"), v.Form("description")
	_, err := p.Pools.Rename(v.Context(), v.Org.ID, v.Param("pool"), &name, &description)
	return page.Changed(v, err, poolPath(v.Org.Name, v.Param("pool")), func(v *page.Visit, problem string) (view.Page, error) {
		return p.detailPage(v, func(d *detail) { d.EditProblem = problem })
	})
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	pool, err := p.Pools.Summary(v.Context(), v.Who, v.Org.ID, v.Param("pool"))
	if err != nil {
		return page.Answer{}, err
	}
	err = fault.Invalid("This is not the name of the pool.")
	if v.Form("confirm") == pool.Name {
		err = p.Pools.Delete(v.Context(), v.Org.ID, pool.AgentPool.ID, v.Form("force") == "on", deployments.ForgetPool)
	}
	return page.Changed(v, err, links.Path(v.Org.Name, "-", "pools"), func(v *page.Visit, problem string) (view.Page, error) {
		return p.detailPage(v, func(d *detail) { d.DeleteProblem = problem })
	})
}

func (p *pages) addToken(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, errGrant
	}
	pool, err := p.Pools.Summary(v.Context(), v.Who, v.Org.ID, v.Param("pool"))
	if err != nil {
		return page.Answer{}, err
	}
	text, _, err := p.Pools.AddToken(v.Context(), v.Who, v.Org.ID, pool.AgentPool.ID, v.Form("description"), time.Time{})
	if err != nil {
		return page.Answer{}, err
	}
	return p.once(v, pool.AgentPool, text), nil
}

func (p *pages) revoke(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, errGrant
	}
	err := p.Pools.RevokeToken(v.Context(), v.Who, v.Org.ID, v.Param("pool"), v.Param("token"))
	return page.See(poolPath(v.Org.Name, v.Param("pool"))), err
}

// drain makes an agent get no more jobs, or get jobs again.
func (p *pages) drain(drained bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		pool, agent := v.Param("pool"), v.Param("agent")
		err := p.Pools.Drain(v.Context(), v.Who, v.Org.ID, pool, agent, drained)
		return page.See(poolPath(v.Org.Name, pool, "agents", agent)), err
	}
}
