// Package stack contains the pages about one stack, with its updates and resources, and the list of deleted stacks.
package stack

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

// Deps are the services behind the pages.
type Deps struct {
	Stacks      *stacks.Service
	Deployments *deployments.Service
	Drift       *drift.Service
	Triggers    *triggers.Service
	Recovery    *recovery.Service
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
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
	site.Action(stack+"/tags", page.Stack(identity.Write), p.setTag)
	site.View(stack+"/updates", read, p.activity)
	for _, one := range []string{"/updates/{version}", "/previews/{update}"} {
		site.View(stack+one, read, p.update)
		site.Raw(stack+one+"/changes", read, p.rows)
	}
	site.View(stack+"/resources", read, p.resources)
	site.View(stack+"/resource", read, p.resource)
	site.View(stack+"/resources/{urn}", read, p.resource)
	site.View(stack+"/drift", read, p.drift)
}

// output is an output of a stack.
type output struct {
	Name, Value string
	Secret      bool
}

func (p *pages) overview(v *page.Visit) (view.Page, error) {
	out := Page(v.Stack, "")
	ctx := v.Context()
	tags, err := p.Stacks.Tags(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	outputs, pending, err := p.state(v)
	if err != nil {
		return out, err
	}
	recent, err := p.history(v, store.UpdateFilter{Limit: 5})
	if err != nil {
		return out, err
	}
	newest, _, err := p.Stacks.NewestOperation(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	lock, err := p.Stacks.Lock(ctx, v.Who, v.Stack)
	if err != nil {
		return out, err
	}
	scheduled, err := p.Triggers.List(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	described, err := readme(tags["pulumi:description"], readmeOf(outputs))
	if err != nil {
		return out, err
	}
	backup, err := p.Recovery.StateOf(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	if lock != nil {
		out.ChangesAt = lock.ChangesAt
	}
	out.Body = overview(overviewModel{
		Backup: backup, Lock: lock, Readme: described, Now: time.Now(), TTL: timeToLive(scheduled),
		St: v.Stack, Tags: tags, Outputs: outputs, Pending: pending, Recent: recent, Newest: newest,
		Operate: v.Who.Can(v.Stack, identity.Operate), Write: v.Who.Can(v.Stack, identity.Write),
	})
	return out, nil
}

type overviewModel struct {
	St             store.Stack
	Tags           map[string]string
	Outputs        []output
	Pending        []string
	Recent         []stacks.Entry
	Newest         stacks.Entry
	Operate, Write bool
	// Backup is the time of the backup from which the state is, or zero if it is newer.
	Backup time.Time
	Lock   *stacks.Lock
	Readme templ.Component // nil without a README
	Now    time.Time
	// TTL is the schedule that destroys the stack's resources next, or nil.
	TTL *store.Schedule
}

// state returns the outputs of a stack and the resources with pending operations.
func (p *pages) state(v *page.Visit) (outputs []output, pending []string, err error) {
	if v.Stack.StateBlob == "" {
		return nil, nil, nil
	}
	state, err := p.Stacks.Export(v.Context(), v.Stack.ID)
	if err != nil || state.Empty() {
		return nil, nil, err
	}
	for r := range rawjson.Elements(rawjson.Member(state.Deployment, "pending_operations")) {
		var urn, kind string
		_ = json.Unmarshal(rawjson.Member(rawjson.Member(r, "resource"), "urn"), &urn) // an absent name stays empty
		_ = json.Unmarshal(rawjson.Member(r, "type"), &kind)
		pending = append(pending, kind+" "+urn)
	}
	for r := range rawjson.Elements(rawjson.Member(state.Deployment, "resources")) {
		if string(rawjson.Member(r, "type")) != `"pulumi:pulumi:Stack"` {
			continue
		}
		for name, value := range rawjson.Members(rawjson.Member(r, "outputs")) {
			var key string
			if json.Unmarshal([]byte(`"`+name+`"`), &key) != nil {
				key = name
			}
			text := valueText(value)
			outputs = append(outputs, output{Name: key, Value: text, Secret: text == diff.Secret})
		}
		break
	}
	slices.SortFunc(outputs, func(a, b output) int { return cmp.Compare(a.Name, b.Name) })
	return outputs, pending, nil
}

func (p *pages) history(v *page.Visit, f store.UpdateFilter) ([]stacks.Entry, error) {
	var list []stacks.Entry
	err := p.Stacks.History(v.Context(), v.Stack, f, func(e stacks.Entry) error {
		list = append(list, e)
		return nil
	})
	return list, err
}

func (p *pages) setTag(v *page.Visit) (page.Answer, error) {
	name, value := v.Form("name"), v.Form("value")
	var err error
	switch tags, known := p.Stacks.Tags(v.Context(), v.Stack); {
	case known != nil:
		err = known
	case v.Form("remove") != "":
		err = p.Stacks.RemoveTag(v.Context(), v.Who, v.Stack, name)
	default:
		if _, exists := tags[name]; exists {
			err = p.Stacks.ChangeTag(v.Context(), v.Who, v.Stack, name, value)
		} else {
			err = p.Stacks.AddTag(v.Context(), v.Who, v.Stack, name, value)
		}
	}
	return page.See(page.StackPath(v.Stack)), err
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
