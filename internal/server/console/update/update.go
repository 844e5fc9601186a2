// Package update contains the page of one update or preview: the page whose address the pulumi CLI prints.
package update

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/a-h/templ"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/policy"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct {
	Stacks      *stacks.Service
	Deployments *deployments.Service
	Results     *results.Service
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	read := page.Stack(identity.StateRead)
	for _, one := range []string{"/updates/{version}", "/previews/{update}"} {
		site.View("/{org}/{project}/{stack}"+one, read, p.show)
		site.Raw("/{org}/{project}/{stack}"+one+"/changes", read, p.rows)
	}
}

// shown is an update as its page shows it.
type shown struct {
	stacks.Entry
	St      store.Stack
	Path    string
	Tab     string
	Tree    changes.Model
	Program client
	// Message is what the client says about the update, in full.
	Message string
	// Deployment is the number of the deployment that runs the update, or 0.
	Deployment int64
	// Before is the version before the update whose state is kept, or -1.
	Before int64
	// Cause is why the update failed; nil if it has not, or if the events do not say it.
	Cause *store.Cause
	// Policy is what the policy packs of the update found.
	Policy policy.Run
	Now    time.Time
}

// The tabs of the page.
const (
	tabChanges  = "changes"
	tabTimeline = "timeline"
)

var tabs = []view.Part{
	{Name: tabChanges, Text: "Changes"},
	{Name: tabTimeline, Text: "Timeline"},
	{Name: "config", Text: "Configuration"},
	{Name: "environment", Text: "Environment"},
}

// tabs are the tabs of an update. Most have no policy packs.
func (d shown) tabs() []view.Part {
	if d.Policy.Empty() {
		return tabs
	}
	return slices.Insert(slices.Clone(tabs), 2, policy.Tab)
}

// entry returns the update or preview of a path.
func (p *pages) entry(v *page.Visit) (stacks.Entry, error) {
	if id := v.Param("update"); id != "" {
		u, err := p.Stacks.FindUpdate(v.Context(), v.Stack, id)
		if err != nil {
			return stacks.Entry{}, err
		}
		list, err := p.Stacks.Entries(v.Context(), []store.Update{u})
		if err != nil {
			return stacks.Entry{}, err
		}
		return list[0], nil
	}
	version, err := strconv.ParseInt(v.Param("version"), 10, 64)
	if err != nil {
		return stacks.Entry{}, fault.NotFound("The stack has no update %q.", v.Param("version"))
	}
	return p.Stacks.Version(v.Context(), v.Stack, version)
}

// tree returns the tree of an update.
func (p *pages) tree(v *page.Visit, e stacks.Entry) (changes.Model, error) {
	tree, err := p.Stacks.Changes(v.Context(), v.Who, v.Stack, e.Update)
	if err != nil {
		return changes.Model{}, err
	}
	path := changes.UpdatePath(v.Stack, e.Update)
	m := changes.Model{
		Tree: tree, Base: path, RowsURL: path + "/changes",
		Over: stacks.Status(e.Status).Finished(), Preview: e.Preview, Expired: e.EventsExpired, Now: time.Now(),
	}
	m.Resume(v.Query)
	return m, nil
}

// rows sends a part of the tree.
func (p *pages) rows(w http.ResponseWriter, v *page.Visit) error {
	e, err := p.entry(v)
	if err != nil {
		return err
	}
	m, err := p.tree(v, e)
	if err != nil {
		return err
	}
	return m.Window(w, v)
}

func (p *pages) load(v *page.Visit) (shown, error) {
	d := shown{St: v.Stack, Now: time.Now(), Before: -1}
	var err error
	if d.Entry, err = p.entry(v); err != nil {
		return d, err
	}
	d.Path = changes.UpdatePath(v.Stack, d.Update)
	switch tab := v.Query("view"); tab {
	case tabTimeline, "config", "environment", policy.Tab.Name:
		d.Tab = tab
	default: // addresses of earlier versions name parts of this tab, too
		d.Tab = tabChanges
	}
	d.Policy = policy.Run{Href: d.Path + "?view=" + policy.Tab.Name, Preview: d.Preview, Expired: d.EventsExpired}
	if d.Policy.Report, err = p.Results.Of(v.Context(), d.Update, policy.Shown); err != nil {
		return d, err
	}
	if d.Tree, err = p.tree(v, d.Entry); err != nil {
		return d, err
	}
	if v.Query("view") == "diff" {
		d.Tree.Select()
	}
	described, err := p.Stacks.Describe(v.Context(), d.Update)
	if err != nil {
		return d, err
	}
	_ = json.Unmarshal(described.Message, &d.Message) // CreateUpdate encoded it
	d.Program = clientOf(described)
	if d.failed() {
		d.Cause = cause.OfUpdate(d.Tree.Tree)
	}
	if d.DeploymentID != "" {
		found, err := p.Deployments.Get(v.Context(), v.Stack, d.DeploymentID)
		if err != nil && fault.KindOf(err) != fault.KindNotFound {
			return d, err
		}
		d.Deployment = found.Version
	}
	return d, p.before(v, &d)
}

