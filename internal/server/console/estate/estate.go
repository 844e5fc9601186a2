// Package estate contains the page of an organization's stacks, and of those of a project.
package estate

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	domain "workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// Deps are the services behind the pages.
type Deps struct {
	Estate      *domain.Service
	Stacks      *stacks.Service
	Deployments *deployments.Service
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/stacks", page.Belongs, p.list)
	site.View("/{org}/{project}", page.Belongs, p.list)
	site.Action("/{org}/-/stacks/star", page.Belongs, p.star)
	site.Raw("/{org}/-/stacks/bulk", page.Belongs, bulkAgain)
	site.Action("/{org}/-/stacks/bulk", page.Belongs, p.bulk)
	site.Action("/{org}/-/stacks/views", page.Belongs, p.saveView)
	site.Action("/{org}/-/stacks/views/delete", page.Belongs, p.deleteView)
}

// ungrouped is the value of the parameter group for a list without groups.
const ungrouped = "none"

// noGroup is the value of the parameter fold for the group of stacks that have nothing in common.
const noGroup = "/"

// model is what a page shows. Its query is the view, which is the page's URL.
type model struct {
	domain.List
	view.Filters
	Org, API string
	Query    domain.Query
	Create   bool
	Views    []savedView
	// ViewName is the name of a view that could not be saved, and ViewProblem says why.
	ViewName, ViewProblem string
}

func (p *pages) list(v *page.Visit) (view.Page, error) {
	return p.page(v, v.Param("project"), view.Filters{Path: v.R.URL.EscapedPath(), Values: v.R.URL.Query()}, "", "")
}

// page is the list of a view. name is that under which the view could not be saved because of a problem.
func (p *pages) page(v *page.Visit, project string, filters view.Filters, name, problem string) (view.Page, error) {
	m := model{Org: v.Org.Name, API: p.APIURL, Create: v.Who.CanCreateStack(v.Org.ID), Filters: filters, ViewName: name, ViewProblem: problem}
	m.Parameters, m.Place = parameters, "page"
	m.Query = query(m.Values)
	m.Query.Project = project
	var err error
	if m.List, err = p.Estate.List(v.Context(), v.Who, v.Org.ID, m.Query); err != nil {
		return view.Page{}, err
	}
	if m.Views, err = p.views(v, m); err != nil {
		return view.Page{}, err
	}
	return view.Page{
		Title: cmp.Or(m.Query.Project, "Stacks"), Section: "stacks",
		Bar:  &view.Bar{Title: cmp.Or(m.Query.Project, "Stacks"), Count: words.Number(m.All), Actions: actions(m)},
		Body: body(m),
		Live: []view.Topic{
			{Channel: stacks.Topic, About: v.Org.ID + "/"}, {Channel: deployments.Topic, About: v.Org.ID + "/"}, {Channel: pools.Topic, About: v.Org.ID + "/"},
		},
	}, nil
}

// query returns the query of a page's URL.
func query(values url.Values) domain.Query {
	q := domain.Query{
		Text: strings.TrimSpace(values.Get("q")), Starred: values.Get("star") == "on", Owner: values.Get("owner"), Drift: values.Get("drift"),
		Group: store.EstateGroup(cmp.Or(values.Get("group"), string(store.GroupByProject))), Sort: store.EstateSort(cmp.Or(values.Get("sort"), string(store.SortByState))),
	}
	if q.Group == ungrouped {
		q.Group = store.Ungrouped
	}
	for _, value := range values["fold"] {
		q.Folded = append(q.Folded, strings.TrimPrefix(value, noGroup))
	}
	q.TagName, q.TagValue, _ = strings.Cut(values.Get("tag"), ":")
	for _, s := range values["state"] {
		q.States = append(q.States, domain.State(s))
	}
	q.Page, _ = strconv.Atoi(values.Get("page")) // an invalid number selects the first page
	return q
}

