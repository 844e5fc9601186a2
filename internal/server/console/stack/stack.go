// Package stack contains the pages about stacks: the list, and one stack with its updates and
// resources.
package stack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"

	console "workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/drift"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
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
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	read := page.Stack(identity.StateRead)
	const stack = "/{org}/{project}/{stack}"
	site.View("/{org}/-/stacks", page.Belongs, p.list)
	site.View("/{org}/{project}", page.Belongs, p.list)
	site.View(stack, read, p.overview)
	site.Action(stack+"/tags", page.Stack(identity.Write), p.setTag)
	site.View(stack+"/updates", read, p.activity)
	site.View(stack+"/updates/{version}", read, p.update)
	site.View(stack+"/previews/{update}", read, p.preview)
	site.View(stack+"/resources", read, p.resources)
	site.View(stack+"/resource", read, p.resource)
	site.View(stack+"/resources/{urn}", read, p.resource)
	site.View(stack+"/drift", read, p.drift)
}

const listed = 50

// list shows the stacks of an organization or project that the visitor may see.
func (p *pages) list(v *page.Visit) (view.Page, error) {
	org, project, words := v.Org, v.Param("project"), v.Query("q")
	filter := store.StackFilter{Reach: v.Who.Reach(org.ID), Project: project, Contains: words, After: v.Query("after"), Limit: listed + 1}
	list, err := p.Stacks.List(v.Context(), filter)
	if err != nil {
		return view.Page{}, err
	}
	next := ""
	if len(list) > listed {
		list = list[:listed]
		next = "?after=" + urlQuery(list[listed-1].SortKey()) + "&q=" + urlQuery(words)
	}
	return view.Page{
		Title: cmp.Or(project, "Stacks"), Section: "stacks",
		Crumbs: []view.Crumb{{Text: org.Name, Href: view.Path(org.Name)}, {Text: "Stacks", Href: view.Path(org.Name, "-", "stacks")}},
		Live:   []view.Topic{{Channel: stacks.Topic, About: org.ID + "/"}},
		Body:   stackList(org.Name, project, words, list, next, p.APIURL),
	}, nil
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
	newest, holds, err := p.Stacks.NewestOperation(ctx, v.Stack)
	if err != nil {
		return out, err
	}
	lock, err := p.Stacks.Lock(ctx, v.Who, v.Stack)
	if err != nil {
		return out, err
	}
	described, err := readme(tags["pulumi:description"], readmeOf(outputs))
	if err != nil {
		return out, err
	}
	out.Body = overview(overviewModel{
		Lock: lock, Readme: described, Now: time.Now(),
		St: v.Stack, Tags: tags, Outputs: outputs, Pending: pending, Recent: recent, Newest: newest, Holds: holds,
		Operate: v.Who.Can(v.Stack, identity.Operate), Write: v.Who.Can(v.Stack, identity.Write), APIURL: p.APIURL,
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
	Holds          bool
	Operate, Write bool
	APIURL         string
	Lock           *stacks.Lock
	Readme         templ.Component // nil without a README
	Now            time.Time
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

func (p *pages) activity(v *page.Visit) (view.Page, error) {
	out := Page(v.Stack, "updates")
	previews := v.Query("previews") != ""
	offset, err := strconv.Atoi(cmp.Or(v.Query("from"), "0"))
	if err != nil || offset < 0 {
		return out, fault.Invalid("The parameter \"from\" must be a number.")
	}
	list, err := p.history(v, store.UpdateFilter{Previews: previews, Limit: listed + 1, Offset: offset})
	if err != nil {
		return out, err
	}
	next := ""
	if len(list) > listed {
		list = list[:listed]
		next = "?from=" + strconv.Itoa(offset+listed)
		if previews {
			next += "&previews=1"
		}
	}
	out.Title = "Activity of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = activity(v.Stack, list, previews, next)
	return out, nil
}

func (p *pages) update(v *page.Visit) (view.Page, error) {
	version, err := strconv.ParseInt(v.Param("version"), 10, 64)
	if err != nil {
		return view.Page{}, fault.NotFound("The stack has no update %q.", v.Param("version"))
	}
	e, err := p.Stacks.Version(v.Context(), v.Stack, version)
	if err != nil {
		return view.Page{}, err
	}
	return p.updatePage(v, e)
}

func (p *pages) preview(v *page.Visit) (view.Page, error) {
	u, err := p.Stacks.FindUpdate(v.Context(), v.Stack, v.Param("update"))
	if err != nil {
		return view.Page{}, err
	}
	list, err := p.Stacks.Entries(v.Context(), []store.Update{u})
	if err != nil {
		return view.Page{}, err
	}
	return p.updatePage(v, list[0])
}

// updateMark returns the mark of an update in title and icon.
func updateMark(status string) string {
	switch stacks.Status(status) {
	case stacks.Running:
		return "run"
	case stacks.Succeeded:
		return "ok"
	case stacks.Failed, stacks.Cancelled:
		return "bad"
	default:
		return "queued"
	}
}

func (p *pages) updatePage(v *page.Visit, e stacks.Entry) (view.Page, error) {
	out := Page(v.Stack, "updates")
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, e.Update)
	if err != nil {
		return out, err
	}
	described, err := p.Stacks.Describe(v.Context(), e.Update)
	if err != nil {
		return out, err
	}
	name := fmt.Sprintf("%s %d", e.Kind, e.Version)
	if e.Preview {
		name = "preview"
	}
	out.Title, out.Mark = name+" of "+v.Stack.Project+"/"+v.Stack.Name, updateMark(e.Status)
	out.Crumbs = append(out.Crumbs, view.Crumb{Text: "Activity", Href: page.StackPath(v.Stack, "updates")}, view.Crumb{Text: name})
	if stacks.Status(e.Status).Finished() {
		out.Live = nil
	} else {
		out.Live = append(out.Live, view.Topic{Channel: stacks.UpdateTopic, About: e.ID}, view.Topic{Channel: stacks.ChangesTopic, About: e.ID})
	}
	var message string
	_ = json.Unmarshal(described.Message, &message) // CreateUpdate encoded it
	deployment := ""
	if e.DeploymentID != "" {
		d, err := p.Deployments.Get(v.Context(), v.Stack, e.DeploymentID)
		if err != nil && fault.KindOf(err) != fault.KindNotFound {
			return out, err
		}
		if err == nil {
			deployment = strconv.FormatInt(d.Version, 10)
		}
	}
	m := updateModel{
		St: v.Stack, Entry: e, Name: name, View: cmp.Or(v.Query("view"), "changes"), Message: message, Deployment: deployment,
		Environment: pairsOf(described.Environment), Config: configOf(described.Config), Path: updatePath(v.Stack, e.Update),
	}
	m.Changes = console.Model{
		Tree: tree, Base: m.Path, Detail: m.Path, Over: stacks.Status(e.Status).Finished(), Preview: e.Preview, Now: time.Now(),
	}
	m.Changes.Resume(v.Query)
	content, err := p.updateView(v, &m)
	if err != nil {
		return out, err
	}
	out.Wide = true
	out.Body = updateDetail(m, content)
	return out, nil
}

// updateView returns what a view of an update shows below the head.
func (p *pages) updateView(v *page.Visit, m *updateModel) (templ.Component, error) {
	switch m.View {
	case "diff":
		return p.diff(v, m)
	case "messages":
		return console.Diagnostics(m.Changes), nil
	case "timeline":
		return console.Timeline(m.Changes), nil
	case "config":
		return pairSection("The update used no configuration.", m.Config), nil
	case "environment":
		return pairSection("The client did not describe its environment.", m.Environment), nil
	default:
		m.View = "changes"
		return console.View(m.Changes), nil
	}
}

// shownDiffs bounds the resources whose diffs one page shows without a choice.
const shownDiffs = 20

// diff shows the diff of one resource, or of the first changed ones.
func (p *pages) diff(v *page.Visit, m *updateModel) (templ.Component, error) {
	urns, more := []string{v.Query("urn")}, 0
	if urns[0] == "" {
		urns = nil
		for _, r := range m.Changes.Rows {
			switch {
			case !r.Changed():
			case len(urns) < shownDiffs:
				urns = append(urns, r.URN)
			default:
				more++
			}
		}
	}
	list := make([]templ.Component, 0, len(urns))
	for _, urn := range urns {
		steps, err := p.Stacks.ChangeOf(v.Context(), v.Who, v.Stack, m.Update, urn)
		if err != nil {
			return nil, err
		}
		var diffs []diff.Diff
		for _, step := range steps {
			d, err := diff.Of(step)
			if err != nil {
				return nil, err
			}
			if d.Op != "replace" || len(steps) == 1 { // the other steps of a replacement describe it
				diffs = append(diffs, d)
			}
		}
		list = append(list, console.DiffView(urn, diffs, m.Path))
	}
	return diffList(list, more), nil
}

type updateModel struct {
	St store.Stack
	stacks.Entry
	Name        string
	Path        string
	View        string
	Changes     console.Model
	Message     string
	Deployment  string
	Environment []pair
	Config      []pair
}

// updateViews are the views of an update.
var updateViews = []struct{ name, text string }{
	{"changes", "Changes"}, {"diff", "Diff"}, {"messages", "Messages"}, {"timeline", "Timeline"}, {"config", "Configuration"}, {"environment", "Environment"},
}

func updatePath(st store.Stack, u store.Update) string {
	if u.Preview {
		return page.StackPath(st, "previews", u.ID)
	}
	return page.StackPath(st, "updates", strconv.FormatInt(u.Version, 10))
}

type pair struct{ Name, Value string }

func pairsOf(raw json.RawMessage) []pair {
	var m map[string]string
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	out := make([]pair, 0, len(m))
	for k, v := range m {
		out = append(out, pair{k, v})
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// configOf returns an update's configuration without secrets.
func configOf(raw json.RawMessage) []pair {
	var m map[string]stacks.ConfigValue
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	out := make([]pair, 0, len(m))
	for k, v := range m {
		text := v.String
		if v.Secret {
			text = diff.Secret
		}
		out = append(out, pair{k, text})
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// shownResources bounds the resources on a page.
const shownResources = 1000

// resourceRow is a resource in the list.
type resourceRow struct{ URN, Type, Name, ID, Parent string }

func (p *pages) resources(v *page.Visit) (view.Page, error) {
	out := Page(v.Stack, "resources")
	words, kind := strings.ToLower(v.Query("q")), v.Query("type")
	var rows []resourceRow
	var types []string
	total, matching := 0, 0
	if v.Stack.StateBlob != "" {
		all, err := p.Stacks.Resources(v.Context(), v.Stack, 0)
		if err != nil {
			return out, err
		}
		for raw := range all.All() {
			var r struct{ URN, Type, ID, Parent string }
			if err := json.Unmarshal(raw, &r); err != nil {
				return out, fmt.Errorf("reading a resource: %w", err)
			}
			total++
			if !slices.Contains(types, r.Type) && len(types) < 200 {
				types = append(types, r.Type)
			}
			if kind != "" && r.Type != kind || words != "" && !strings.Contains(strings.ToLower(r.URN+" "+r.ID), words) {
				continue
			}
			if matching++; len(rows) < shownResources {
				rows = append(rows, resourceRow{r.URN, r.Type, nameOf(r.URN), r.ID, r.Parent})
			}
		}
	}
	slices.Sort(types)
	out.Title = "Resources of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = resourceList(v.Stack, rows, total, matching, v.Query("q"), kind, types)
	return out, nil
}

func (p *pages) resource(v *page.Visit) (view.Page, error) {
	out := Page(v.Stack, "resources")
	urn := cmp.Or(v.Param("urn"), v.Query("urn"))
	all, err := p.Stacks.Resources(v.Context(), v.Stack, 0)
	if err != nil {
		return out, err
	}
	raw, err := all.Find(urn)
	if err != nil {
		return out, err
	}
	public, err := stacks.PublicResource(raw)
	if err != nil {
		return out, err
	}
	var r resourceDetail
	if err := json.Unmarshal(public, &r); err != nil {
		return out, fmt.Errorf("reading a resource: %w", err)
	}
	for other := range all.All() {
		var o struct {
			URN          string
			Parent       string
			Dependencies []string
		}
		if json.Unmarshal(other, &o) == nil && (o.Parent == urn || slices.Contains(o.Dependencies, urn)) && len(r.Dependents) < 100 {
			r.Dependents = append(r.Dependents, o.URN)
		}
	}
	out.Title = nameOf(urn)
	out.Crumbs = append(out.Crumbs, view.Crumb{Text: "Resources", Href: page.StackPath(v.Stack, "resources")}, view.Crumb{Text: out.Title})
	out.Body = resourceView(v.Stack, r)
	return out, nil
}

type resourceDetail struct {
	URN, Type, ID, Parent string
	Provider              string
	Protect, Delete       bool
	Dependencies          []string
	Inputs, Outputs       json.RawMessage
	Dependents            []string `json:"-"`
}
