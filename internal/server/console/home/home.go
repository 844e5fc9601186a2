// Package home contains the first page of an organization: what needs attention, what runs, what
// waits, and the visitor's stacks.
package home

import (
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/server/console/agents"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/queue"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Deps are the services behind the page.
type Deps struct {
	Deployments *deployments.Service
	Pools       *pools.Service
	Directory   *stacks.Service
	// URL is the server's address for clients, without a trailing slash, and Console that for browsers.
	URL     string
	Console links.Console
	// URLNotice warns those who create stacks of the URL, or is "".
	URLNotice string
	// Releases is the directory of the mirror of the agent's releases that the server serves, or "".
	Releases string
}

type pages struct{ Deps }

// Register registers the page.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}", page.Belongs, p.show)
}

// overview is the content of the page.
type overview struct {
	Org, URL string
	// Attention are deployments that failed, were lost or found drift, and are the newest of their stacks.
	Attention []queue.Row
	Alarms    []alarm
	Running   []queue.Row
	Queued    []queue.Row
	Queues    deployments.Queues
	Stacks    []store.Stack
	// Pools are the pools; it is nil if the visitor may not see them.
	Pools []pools.Summary
	Admin bool
	// Deployed reports whether the organization has had a deployment.
	Deployed bool
	// Domain is what tells the pulumi CLI the console's address, or "" if the CLI finds it. Install are the
	// commands that install an agent.
	Domain, URLNotice string
	Install           []agents.Step
	// Create reports whether the visitor may create stacks, and Visible whether the visitor may see any.
	Create, Visible bool
}

// alarm is something that needs attention and is no deployment.
type alarm struct{ Text, Link, Path string }

const (
	// shownRows is the number of deployments in each part of the page.
	shownRows = 10
	// attention is the time for which a failed deployment needs attention.
	attention = 7 * 24 * time.Hour
)

func (p *pages) show(v *page.Visit) (view.Page, error) {
	ctx := v.Context()
	o := overview{Org: v.Org.Name, URL: p.URL, Admin: v.Who.CanAdminOrg(v.Org.ID)}
	var err error
	if o.Queues, err = p.Deployments.Queues(ctx, v.Who, v.Org.ID, ""); err != nil {
		return view.Page{}, err
	}
	since := time.Now().Add(-attention)
	for _, part := range []struct {
		query deployments.Query
		to    *[]queue.Row
	}{
		{deployments.Query{Stage: deployments.StageFinished, State: waiting.StateLost, Newest: true, Since: since}, &o.Attention},
		{deployments.Query{Stage: deployments.StageFinished, State: waiting.StateFailed, Newest: true, Since: since}, &o.Attention},
		{deployments.Query{Stage: deployments.StageFinished, State: waiting.StateDrift, Newest: true, Since: since}, &o.Attention},
		{deployments.Query{Stage: deployments.StageActive}, &o.Running},
		{deployments.Query{Stage: deployments.StageQueued}, &o.Queued},
	} {
		part.query.Limit = shownRows
		found, err := p.Deployments.Page(ctx, v.Who, v.Org.ID, part.query)
		if err != nil {
			return view.Page{}, err
		}
		*part.to = append(*part.to, queue.Rows(v.Org.Name, found)...)
	}
	if o.Stacks, err = p.Deployments.UsedStacks(ctx, v.Who, v.Org.ID, shownRows); err != nil {
		return view.Page{}, err
	}
	if o.quiet() {
		done, err := p.Deployments.Page(ctx, v.Who, v.Org.ID, deployments.Query{Stage: deployments.StageFinished, Limit: 1})
		if err != nil {
			return view.Page{}, err
		}
		o.Deployed = len(done.Items) > 0
	}
	if o.fresh() {
		some, err := p.Directory.List(ctx, store.StackFilter{Reach: v.Who.Reach(v.Org.ID), Limit: 1})
		if err != nil {
			return view.Page{}, err
		}
		o.Create, o.Visible = v.Who.CanCreateStack(v.Org.ID), len(some) > 0
		o.URLNotice, o.Install = p.URLNotice, agents.Ways(p.URL, p.Releases)[0].Steps
		if !p.Console.Derived(p.URL) {
			o.Domain = p.Console.Domain()
		}
	}
	if err := p.poolAlarms(v, &o); err != nil {
		return view.Page{}, err
	}
	if o.Queues.Org.Paused {
		o.Alarms = append(o.Alarms, alarm{"All deployments of the organization are paused.", "Show the queue", links.Path(v.Org.Name, "-", "deployments")})
	}
	return view.Page{
		Title: v.Org.Name, Section: "home", Bar: &view.Bar{Title: "Home"}, Body: body(o),
		Live: []view.Topic{{Channel: deployments.Topic, About: v.Org.ID + "/"}, {Channel: pools.Topic, About: v.Org.ID + "/"}},
	}, nil
}

func (p *pages) poolAlarms(v *page.Visit, o *overview) error {
	if !v.Who.CanReadPools(v.Org.ID) {
		return nil
	}
	list, err := p.Pools.Summaries(v.Context(), v.Who, v.Org.ID)
	if err != nil {
		return err
	}
	o.Pools = append([]pools.Summary{}, list...)
	for _, pool := range list {
		if pool.Online > 0 || pool.Queued == 0 && pool.Agents == 0 {
			continue
		}
		text := fmt.Sprintf("No agent of the pool %s is online", pool.Name)
		if !pool.AgentPool.LastSeenAt.IsZero() {
			text += " since " + words.Clock(pool.AgentPool.LastSeenAt)
		}
		if pool.Queued > 0 {
			text += "; " + words.Count(pool.Queued, "deployment") + " waiting"
		}
		o.Alarms = append(o.Alarms, alarm{text + ".", "Open the pool", links.Path(v.Org.Name, "-", "pools", pool.AgentPool.ID)})
	}
	return nil
}

// quiet reports whether no deployment runs, waits or has failed lately.
func (o overview) quiet() bool { return len(o.Attention)+len(o.Running)+len(o.Queued) == 0 }

// fresh reports whether the organization shows the first steps: it has had no deployment.
func (o overview) fresh() bool { return o.quiet() && !o.Deployed }

// online reports whether an agent can run deployments.
func (o overview) online() bool {
	return slices.ContainsFunc(o.Pools, func(p pools.Summary) bool { return p.Online > 0 })
}

// agentPage is the page on which the visitor installs an agent: that of the only pool, or of all.
func (o overview) agentPage() string {
	if len(o.Pools) == 1 {
		return links.Path(o.Org, "-", "pools", o.Pools[0].AgentPool.ID) + "#install"
	}
	return links.Path(o.Org, "-", "pools")
}