// star marks a stack for the visitor, or removes the mark. The form's button names the stack.
func (p *pages) star(v *page.Visit) (page.Answer, error) {
	name, on := v.Form("star"), true
	if name == "" {
		name, on = v.Form("unstar"), false
	}
	project, stack, ok := strings.Cut(name, "/")
	if !ok {
		return page.Answer{}, fault.Invalid("The form names no stack.")
	}
	who, st, err := p.Stacks.Find(v.Context(), v.Who, identity.StateRead, v.Org.Name, project, stack)
	if err == nil {
		err = p.Estate.SetStar(v.Context(), who, st, on)
	}
	a := page.See(page.Back(v, links.Path(v.Org.Name, "-", "stacks")))
	text, opposite := "Starred "+name+".", "unstar"
	if !on {
		text, opposite = name+" is no longer starred.", "star"
	}
	return a.Undo(text, links.Path(v.Org.Name, "-", "stacks", "star"), opposite, name), err
}

// parameters are those of the page's URL.
var parameters = []string{"q", "state", "star", "tag", "owner", "drift", "group", "fold", "sort", "page"}

func (m model) filtered() bool {
	q := m.Query
	return q.Text != "" || len(q.States) > 0 || q.Starred || q.TagName != "" || q.Owner != "" || q.Drift != ""
}

var groupTexts = []view.Option{
	{Value: string(store.GroupByProject), Text: "Project"},
	{Value: string(store.GroupByOwner), Text: "Owner"},
	{Value: string(store.GroupByRepository), Text: "Repository"},
	{Value: string(store.GroupByTag) + "env", Text: "Tag env"},
	{Value: ungrouped, Text: "No groups"},
}

var sortTexts = []view.Option{
	{Value: string(store.SortByState), Text: "Needs attention first"},
	{Value: string(store.SortByName), Text: "Name"},
	{Value: string(store.SortByChange), Text: "Last change"},
	{Value: string(store.SortByResources), Text: "Resources"},
	{Value: string(store.SortByDrift), Text: "Drift"},
}

// rowMenu are the pages of a stack to which its row links.
var rowMenu = []view.Part{{Name: "runs", Text: "Runs"}, {Name: "changes", Text: "Changes"}, {Name: "resources", Text: "Resources"}, {Name: "drift", Text: "Drift"}}

// menu returns the options of a parameter, and the text of the current one.
func (m model) menu(name, current string, texts []view.Option) (text string, list []view.MenuItem) {
	for _, o := range texts {
		value := o.Value
		if o == texts[0] {
			value = "" // the default
		}
		href := m.With(name, value)
		if name == "group" {
			href = m.With(name, value, "fold", "")
		}
		list = append(list, view.MenuItem{Text: o.Text, Href: href, Current: o.Value == current})
		if o.Value == current {
			text = o.Text
		}
	}
	return cmp.Or(text, strings.TrimPrefix(current, string(store.GroupByTag))), list
}

func (m model) groups() (string, []view.MenuItem) {
	return m.menu("group", cmp.Or(string(m.Query.Group), ungrouped), groupTexts)
}

func (m model) sorts() (string, []view.MenuItem) {
	return m.menu("sort", string(m.Query.Sort), sortTexts)
}

func (m model) owners() (string, []view.MenuItem) {
	texts := []view.Option{{Text: "owner: any"}}
	for _, o := range m.Owners {
		texts = append(texts, view.Option{Value: o, Text: o})
	}
	text, list := m.menu("owner", m.Query.Owner, texts)
	if m.Query.Owner != "" {
		text = "owner: " + m.Query.Owner
	}
	return text, list
}

// rest returns the states and results of detections without chips. Their menu has no state and drift at the same time.
func (m model) rest() (text string, list []view.MenuItem) {
	text = "state: any"
	none := m.Query.Drift == "" && (len(m.Query.States) == 0 || slices.Contains(chipped, m.Query.States[0]))
	list = []view.MenuItem{{Text: text, Href: m.With("state", "", "drift", ""), Current: none}}
	for _, s := range unchipped {
		list = append(list, view.MenuItem{Text: s.Words(), Href: m.With("state", string(s), "drift", "", "star", ""), Current: slices.Contains(m.Query.States, s)})
	}
	for _, d := range []view.Option{{Value: "never", Text: "drift: not checked"}, {Value: "none", Text: "drift: none"}, {Value: "found", Text: "drift: found"}} {
		list = append(list, view.MenuItem{Text: d.Text, Href: m.With("state", "", "drift", d.Value, "star", ""), Current: m.Query.Drift == d.Value})
	}
	for i, o := range list {
		if o.Current && i > 0 {
			text = o.Text
		}
	}
	return text, append(list, view.MenuItem{Text: "Deleted stacks", Href: m.deleted()})
}

