package agents

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// detail is the page of one pool.
type detail struct {
	group
	Shown   []agentRow // agents of this page
	Next    string     // address of the page with further agents, or ""
	First   bool       // these are the first agents
	Rows    []runs.Row // the beginning of the queue
	Tokens  []store.Token
	Reasons []string // why nothing is handed out, besides the pool's own state
	Install []Way
	Way     string
	Open    bool // shows the ways to install
	// NewToken is a token that was made just now, or "".
	NewToken string
	// DeleteProblem and EditProblem are the errors of forms.
	DeleteProblem, EditProblem string
}

const (
	// shownAgents is the number of agents on the page of a pool.
	shownAgents = 100
	// shownQueue is the number of queued deployments there.
	shownQueue = 10
)

func (p *pages) show(v *page.Visit) (view.Page, error) {
	return p.detailPage(v, v.Param("pool"), func(*detail) {})
}

func (p *pages) detailPage(v *page.Visit, id string, change func(*detail)) (view.Page, error) {
	d, err := p.load(v, id)
	if err != nil {
		return view.Page{}, err
	}
	change(&d)
	return view.Page{
		Title: d.Name, Section: "pools",
		Object: &view.Object{Name: d.Name, Badges: badges(d.group), Facts: poolFacts(d), Actions: poolActions(d)},
		Body:   detailBody(d), Live: topics(v),
	}, nil
}

func (p *pages) load(v *page.Visit, id string) (detail, error) {
	ctx := v.Context()
	d := detail{group: group{Org: v.Org.Name, Admin: v.Who.CanAdminOrg(v.Org.ID), Now: time.Now()}, Way: cmp.Or(v.Query("install"), "script")}
	all, err := p.Pools.Summaries(ctx, v.Who, v.Org.ID)
	if err != nil {
		return d, err
	}
	at := slices.IndexFunc(all, func(s pools.Summary) bool { return s.AgentPool.ID == id })
	if at < 0 {
		return d, fault.NotFound("agent pool '%s' not found", id)
	}
	d.Summary, d.Others = all[at], others(all, id)
	if d.Agents, err = p.agentsOf(v, d.AgentPool); err != nil {
		return d, err
	}
	if err := p.countPulls(v, &d.group); err != nil {
		return d, err
	}
	d.page(v.Query("after"))
	queue, err := p.Deployments.Page(ctx, v.Who, v.Org.ID, deployments.Query{Stage: deployments.StageQueued, PoolID: id, Limit: shownQueue})
	if err != nil {
		return d, err
	}
	d.Rows = runs.Rows(v.Org.Name, queue, nil)
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

// page selects the agents after the one with an id, or the first ones.
func (d *detail) page(after string) {
	rest := d.Agents
	if i := slices.IndexFunc(rest, func(a agentRow) bool { return a.AgentID == after }); i >= 0 {
		rest = rest[i+1:]
	}
	d.First, d.Shown = len(rest) == len(d.Agents), rest[:min(len(rest), shownAgents)]
	if len(d.Shown) < len(rest) {
		d.Next = poolPath(d.Org, d.AgentPool.ID) + "?after=" + url.QueryEscape(d.Shown[len(d.Shown)-1].AgentID)
	}
}

// reasons returns why queued deployments of a pool are not handed out although an agent could take them, in sentences.
func reasons(d detail, load deployments.Queues) []string {
	var out []string
	if len(d.Tokens) == 0 && !d.BuiltIn {
		out = append(out, "The pool has no token, so no agent can connect. Create a token below.")
	}
	if load.Org.Paused {
		out = append(out, "All deployments of the organization are paused.")
	}
	if load.Active >= load.Cap {
		out = append(out, fmt.Sprintf("The organization has reached its limit of %d active deployments.", load.Cap))
	}
	if d.Slots > 0 && d.Queued > 0 && d.free() == 0 {
		out = append(out, "All online agents are busy. To run more at once, start another agent or raise max_concurrent_jobs.")
	}
	return out
}

// users says which stacks use the pool.
func (d detail) users() string {
	text := words.Count(d.Stacks, "stack")
	if d.Stacks == 1 {
		text += " names it"
	} else {
		text += " name it"
	}
	if d.Default {
		text += ", and those that name no pool use it"
	}
	return text
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
		return p.detailPage(v, v.Param("pool"), func(d *detail) { d.EditProblem = problem })
	})
}

// move moves the queue of a pool to another one.
func (p *pages) move(v *page.Visit) (page.Answer, error) {
	err := p.Pools.MoveQueue(v.Context(), v.Who, v.Org.ID, v.Param("pool"), v.Form("to"))
	return page.See(poolPath(v.Org.Name, v.Form("to"))), err
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
		return p.detailPage(v, v.Param("pool"), func(d *detail) { d.DeleteProblem = problem })
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
	return p.once(v, pool.AgentPool.ID, text)
}

func (p *pages) revoke(v *page.Visit) (page.Answer, error) {
	if !v.Who.CanGrant() {
		return page.Answer{}, errGrant
	}
	err := p.Pools.RevokeToken(v.Context(), v.Who, v.Org.ID, v.Param("pool"), v.Param("token"))
	return page.See(poolPath(v.Org.Name, v.Param("pool")) + "#tokens"), err
}

// drain makes an agent get no more jobs, or get jobs again.
func (p *pages) drain(drained bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		pool, agent := v.Param("pool"), v.Param("agent")
		err := p.Pools.Drain(v.Context(), v.Who, v.Org.ID, pool, agent, drained)
		return page.See(poolPath(v.Org.Name, pool, "agents", agent)), err
	}
}
