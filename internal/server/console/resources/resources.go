// Package resources contains the page with the resources in the state of a stack: by type, as a tree or by their last change,
// with what is known about one of them.
package resources

import (
	"mime"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/inventory"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct {
	Heads  stack.Heads
	Stacks *stacks.Service
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	read := page.Stack(identity.StateRead)
	const stack = "/{org}/{project}/{stack}"
	site.View(stack+"/resources", read, p.show)
	site.Raw(stack+"/resources/rows", read, p.rows)
	site.View(stack+"/resource", read, former)
	site.View(stack+"/resources/{urn}", read, former)
	site.Raw(stack+"/state", read, p.state)
}

// former leads from addresses of earlier versions to the resource.
func former(v *page.Visit) (view.Page, error) {
	urn := v.Param("urn")
	if urn == "" {
		urn = v.Query("urn")
	}
	return view.Page{}, page.GoTo(page.ResourcePath(v.Stack, urn))
}

// The orders of the list.
const (
	byType  = ""
	asTree  = "tree"
	changed = "changed"
)

// model is what the page shows.
type model struct {
	view.Filters
	St store.Stack
	// Order is the order of the list, and Words and Provider select rows.
	Order    string
	Words    []string
	Provider string
	// Open is the type whose resources the list by type shows, and AllTypes reports that it shows all types.
	Open     string
	AllTypes bool
	// From is the position of the first row.
	From int
	// List is the resources, and Place is that of the selected one, or -1.
	List  inventory.List
	Place int
	// URN is the selected resource, which the state may lack, and Old selects one that waits for its deletion.
	URN string
	Old bool
	// Versions are the newest updates, newest first.
	Versions versions
	// Failed are the resources on which the last update failed.
	Failed map[string]changes.Row
	// Problem says why the state cannot be read.
	Problem string
	entries []entry
	// matching is the number of resources that pass the filters.
	matching int
}

// parameters are the parameters of the page's URL.
var parameters = []string{"view", "q", "provider", "type", "all", "urn", "old", "part", "row"}

// load reads the list, and what the query of a page selects in it.
func (p *pages) load(v *page.Visit) (*model, error) {
	m := &model{
		Filters: view.Filters{Path: page.StackPath(v.Stack, "resources"), Values: v.R.URL.Query(), Parameters: parameters, Place: "row"},
		St:      v.Stack, Order: v.Query("view"), Words: strings.Fields(strings.ToLower(v.Query("q"))), Provider: v.Query("provider"), Open: v.Query("type"),
		AllTypes: v.Query("all") != "", URN: v.Query("urn"), Old: v.Query("old") != "", Place: -1,
	}
	if m.Order != asTree && m.Order != changed {
		m.Order = byType
	}
	if n, err := strconv.Atoi(v.Query("row")); err == nil && n > 0 && n <= inventory.MaxResources {
		m.From = n
	}
	var err error
	m.List, err = p.Stacks.Inventory(v.Context(), v.Who, v.Stack)
	switch fault.KindOf(err) {
	case fault.KindTooLarge, fault.KindDamaged:
		m.Problem = page.Sentence(err)
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := p.updates(v, m); err != nil {
		return m, err
	}
	m.choose()
	m.arrange()
	return m, nil
}

// keptVersions is the number of updates that the page knows.
const keptVersions = 100

// updates reads the newest updates, and on what the last one failed.
func (p *pages) updates(v *page.Visit, m *model) error {
	err := p.Stacks.History(v.Context(), v.Stack, store.UpdateFilter{Limit: keptVersions}, func(e stacks.Entry) error {
		m.Versions = append(m.Versions, e)
		return nil
	})
	if err != nil || len(m.Versions) == 0 || stacks.Status(m.Versions[0].Status) != stacks.Failed {
		return err
	}
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, m.Versions[0].Update)
	if err != nil {
		return err
	}
	m.Failed = map[string]changes.Row{}
	for _, r := range tree.Rows {
		if (r.State == changes.Failed || r.Errors > 0) && r.Type != stackType {
			m.Failed[r.URN] = r
		}
	}
	return nil
}

// stackType is the type of the resource that represents the stack.
const stackType = "pulumi:pulumi:Stack"

// choose selects a resource: without another choice that of the stack, or else the first one.
func (m *model) choose() {
	if m.URN != "" {
		m.Place = m.List.Find(m.URN, m.Old)
		return
	}
	if len(m.List.All) > 0 {
		m.Place = max(0, slices.IndexFunc(m.List.All, func(r inventory.Resource) bool { return r.Type == stackType }))
	}
}

// chosen returns the selected resource.
func (m *model) chosen() (inventory.Resource, bool) {
	if m.Place < 0 {
		return inventory.Resource{URN: m.URN}, false
	}
	return m.List.All[m.Place], true
}

// versions are updates, newest first.
type versions []stacks.Entry

// at returns the update that ran at a time: the clocks of its client and of the server can differ, so a time at which none
// ran is that of an unknown one.
func (l versions) at(t time.Time) (stacks.Entry, bool) {
	at := sort.Search(len(l), func(i int) bool { return !l[i].StartedAt.After(t) })
	if t.IsZero() || at == len(l) {
		return stacks.Entry{}, false
	}
	return l[at], l[at].FinishedAt.IsZero() || !l[at].FinishedAt.Before(t)
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	out, err := p.Heads.Page(v, stack.Resources)
	if err != nil {
		return out, err
	}
	m, err := p.load(v)
	if err != nil {
		return out, err
	}
	out.Title, out.Layout = "Resources of "+v.Stack.Project+"/"+v.Stack.Name, view.Work
	out.Object.Plain = false
	side, err := p.panel(v, m)
	if err != nil {
		return out, err
	}
	out.Body = body(m, side)
	return out, nil
}

// state sends the state as a file. The audit log records it, as for an export by the API.
func (p *pages) state(w http.ResponseWriter, v *page.Visit) error {
	stored, err := p.Stacks.Open(v.Context(), v.Who, v.Stack)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": v.Stack.Project + "-" + v.Stack.Name + ".json"}))
	return web.Stream(w, v.R, 0, stored.Export)
}
