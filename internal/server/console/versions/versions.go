// Package versions contains the page that compares two versions of a stack.
package versions

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	domain "workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/changes/diff"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
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
	site.View("/{org}/{project}/{stack}/changes", read, p.show)
	site.Raw("/{org}/{project}/{stack}/changes/rows", read, p.rows)
}

// comparison is what the page shows.
type comparison struct {
	St       store.Stack
	From, To int64
	// List are the versions that a visitor can choose.
	List []stacks.Entry
	Tree changes.Model
	// Problem says why the versions cannot be compared.
	Problem string
	states  *stacks.Comparison
	// ended is the update that made the newer version, if it followed the other one directly.
	ended *store.Update
}

// load compares the versions that the query names, or the newest one with the one before.
func (p *pages) load(v *page.Visit) (comparison, error) {
	c := comparison{St: v.Stack}
	var err error
	if c.List, err = p.Stacks.Versions(v.Context(), v.Who, v.Stack); err != nil {
		return c, err
	}
	if c.To, err = number(v, "to", newest(c.List, v.Stack.Version)); err != nil {
		return c, err
	}
	if c.From, err = number(v, "from", newest(c.List, c.To-1)); err != nil {
		return c, err
	}
	path := page.StackPath(v.Stack, "changes")
	query := fmt.Sprintf("?from=%d&to=%d", c.From, c.To)
	c.Tree = changes.Model{Base: path + query, RowsURL: path + "/rows" + query, Over: true, Versions: true, Now: time.Now()}
	c.Tree.Resume(v.Query)
	if c.states, err = p.Stacks.Compare(v.Context(), v.Who, v.Stack, c.From, c.To); err == nil {
		c.Tree.Tree, err = c.states.Tree(v.Context())
	}
	switch fault.KindOf(err) {
	case fault.KindNotFound, fault.KindGone, fault.KindTooLarge, fault.KindDamaged, fault.KindConflict:
		c.Problem = page.Sentence(err)
		return c, nil
	}
	if err != nil {
		return c, err
	}
	return c, p.reported(v, &c)
}

// number returns a version from the query.
func number(v *page.Visit, name string, otherwise int64) (int64, error) {
	text := v.Query(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.Invalid("The parameter %q must be a version of the stack.", name)
	}
	return n, nil
}

// newest returns the newest version of a list up to another one, or 0.
func newest(list []stacks.Entry, until int64) int64 {
	for _, e := range list {
		if e.Version <= until {
			return e.Version
		}
	}
	return 0
}

// reported adds what the engine reported about the update between two versions: failures, and why resources were
// replaced.
func (p *pages) reported(v *page.Visit, c *comparison) error {
	at := slices.IndexFunc(c.List, func(e stacks.Entry) bool { return e.Version == c.To })
	if at < 0 || c.From != c.To-1 || c.List[at].EventsExpired {
		return nil
	}
	u := c.List[at].Update
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, u)
	if err != nil {
		return err
	}
	c.ended = &u
	c.Tree.Tree = merged(c.Tree.Tree, tree)
	return nil
}

// merged returns the difference of two states with the failures and reasons of the update between them.
func merged(states, events domain.Tree) domain.Tree {
	rows := make(map[string]domain.Row, len(events.Rows))
	for _, r := range events.Rows {
		if r.State == domain.Failed || r.Errors > 0 || len(r.ReplaceKeys) > 0 {
			rows[r.URN] = r
		}
	}
	states.Rows = slices.Clone(states.Rows)
	for i, r := range states.Rows {
		said, known := rows[r.URN]
		if !known {
			continue
		}
		delete(rows, r.URN)
		if said.State == domain.Failed {
			states.Rows[i].State, states.Rows[i].Op = domain.Failed, said.Op
		}
		states.Rows[i].Errors, states.Rows[i].ReplaceKeys = said.Errors, said.ReplaceKeys
	}
	for _, r := range events.Rows { // resources that failed before they existed
		if said, left := rows[r.URN]; left && said.State == domain.Failed && len(states.Rows) < domain.MaxRows {
			states.Rows = append(states.Rows, said)
		}
	}
	states.Messages = events.Messages
	return states
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	out, err := p.Heads.Page(v, stack.Changes)
	if err != nil {
		return out, err
	}
	c, err := p.load(v)
	if err != nil {
		return out, err
	}
	out.Title, out.Layout, out.Live = "Changes of "+v.Stack.Project+"/"+v.Stack.Name, view.Work, nil
	out.Object.Plain = false
	side := nothing()
	if c.Problem == "" {
		if c.Tree.Select(); c.Tree.URN != "" {
			pane, err := p.pane(v, c)
			if err != nil {
				return out, err
			}
			side = pane.View()
		}
	}
	out.Body = body(c, side)
	return out, nil
}

// pane compares one resource.
func (p *pages) pane(v *page.Visit, c comparison) (changes.Pane, error) {
	pane := changes.Pane{Model: c.Tree, St: v.Stack, Old: name(c.From), New: name(c.To)}
	pane.Resume(v.Query)
	pair, err := c.states.Resource(v.Context(), c.Tree.URN)
	if err != nil {
		return pane, err
	}
	if pair.Old != nil || pair.New != nil {
		d, err := diff.States(pair.Old, pair.New)
		if err != nil {
			return pane, err
		}
		pane.Steps = []diff.Diff{d}
	}
	pane.Dependents, pane.Exists = pair.Dependents, pair.New != nil && c.To == v.Stack.Version
	if c.ended != nil {
		if err := pane.Order(v, p.Stacks, *c.ended); err != nil {
			return pane, err
		}
	}
	pane.History, err = p.Stacks.Touches(v.Context(), v.Who, v.Stack, c.Tree.URN, max(c.From, c.To))
	return pane, err
}

// rows sends a part of the tree.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	c, err := p.load(v)
	if err != nil {
		return err
	}
	return c.Tree.Window(w, v)
}

// name names a version.
func name(version int64) string {
	if version == 0 {
		return "nothing"
	}
	return "v" + strconv.FormatInt(version, 10)
}

// option is a version that a visitor can choose.
type option struct {
	Value, Text string
	Selected    bool
}

// options are the versions of a list, and the chosen one.
func (c comparison) options(current int64) []option {
	var out []option
	add := func(version int64, text string) {
		out = append(out, option{strconv.FormatInt(version, 10), text, version == current})
	}
	found := current == 0
	for _, e := range c.List {
		found = found || e.Version == current
		by := cmp.Or(e.By.Name, e.By.Login)
		if by == "" && e.DeploymentID != "" {
			by = "deployment"
		}
		text := name(e.Version) + ", " + e.StartedAt.UTC().Format("2 Jan 15:04")
		if by != "" {
			text += ", " + by
		}
		add(e.Version, termtext.OneLine(text, 80))
	}
	if !found {
		add(current, name(current))
	}
	add(0, "nothing, before v1")
	return out
}
