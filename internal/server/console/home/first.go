package home

import (
	"slices"
	"time"

	"workflowagent/internal/server/console/agents"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks/estate"
)

// first are the first steps of an organization that has had no deployment.
type first struct {
	Org, URL string
	// Stack is the stack that changed last; Has is false without one.
	Stack estate.Stack
	Has   bool
	// Pools are the pools; it is nil if the visitor may not see them.
	Pools []pools.Summary
	Admin bool
	// Domain is what tells the pulumi CLI the console's address, or "" if the CLI finds it.
	Domain, URLNotice string
	// Ways are the ways to install an agent, and Way is the one that the page shows.
	Ways []agents.Way
	Way  agents.Way
}

// start finds out whether the visitor needs the first steps, or may see nothing.
func (p *pages) start(v *page.Visit, o *overview) error {
	if o.Queues.Running+o.Queues.Queued > 0 {
		return nil
	}
	done, err := p.Deployments.Page(v.Context(), v.Who, v.Org.ID, deployments.Query{Stage: deployments.StageFinished, Limit: 1})
	if err != nil || len(done.Items) > 0 {
		return err
	}
	o.Hidden = o.All == 0 && !o.Admin
	if !v.Who.CanCreateStack(v.Org.ID) {
		return nil
	}
	f := &first{Org: o.Org, URL: p.URL, Pools: o.Pools, Admin: o.Admin, URLNotice: p.URLNotice, Ways: agents.Ways(p.URL, p.Releases)}
	f.Way = f.Ways[max(0, slices.IndexFunc(f.Ways, func(w agents.Way) bool { return w.Name == v.Query("way") }))]
	if !p.Console.Derived(p.URL) {
		f.Domain = p.Console.Domain()
	}
	if o.All > 0 {
		if f.Stack, f.Has, err = p.Estate.Newest(v.Context(), v.Who, v.Org.ID); err != nil {
			return err
		}
	}
	o.First = f
	return nil
}

// online reports whether an agent can run deployments.
func (f *first) online() bool {
	return slices.ContainsFunc(f.Pools, func(p pools.Summary) bool { return p.Online > 0 })
}

// pool names the pool that waits for its first agent, and says since when.
func (f *first) pool() (name string, since time.Time) {
	pool := f.Pools[0]
	return pool.Name, pool.AgentPool.CreatedAt
}

// agentPage is the page on which the visitor installs an agent: that of the only pool, or of all.
func (f *first) agentPage() string {
	if len(f.Pools) == 1 {
		return links.Path(f.Org, "-", "pools", f.Pools[0].AgentPool.ID) + "#install"
	}
	return links.Path(f.Org, "-", "pools")
}

// now returns the number of the step that the visitor takes next.
func (f *first) now() int {
	switch {
	case !f.Has:
		return 1
	case !f.online():
		return 2
	default:
		return 3
	}
}

// stepClass returns the class of a step.
func (f *first) stepClass(n int, done bool) string {
	switch {
	case done:
		return "done"
	case n == f.now():
		return "now"
	default:
		return ""
	}
}
