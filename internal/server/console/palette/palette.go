// Package palette answers the command palette: pages and actions that match what the user types.
package palette

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the palette.
type Deps struct {
	Stacks *stacks.Service
	Pools  *pools.Service
}

// shown bounds the items of an answer, found the stacks among them, and searched those with one of several words.
const (
	shown    = 20
	found    = 12
	searched = 200
)

type item struct {
	Text string `json:"text"`
	Kind string `json:"kind"`
	Href string `json:"href"`
	// rank orders the items: the lowest is the best.
	rank int
}

type palette struct{ Deps }

// Register registers the palette.
func Register(site *page.Site, d Deps) {
	p := &palette{d}
	site.Raw("/-/palette", page.SignedIn, p.answer)
}

// answer responds with the items that match the parameter q in the organization org.
func (p *palette) answer(w http.ResponseWriter, v *page.Visit) error {
	words := strings.ToLower(strings.TrimSpace(v.Query("q")))
	items := []item{{Text: "Your settings", Kind: "page", Href: "/user/settings"}, {Text: "Access tokens", Kind: "page", Href: "/user/settings/tokens"}}
	if v.Who.User.SiteAdmin {
		items = append(items, item{Text: "Server", Kind: "page", Href: "/-/server"}, item{Text: "Users of the server", Kind: "page", Href: "/-/server/users"},
			item{Text: "Organizations", Kind: "page", Href: "/-/server/organizations"})
	}
	for _, o := range v.Orgs() {
		items = append(items, item{Text: o.Name, Kind: "organization", Href: links.Path(o.Name)})
		if o.Name != v.Query("org") {
			continue
		}
		for _, s := range view.Sections(v.Who.CanReadOrg(o.ID)) {
			items = append(items, item{Text: s.Text, Kind: "page", Href: s.Path(o.Name)})
		}
		items = append(items, item{Text: "Calendar", Kind: "page", Href: links.Path(o.Name, "-", "activity", "calendar")})
		more, err := p.of(v, o, words)
		if err != nil {
			return err
		}
		items = append(items, more...)
	}
	items = slices.DeleteFunc(items, func(i item) bool { return i.rank == 0 && !matches(i.Text, strings.Fields(words)) })
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(distance(a, words), distance(b, words)))
	})
	return web.WriteJSON(w, v.R, http.StatusOK, items[:min(len(items), shown)])
}

// matches reports whether a text contains all words, in any order.
func matches(text string, words []string) bool {
	text = strings.ToLower(text)
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// distance is the place of the typed text in an item.
func distance(i item, words string) int { return strings.Index(strings.ToLower(i.Text), words) }

// of returns the stacks of an organization, with what the user may do, and its pools with their agents.
func (p *palette) of(v *page.Visit, o store.Organization, words string) ([]item, error) {
	name, number, _ := strings.Cut(words, "#")
	name = strings.TrimPrefix(strings.TrimSpace(name), "deploy ")
	var items []item
	if name := strings.Fields(name); len(name) > 0 {
		longest := slices.MaxFunc(name, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		list, err := p.Stacks.List(v.Context(), store.StackFilter{Reach: v.Who.Reach(o.ID), Contains: longest, Limit: searched})
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(st store.Stack) bool { return !matches(st.Project+"/"+st.Name, name) })
		for _, st := range list[:min(len(list), found)] {
			text, path := st.Project+"/"+st.Name, []string{o.Name, st.Project, st.Name}
			if number != "" {
				items = append(items, item{Text: text + " #" + number, Kind: "deployment", Href: links.Path(append(path, "deployments", number)...), rank: 1})
				continue
			}
			items = append(items, item{Text: text, Kind: "stack", Href: links.Path(path...), rank: 1})
			who, _, err := p.Stacks.Find(v.Context(), v.Who, identity.StateRead, o.Name, st.Project, st.Name)
			if err == nil && who.Can(st, identity.Operate) {
				items = append(items, item{Text: "Deploy " + text, Kind: "action", Href: links.Path(append(path, "deploy")...), rank: 2})
			}
		}
	}
	if !v.Who.CanReadPools(o.ID) {
		return items, nil
	}
	list, _, err := p.Pools.List(v.Context(), o.ID)
	if err != nil {
		return nil, err
	}
	for _, pool := range list {
		path := []string{o.Name, "-", "pools", pool.ID}
		items = append(items, item{Text: pool.Name, Kind: "pool", Href: links.Path(path...)})
		if words == "" {
			continue // agents would crowd out the pages
		}
		for _, a := range pool.Agents {
			items = append(items, item{Text: cmp.Or(a.Hostname, a.AgentID) + " in " + pool.Name, Kind: "agent", Href: links.Path(append(path, "agents", a.AgentID)...)})
		}
	}
	return items, nil
}