// before finds the version with which the states can be compared.
func (p *pages) before(v *page.Visit, d *shown) error {
	if d.Preview || !stacks.Status(d.Status).Finished() || d.StateExpired || d.Version == 0 {
		return nil
	}
	if d.Version == 1 {
		d.Before = 0
		return nil
	}
	before, err := p.Stacks.Version(v.Context(), v.Stack, d.Version-1)
	if err == nil && !before.StateExpired {
		d.Before = before.Version
	}
	if fault.KindOf(err) == fault.KindNotFound {
		err = nil
	}
	return err
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	d, err := p.load(v)
	if err != nil {
		return view.Page{}, err
	}
	out := view.Page{Title: d.name() + " of " + v.Stack.Project + "/" + v.Stack.Name, Mark: tabMark(d.Status), Section: "stacks", Layout: view.Work}
	if !stacks.Status(d.Status).Finished() {
		out.Live = []view.Topic{{Channel: stacks.UpdateTopic, About: d.ID}, {Channel: stacks.ChangesTopic, About: d.ID}}
	}
	out.Object = &view.Object{
		Mark: view.MarkOf(d.Status), Project: v.Stack.Project, Name: v.Stack.Name, Number: d.number(), Href: page.StackPath(v.Stack),
		Plain: d.explains(), Badges: badges(d), Actions: actions(d), Facts: facts(d), Label: "Views", Tabs: view.ViewTabs(d.tabs(), d.Tab, d.Path),
	}
	if d.Tab != tabChanges && d.Tab != tabTimeline {
		out.Layout = view.Own
	}
	out.Body, err = p.content(v, d)
	return out, err
}

func (p *pages) content(v *page.Visit, d shown) (templ.Component, error) {
	switch d.Tab {
	case tabTimeline:
		return changes.Timeline(d.course()), nil
	case policy.Tab.Name:
		return policy.Section(d.Policy), nil
	case "config":
		return pairs("The update used no configuration.", d.Program.Config), nil
	case "environment":
		return pairs("The client did not describe its environment.", d.Program.Environment), nil
	}
	if d.Tree.URN == "" {
		return work(d, changes.Log(d.Tree)), nil
	}
	pane, err := changes.Update(v, p.Stacks, d.Tree, d.Update)
	return work(d, pane.View()), err
}

// course is the timeline: the update, and its resources.
func (d shown) course() changes.Course {
	c := changes.Course{Model: d.Tree, Updates: true, Started: d.StartedAt, Ended: d.FinishedAt}
	if d.StartedAt.IsZero() {
		return c
	}
	s := changes.Span{Status: view.StatusWord(d.Status), Name: "pulumi " + d.Kind, Began: d.StartedAt}
	if d.FinishedAt.IsZero() {
		s.Running, s.Took = true, max(0, d.Now.Sub(d.StartedAt))
	} else {
		s.Took = max(0, d.FinishedAt.Sub(d.StartedAt))
	}
	c.Spans = []changes.Span{s}
	return c
}

func (d shown) failed() bool {
	return stacks.Status(d.Status) == stacks.Failed
}

// explains reports whether the page begins with a cause.
func (d shown) explains() bool { return d.Tab == tabChanges && d.failed() }

// headline says why the update failed, as far as it is known.
func (d shown) headline() string {
	switch {
	case d.Cause != nil:
		return d.Cause.Headline
	case d.Reason != "":
		return "The " + d.Kind + " failed: " + d.Reason
	default:
		return "The " + d.Kind + " failed"
	}
}

// name names the update in a sentence.
func (d shown) name() string {
	if d.Preview {
		return "preview"
	}
	return fmt.Sprintf("%s v%d", d.Kind, d.Version)
}

// number is the number of the update next to the name of the stack.
func (d shown) number() string {
	if d.Preview {
		return "preview"
	}
	return "v" + strconv.FormatInt(d.Version, 10)
}

// tabMark returns the state that the title and the icon of the window show.
func tabMark(status string) string {
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

// kindWords are the words for an operation: as the name of a run, and while it runs.
var kindWords = map[string]struct{ name, doing string }{
	"update": {"Update", "Updating"}, "preview": {"Preview", "Previewing"}, "refresh": {"Refresh", "Refreshing"}, "destroy": {"Destroy", "Destroying"},
	"import": {"Import", "Importing"}, "rename": {"Rename", "Renaming"},
}

func (d shown) kind() (name, doing string) {
	w := kindWords[d.Kind]
	name, doing = cmp.Or(w.name, d.Kind), cmp.Or(w.doing, d.Kind)
	if d.Preview && d.Kind != "preview" {
		return "Preview of a " + d.Kind, "Previewing a " + d.Kind
	}
	return name, doing
}

// requester names who started the update.
func (d shown) requester() string { return changes.Who(d.Entry) }

// called is the name of who started the update, or else what requester returns.
func (d shown) called() string { return cmp.Or(d.By.Name, d.requester()) }
