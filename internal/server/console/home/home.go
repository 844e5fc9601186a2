// Package home contains the first page of an organization: what needs the visitor, what runs and waits, what has changed,
// and the first steps of an empty server.
package home

import (
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

// Deps are the services behind the page.
type Deps struct {
	Deployments *deployments.Service
	Pools       *pools.Service
	Stacks      *stacks.Service
	Estate      *estate.Service
	Triggers    *triggers.Service
	Invitations *invitations.Service
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
	estate.Glance
	Org     string
	Now     time.Time
	Admin   bool
	Queues  deployments.Queues
	Running []runs.Row
	Queued  []runs.Row
	Needs   []need
	// Pools are the pools; it is nil if the visitor may not see them.
	Pools []pools.Summary
	Next  []store.Schedule
	// First are the first steps; it is nil after the first deployment, and for visitors who cannot take them.
	First *first
	// Hidden reports that the visitor may see no stack.
	Hidden bool
}

// The numbers of deployments on the page.
const (
	shownRunning = 10
	shownQueued  = 5
	shownNext    = 4
)

func (p *pages) show(v *page.Visit) (view.Page, error) {
	ctx := v.Context()
	o := overview{Org: v.Org.Name, Now: time.Now(), Admin: v.Who.CanAdminOrg(v.Org.ID)}
	var err error
	if o.Glance, err = p.Estate.Glance(ctx, v.Who, v.Org.ID); err != nil {
		return view.Page{}, err
	}
	if o.Queues, err = p.Deployments.Queues(ctx, v.Who, v.Org.ID, ""); err != nil {
		return view.Page{}, err
	}
	if o.Queues.Running > 0 {
		if o.Running, err = p.deployments(v, deployments.StageActive, shownRunning); err != nil {
			return view.Page{}, err
		}
	}
	if o.Queues.Queued > 0 {
		if o.Queued, err = p.deployments(v, deployments.StageQueued, shownQueued); err != nil {
			return view.Page{}, err
		}
	}
	if v.Who.CanReadPools(v.Org.ID) {
		list, err := p.Pools.Summaries(ctx, v.Who, v.Org.ID)
		if err != nil {
			return view.Page{}, err
		}
		o.Pools = append([]pools.Summary{}, list...)
	}
	if err := p.find(v, &o); err != nil {
		return view.Page{}, err
	}
	if o.Next, err = p.next(v); err != nil {
		return view.Page{}, err
	}
	if err := p.start(v, &o); err != nil {
		return view.Page{}, err
	}
	org := v.Org.ID + "/"
	return view.Page{
		Title: v.Org.Name, Section: "home", Bar: &view.Bar{Title: "Home", Note: o.Now.UTC().Format("Monday 2 January"), Actions: o.actions()}, Body: body(o),
		Live: []view.Topic{{Channel: deployments.Topic, About: org}, {Channel: pools.Topic, About: org}, {Channel: stacks.Topic, About: org}},
	}, nil
}

// next returns the schedules that are due next.
func (p *pages) next(v *page.Visit) ([]store.Schedule, error) {
	found, err := p.Triggers.OfOrg(v.Context(), v.Who, store.OrgScheduleFilter{OrgID: v.Org.ID, Active: true, Limit: 4 * shownNext})
	if err != nil || found.OrgPaused {
		return nil, err
	}
	var list []store.Schedule
	for _, s := range found.List {
		if !s.NextAt.IsZero() && !found.PausedStacks[s.Project+"/"+s.Stack] && len(list) < shownNext {
			list = append(list, s)
		}
	}
	return list, nil
}

func (o overview) actions() templ.Component {
	if o.All == 0 || o.First != nil {
		return nil
	}
	return deployLink(o.Org)
}
