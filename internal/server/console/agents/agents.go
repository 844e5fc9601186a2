// Package agents contains the pages about agent pools, their agents and tokens, and about the server
// itself.
package agents

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/queue"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct {
	Deployments *deployments.Service
	Pools       *pools.Service
	Server      Server
	// URL is the server's address for agents, without a trailing slash.
	URL string
	// Releases reports whether the server serves a mirror of the agent's releases.
	Releases bool
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	const all = "/{org}/-/pools"
	const one = all + "/{pool}"
	site.View(all, page.Member, p.list)
	site.Action(all, page.Fresh(page.Admin), p.create)
	site.Action(all+"/no-default", page.Admin, p.setDefault(false))
	site.View(one, page.Member, p.show)
	site.Action(one+"/default", page.Admin, p.setDefault(true))
	site.Action(one+"/edit", page.Admin, p.edit)
	site.Action(one+"/delete", page.Fresh(page.Admin), p.remove)
	site.Action(one+"/tokens", page.Fresh(page.Admin), p.addToken)
	site.Action(one+"/tokens/{token}/revoke", page.Admin, p.revoke)
	site.View(one+"/agents/{agent}", page.Member, p.agent)
	site.Action(one+"/agents/{agent}/drain", page.Admin, p.drain(true))
	site.Action(one+"/agents/{agent}/resume", page.Admin, p.drain(false))
	site.View("/-/server", page.SiteAdmin, p.server)
}

func poolPath(org, id string, more ...string) string {
	return view.Path(append([]string{org, "-", "pools", id}, more...)...)
}

// form is the form for a new pool.
type form struct{ Name, Description, Problem string }

// overview is the page with all pools.
type overview struct {
	Org   string
	Pools []pools.Summary
	Admin bool
	Form  form
	Now   time.Time
}

func (o overview) hasDefault() bool {
	for _, p := range o.Pools {
		if p.Default {
			return true
		}
	}
	return false
}

func (p *pages) list(v *page.Visit) (view.Page, error) { return p.listPage(v, form{}) }

func (p *pages) listPage(v *page.Visit, f form) (view.Page, error) {
	list, err := p.Pools.Summaries(v.Context(), v.Who, v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	return view.Page{
		Title: "Agent pools", Section: "pools",
		Crumbs: []view.Crumb{{Text: v.Org.Name, Href: view.Path(v.Org.Name)}, {Text: "Pools"}},
		Body:   listBody(overview{v.Org.Name, list, v.Who.CanAdminOrg(v.Org.ID), f, time.Now()}),
		Live:   topics(v),
	}, nil
}

// topics are the notifications that change pages about pools. The jobs of agents follow from those
// of deployments.
func topics(v *page.Visit) []view.Topic {
	return []view.Topic{{Channel: pools.Topic, About: v.Org.ID + "/"}, {Channel: deployments.Topic, About: v.Org.ID + "/"}}
}

func (p *pages) create(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, errGrant
	}
	f := form{Name: v.Form("name"), Description: v.Form("description")}
	made, err := p.Pools.Create(v.Context(), v.Who, v.Org, f.Name, f.Description)
	if message, ok := page.Correctable(err); ok {
		f.Problem = message
		again, err := p.listPage(v, f)
		return page.Again(again), err
	}
	if err != nil {
		return page.Answer{}, err
	}
	return p.once(v, made.Pool, made.Token), nil
}

var errGrant = fault.Forbidden("An exchanged token may not change agent pools and their tokens.")

// once is the page that shows a new token.
func (p *pages) once(v *page.Visit, pool store.AgentPool, token string) page.Answer {
	return page.Once(view.Page{
		Title: "Token of " + pool.Name, Section: "pools",
		Crumbs: []view.Crumb{
			{Text: v.Org.Name, Href: view.Path(v.Org.Name)},
			{Text: "Pools", Href: view.Path(v.Org.Name, "-", "pools")},
			{Text: pool.Name, Href: poolPath(v.Org.Name, pool.ID)},
			{Text: "New token"},
		},
		Body: newToken(v.Org.Name, pool, token, p.URL),
	})
}

// detail is the page of one pool.
type detail struct {
	Org     string
	Pool    pools.Summary
	Agents  []agentRow
	Queue   deployments.Listing
	Rows    []queue.Row
	Tokens  []store.Token
	Reasons []string // why nothing is handed out
	Install []way
	Way     string
	Open    bool // shows the ways to install
	Admin   bool
	Version string // of the server
	Now     time.Time
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
	return view.Path(a.Org, e.Project, e.Stack, "deployments", strconv.FormatInt(e.Version, 10))
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
		Crumbs: []view.Crumb{
			{Text: v.Org.Name, Href: view.Path(v.Org.Name)}, {Text: "Pools", Href: view.Path(v.Org.Name, "-", "pools")}, {Text: d.Pool.Name},
		},
		Body: detailBody(d), Live: topics(v),
	}, nil
}