// deleted is the path of the page with the deleted stacks.
func (m model) deleted() string { return links.Path(m.Org, "-", "stacks", "deleted") }

// chip is a filter with the number of its stacks.
type chip struct {
	Text, Mark, Icon string
	Count            int64
	Href             string
	Current          bool
}

// chipped are the states with chips of their own, if a stack is in them.
var chipped, unchipped = []domain.State{domain.Failed, domain.Drift, domain.Running}, []domain.State{domain.Queued, domain.Paused, domain.Declared, domain.Never}

var chipTexts = map[domain.State]string{domain.Failed: "Failed", domain.Drift: "Drift", domain.Running: "Running"}

func (m model) chips() []chip {
	list := []chip{{Text: "All", Count: m.All, Href: m.With("state", "", "star", ""), Current: len(m.Query.States) == 0 && !m.Query.Starred}}
	for _, s := range chipped {
		current := slices.Contains(m.Query.States, s)
		if n := m.States[s]; n > 0 || current {
			list = append(list, chip{Text: chipTexts[s], Mark: Mark(s), Count: n, Href: m.With("state", string(s), "star", "", "drift", ""), Current: current})
		}
	}
	return append(list, chip{Text: "Starred", Icon: "star", Count: m.Stars, Href: m.With("state", "", "star", "on"), Current: m.Query.Starred})
}

// pager returns the URLs of the first and the next page, or "".
func (m model) pager() (first, next string) {
	at := max(1, m.Query.Page)
	if at > 1 {
		first = m.With()
	}
	if m.More {
		next = m.With("page", strconv.Itoa(at+1))
	}
	return first, next
}

// groupID is the id of the row of a group.
func groupID(value string) string { return "g-" + url.QueryEscape(value) }

// foldHref is the page on which a group is folded if it is not, and otherwise unfolded.
func (m model) foldHref(value string) string {
	value = cmp.Or(value, noGroup)
	changed := m.Filters
	changed.Values = maps.Clone(m.Values)
	if list := m.Values["fold"]; slices.Contains(list, value) {
		changed.Values["fold"] = slices.DeleteFunc(slices.Clone(list), func(name string) bool { return name == value })
	} else {
		changed.Values["fold"] = append(slices.Clip(list), value)
	}
	return changed.With("page", m.Values.Get("page"))
}

// groupText is the title of a group.
func (m model) groupText(value string) string {
	if value != "" {
		return value
	}
	switch m.Query.Group {
	case store.GroupByOwner:
		return "No owner"
	case store.GroupByRepository:
		return "No repository"
	default:
		return "Without the tag " + strings.TrimPrefix(string(m.Query.Group), string(store.GroupByTag))
	}
}

// groupHref is the page with only the stacks of a group, or "" if no filter selects them.
func (m model) groupHref(value string) string {
	name, isTag := strings.CutPrefix(string(m.Query.Group), string(store.GroupByTag))
	switch {
	case value == "":
		return ""
	case m.Query.Group == store.GroupByProject:
		return links.Path(m.Org, value)
	case m.Query.Group == store.GroupByOwner:
		return m.With("owner", value)
	case isTag:
		return m.With("tag", name+":"+value)
	default:
		return m.With("q", value)
	}
}

// label says by what the list is grouped.
func (m model) label() string {
	if m.Query.Group == store.Ungrouped {
		return "Stacks"
	}
	text, _ := m.groups()
	return "Stacks, grouped by " + strings.ToLower(text)
}
