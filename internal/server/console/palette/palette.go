// Package palette answers the command palette: pages, objects and actions that match what the user types.
package palette

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the palette.
type Deps struct {
	Stacks      *stacks.Service
	Pools       *pools.Service
	Deployments *deployments.Service
	Search      *search.Service

	Environments *environments.Service
}

// shown bounds the items of an answer.
const shown = 30

// item is a result. The groups of an answer follow each other.
type item struct {
	Group string `json:"group"`
	Text  string `json:"text"`
	Kind  string `json:"kind"`
	Icon  string `json:"icon"`
	// Note is a word at the right, and Key the key that chooses the item at once.
	Note string `json:"note,omitempty"`
	Key  string `json:"key,omitempty"`
	Href string `json:"href"`
	// Way is "post" for an action that happens at once, "dialog" for a form that opens over the page, or "".
	Way string `json:"way,omitempty"`
}

type palette struct{ Deps }

// Register registers the palette.
func Register(site *page.Site, d Deps) {
	p := &palette{d}
	site.Raw("/-/palette", page.SignedIn, p.answer)
}

// answer responds with the items that match the parameter q in the organization org.
func (p *palette) answer(w http.ResponseWriter, v *page.Visit) error {
	q := search.Parse(v.Query("q"))
	empty := len(q.Words) == 0 && q.Number == 0
	var items []item
	for _, o := range v.Orgs() {
		if o.Name == v.Query("org") {
			found, err := p.of(v, o, q, empty)
			if err != nil {
				return err
			}
			items = append(items, found...)
		}
	}
	for _, i := range pagesOf(v) {
		if empty || len(q.Words) > 0 && q.Match(i.Text) {
			items = append(items, i)
		}
	}
	return web.WriteJSON(w, v.R, http.StatusOK, items[:min(len(items), shown)])
}

// of returns what is found in an organization.
func (p *palette) of(v *page.Visit, o store.Organization, q search.Query, empty bool) ([]item, error) {
	ctx := v.Context()
	found, err := p.Search.Find(ctx, v.Who, o.ID, q)
	if err != nil {
		return nil, err
	}
	group := "Stacks"
	if empty {
		group = "Recent"
		used, err := p.used(ctx, v.Who, o)
		if err != nil {
			return nil, err
		}
		found.Stacks = recent(used, found.Stacks)
	}
	var stacks, rest []item
	for _, s := range found.Stacks {
		stacks = append(stacks, item{Group: group, Text: s.Project + "/" + s.Name, Kind: "stack", Icon: "stacks", Note: s.State.Words(), Href: links.Path(o.Name, s.Project, s.Name)})
	}
	for _, r := range found.Runs {
		stack, number := r.Project+"/"+r.Stack, strconv.FormatInt(r.Version, 10)
		text := fmt.Sprintf("%s #%s", stack, number)
		if r.Message != "" {
			text += ": " + r.Message
		}
		state := waiting.State(store.Job{Status: r.Status, Reason: r.Reason, DriftFound: r.Drift})
		rest = append(rest, item{Group: "Deployments", Text: text, Kind: "deployment", Icon: "deploys", Note: view.MarkWord(view.MarkOf(state)), Href: links.Path(o.Name, r.Project, r.Stack, "deployments", number)})
	}
	for _, r := range found.Resources {
		rest = append(rest, item{
			Group: "Resources", Text: r.Name + " in " + r.Project + "/" + r.Stack, Kind: "resource", Icon: "cube", Note: r.Type,
			Href: links.Path(o.Name, r.Project, r.Stack, "resources") + "?" + query("q", r.Name),
		})
	}
	for _, m := range found.Members {
		rest = append(rest, item{Group: "People", Text: person(m), Kind: "user", Icon: "user", Note: m.Role, Href: links.Path(o.Name, "-", "settings", "members") + "?" + query("q", m.Login)})
	}
	for _, t := range found.Teams {
		rest = append(rest, item{Group: "Teams", Text: cmp.Or(t.DisplayName, t.Name), Kind: "team", Icon: "users", Href: links.Path(o.Name, "-", "settings", "teams", t.Name)})
	}
	envs, err := p.environments(v, o, q, empty)
	if err != nil {
		return nil, err
	}
	rest = append(rest, envs...)
	agents, err := p.agents(v, o, q, found, empty)
	if err != nil {
		return nil, err
	}
	rest = append(rest, agents...)
	acts, named, err := p.actions(v, o, q, found.Stacks, empty)
	if err != nil {
		return nil, err
	}
	if named { // the words name an action
		return slices.Concat(acts, stacks, rest), nil
	}
	return slices.Concat(stacks, acts, rest), nil
}

func person(m store.Member) string {
	if m.Name == "" || m.Name == m.Login {
		return m.Login
	}
	return m.Name + " (" + m.Login + ")"
}

// agents returns the pools and agents that are found.
func (p *palette) agents(v *page.Visit, o store.Organization, q search.Query, found search.Found, empty bool) ([]item, error) {
	if !v.Who.CanReadPools(o.ID) || empty || len(q.Words) == 0 {
		return nil, nil
	}
	var items []item
	list, err := p.Pools.Summaries(v.Context(), v.Who, o.ID)
	if err != nil {
		return nil, err
	}
	for _, pool := range list {
		if q.Match(pool.Name) {
			items = append(items, item{Group: "Agents", Text: pool.Name, Kind: "pool", Icon: "agents", Note: "pool", Href: links.Path(o.Name, "-", "pools", pool.ID)})
		}
	}
	for _, a := range found.Agents {
		items = append(items, item{
			Group: "Agents", Text: cmp.Or(a.Hostname, a.AgentID) + " in " + a.Pool, Kind: "agent", Icon: "agents", Note: "agent",
			Href: links.Path(o.Name, "-", "pools", a.PoolID, "agents", a.AgentID),
		})
	}
	return items, nil
}

// shownEnvironments is the number of environments of an answer.
const shownEnvironments = 8

// environments returns the environments that are found, of those that the visitor may read.
func (p *palette) environments(v *page.Visit, o store.Organization, q search.Query, empty bool) ([]item, error) {
	if empty || len(q.Words) == 0 {
		return nil, nil
	}
	list, _, err := p.Environments.Overview(v.Context(), v.Who, o.ID, environments.Overview{Words: q.Words, Readable: true, Limit: shownEnvironments})
	var items []item
	for _, e := range list {
		items = append(items, item{Group: "Environments", Text: e.Project + "/" + e.Name, Kind: "environment", Icon: "lock", Note: "revision " + strconv.FormatInt(e.LastNumber, 10), Href: links.Path(o.Name, "-", "environments", e.Project, e.Name)})
	}
	return items, err
}

// shownRecent is the number of recent stacks.
const shownRecent = 6

// used returns the stacks that the user created or deployed lately.
func (p *palette) used(ctx context.Context, who identity.Principal, o store.Organization) ([]store.Stack, error) {
	if who.User.ID == "" {
		return nil, nil
	}
	return p.Deployments.UsedStacks(ctx, who, o.ID, shownRecent)
}

// recent returns the stacks that changed last, those first that the user has used.
func recent(used []store.Stack, list []estate.Stack) []estate.Stack {
	slices.SortStableFunc(list, func(a, b estate.Stack) int { return cmp.Compare(placeOf(a, used), placeOf(b, used)) })
	return list[:min(len(list), shownRecent)]
}

func placeOf(s estate.Stack, used []store.Stack) int {
	if at := slices.IndexFunc(used, func(u store.Stack) bool { return u.ID == s.StackID }); at >= 0 {
		return at
	}
	return len(used)
}