func (p *pages) load(v *page.Visit) (detail, error) {
	ctx, id := v.Context(), v.Param("pool")
	d := detail{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Version: p.Server.Version, Now: time.Now(), Way: cmp.Or(v.Query("install"), "script")}
	var err error
	if d.Pool, err = p.Pools.Summary(ctx, v.Who, v.Org.ID, id); err != nil {
		return d, err
	}
	if d.Agents, err = p.agentsOf(v, d.Pool.AgentPool); err != nil {
		return d, err
	}
	if d.Queue, err = p.Deployments.Stage(ctx, v.Who, v.Org.ID, deployments.Query{Stage: deployments.StageQueued, PoolID: id, Limit: shownQueue}); err != nil {
		return d, err
	}
	d.Rows = queue.Rows(v.Org.Name, d.Queue)
	if d.Tokens, err = p.Pools.Tokens(ctx, v.Org.ID, id); err != nil { // shown only to administrators
		return d, err
	}
	load, err := p.Deployments.Queues(ctx, v.Who, v.Org.ID, "")
	if err != nil {
		return d, err
	}
	d.Reasons = reasons(d, load)
	d.Install, d.Open = p.ways(), len(d.Agents) == 0 || v.Query("install") != ""
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
		if newer(a.Version, p.Server.Version) {
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

// newer reports whether an agent is older than the server, whose release also contains an agent.
func newer(agent, server string) bool {
	a, b := numbers(agent), numbers(server)
	if a == nil || b == nil {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// numbers returns the three numbers of a released version, or nil.
func numbers(version string) []int {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) != 3 {
		return nil
	}
	out := make([]int, len(parts))
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		out[i] = n
	}
	return out
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
	case d.Pool.Online > 0 && d.Pool.Slots == 0 && d.Pool.Active == 0:
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
		if err := p.Pools.SetDefault(v.Context(), v.Org.ID, id); err != nil {
			return page.Answer{}, err
		}
		return page.See(page.Back(v, view.Path(v.Org.Name, "-", "pools"))), nil
	}
}

func (p *pages) edit(v *page.Visit) (page.Answer, error) {
	name, description := v.Form("name"), v.Form("description")
	_, err := p.Pools.Rename(v.Context(), v.Org.ID, v.Param("pool"), &name, &description)
	if message, ok := page.Correctable(err); ok && fault.KindOf(err) != fault.KindNotFound {
		again, failed := p.detailPage(v, func(d *detail) { d.EditProblem = message })
		return page.Again(again), failed
	}
	if err != nil {
		return page.Answer{}, err
	}
	return page.See(poolPath(v.Org.Name, v.Param("pool"))), nil
}

func (p *pages) remove(v *page.Visit) (page.Answer, error) {
	pool, err := p.Pools.Summary(v.Context(), v.Who, v.Org.ID, v.Param("pool"))
	if err != nil {
		return page.Answer{}, err
	}
	refuse := func(why string) (page.Answer, error) {
		again, err := p.detailPage(v, func(d *detail) { d.DeleteProblem = why })
		return page.Again(again), err
	}
	if v.Form("confirm") != pool.Name {
		return refuse("This is not the name of the pool.")
	}
	err = p.Pools.Delete(v.Context(), v.Org.ID, pool.AgentPool.ID, v.Form("force") == "on", deployments.ForgetPool)
	if message, ok := page.Correctable(err); ok && fault.KindOf(err) != fault.KindNotFound {
		return refuse(message)
	}
	if err != nil {
		return page.Answer{}, err
	}
	return page.See(view.Path(v.Org.Name, "-", "pools")), nil
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
	if err := p.Pools.RevokeToken(v.Context(), v.Who, v.Org.ID, v.Param("pool"), v.Param("token")); err != nil {
		return page.Answer{}, err
	}
	return page.See(poolPath(v.Org.Name, v.Param("pool"))), nil
}

// drain makes an agent get no more jobs, or get jobs again.
func (p *pages) drain(drained bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		pool, agent := v.Param("pool"), v.Param("agent")
		if err := p.Pools.Drain(v.Context(), v.Who, v.Org.ID, pool, agent, drained); err != nil {
			return page.Answer{}, err
		}
		return page.See(poolPath(v.Org.Name, pool, "agents", agent)), nil
	}
}

// agentPage is the page of one agent.
type agentPage struct {
	Org     string
	Admin   bool
	Pool    pools.Summary
	Agent   agentRow
	Rows    []queue.Row
	Running []queue.Row
	Health  []string
	Now     time.Time
}

func (p *pages) agent(v *page.Visit) (view.Page, error) {
	pool, err := p.Pools.Summary(v.Context(), v.Who, v.Org.ID, v.Param("pool"))
	if err != nil {
		return view.Page{}, err
	}
	a := agentPage{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Pool: pool, Now: time.Now()}
	list, err := p.agentsOf(v, pool.AgentPool)
	if err != nil {
		return view.Page{}, err
	}
	for _, row := range list {
		if row.AgentID == v.Param("agent") {
			a.Agent = row
		}
	}
	for stage, to := range map[store.Stage]*[]queue.Row{deployments.StageActive: &a.Running, deployments.StageFinished: &a.Rows} {
		found, err := p.Deployments.Stage(v.Context(), v.Who, v.Org.ID, deployments.Query{Stage: stage, PoolID: pool.AgentPool.ID, AgentID: v.Param("agent")})
		if err != nil {
			return view.Page{}, err
		}
		*to = queue.Rows(v.Org.Name, found)
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
		Crumbs: []view.Crumb{
			{Text: v.Org.Name, Href: view.Path(v.Org.Name)},
			{Text: "Pools", Href: view.Path(v.Org.Name, "-", "pools")},
			{Text: pool.Name, Href: poolPath(v.Org.Name, pool.AgentPool.ID)},
			{Text: a.Agent.Hostname},
		},
		Body: agentBody(a), Live: topics(v),
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
		out = append(out, "The agent polls but requests no jobs: it drains, or it cannot start jobs, for example because Docker is not available.")
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
		case "launch", "image", "refused", "lost", "internal-error":
			failed++
		}
	}
	if failed > 1 {
		out = append(out, fmt.Sprintf("%d of its last %d jobs did not start, or were lost.", failed, min(len(a.Rows), recent)))
	}
	return out
}

// recent is the number of jobs from which the health of an agent is derived.
const recent = 10
