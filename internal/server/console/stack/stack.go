// Package stack contains the pages about one stack, with what it contains, and the list of deleted stacks.
package stack

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/policy"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

// Deps are the services behind the pages.
type Deps struct {
	Stacks   *stacks.Service
	Triggers *triggers.Service
	Recovery *recovery.Service
	Results  *results.Service
	// Exceptions are those from policies.
	Exceptions *exceptions.Service
	Heads
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	read := page.Stack(identity.StateRead)
	const stack = "/{org}/{project}/{stack}"
	site.View("/{org}/-/stacks/deleted", page.Belongs, p.deleted)
	site.Action("/{org}/-/stacks/deleted/{deleted}/restore", page.Belongs, p.restore)
	site.Action("/{org}/-/stacks/deleted/{deleted}/purge", page.Fresh(page.Admin), p.purge)
	site.View(stack, read, p.overview)
	site.View(stack+"/panel", read, p.panel)
	site.Action(stack+"/tags", page.Stack(identity.Write), p.setTag)
}

func (p *pages) overview(v *page.Visit) (view.Page, error) {
	ctx := v.Context()
	out, h, err := p.Heads.page(v, Overview)
	if err != nil {
		return out, err
	}
	m := overviewModel{head: h, Now: time.Now(), Write: v.Who.Can(v.Stack, identity.Write), Manage: v.Who.Can(v.Stack, identity.Manage)}
	if m.Last, err = p.last(v, h.Stack); err != nil {
		return out, err
	}
	if m.Tags, err = p.Stacks.Tags(ctx, v.Stack); err != nil {
		return out, err
	}
	if m.Contents, err = p.state(v); err != nil {
		return out, err
	}
	if m.Recent, err = p.recent(v); err != nil {
		return out, err
	}
	if m.Policy.Standing, err = p.Results.OfStack(ctx, v.Stack, shownIssues); err != nil {
		return out, err
	}
	if m.Policy.Exceptions, err = p.Exceptions.OfStack(ctx, v.Stack); err != nil {
		return out, err
	}
	m.Policy.Unevaluated = h.Stack.Unevaluated
	near, err := p.NeighboursOf(v, p.Stacks)
	if err != nil {
		return out, err
	}
	m.Graph = near.Graph
	if m.Lock, err = p.Stacks.Lock(ctx, v.Who, v.Stack); err != nil {
		return out, err
	}
	scheduled, err := p.Triggers.List(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	m.TTL = timeToLive(scheduled)
	if m.Readme, err = readme(m.Tags["pulumi:description"], readmeOf(m.Contents.Outputs)); err != nil {
		return out, err
	}
	if m.Backup, err = p.Recovery.StateOf(ctx, v.Stack); err != nil {
		return out, err
	}
	if m.Lock != nil {
		out.ChangesAt = m.Lock.ChangesAt
	}
	out.Body = overview(m)
	return out, nil
}

// last returns the last run that writes, if it failed, with its cause.
func (p *pages) last(v *page.Visit, st estate.Stack) (*estate.Change, error) {
	if st.State != estate.Failed {
		return nil, nil //nolint:nilnil // there is nothing to explain
	}
	c, err := p.Estate.LastChange(v.Context(), st)
	if err != nil || c.Cause != nil || c.LastResult != store.RunFailed || c.LastDeployment > 0 || c.Update.ID == "" {
		return &c, err
	}
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, c.Update)
	c.Cause = cause.OfUpdate(tree)
	return &c, err
}

type overviewModel struct {
	head
	Tags     map[string]string
	Contents state
	Recent   []run
	Graph    *view.Graph    // nil without neighbours
	Last     *estate.Change // the last run that writes, if it failed
	Write    bool
	Manage   bool // the visitor administers the stack
	// Backup is the time of the backup from which the state is, or zero if it is newer.
	Backup time.Time
	Lock   *stacks.Lock
	Readme templ.Component // nil without a README
	Now    time.Time
	// TTL is the schedule that destroys the stack's resources next, or nil.
	TTL *store.Schedule
	// Policy is what policy packs found.
	Policy policy.Stack
}

// shownIssues is the number of policy issues that the page lists.
const shownIssues = 10

func (p *pages) history(v *page.Visit, f store.UpdateFilter) ([]stacks.Entry, error) {
	var list []stacks.Entry
	err := p.Stacks.History(v.Context(), v.Stack, f, func(e stacks.Entry) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

// setTag sets or removes a tag of a stack.
func (p *pages) setTag(v *page.Visit) (page.Answer, error) {
	name, value := v.Form("name"), v.Form("value")
	to, text := &value, "Added the tag "+name+"."
	if v.Form("remove") != "" {
		to, text = nil, "Removed the tag "+name+"."
	}
	was, err := p.Stacks.SetTag(v.Context(), v.Who, v.Stack, name, to)
	a, undo := page.See(page.StackPath(v.Stack)), page.StackPath(v.Stack, "tags")
	if was == nil {
		return a.Undo(text, undo, "name", name, "remove", "on"), err
	}
	if to != nil {
		text = "Changed the tag " + name + "."
	}
	return a.Undo(text, undo, "name", name, "value", *was), err
}

// timeToLive returns the first of the schedules that destroys the resources of a stack, or nil.
func timeToLive(list []store.Schedule) *store.Schedule {
	var first *store.Schedule
	for i, c := range list {
		if c.Kind == store.TTLSchedule && !c.NextAt.IsZero() && (first == nil || c.NextAt.Before(first.NextAt)) {
			first = &list[i]
		}
	}
	return first
}

// systemTags is the beginning of the names of the tags that the pulumi CLI sets.
const systemTags = "pulumi:"

// tags returns the names of the tags that users set, and of those that the pulumi CLI sets.
func (m overviewModel) tags() (own, others []string) {
	for _, name := range slices.Sorted(maps.Keys(m.Tags)) {
		if strings.HasPrefix(name, systemTags) {
			others = append(others, name)
		} else {
			own = append(own, name)
		}
	}
	return own, others
}
