package stack

import (
	"net/url"
	"strings"

	"github.com/a-h/templ"

	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

func urlQuery(text string) string { return url.QueryEscape(text) }

// Heads makes the heads of all pages about a stack.
type Heads struct {
	Estate      *estate.Service
	Deployments *deployments.Service
	Pools       *pools.Service
}

// The tabs of a stack: the last segments of their paths.
const (
	Overview  = ""
	Changes   = "changes"
	Resources = "resources"
	Runs      = "runs"
	Drift     = "drift"
	Settings  = "settings"
)

var tabs = []view.Part{
	{Text: "Overview"},
	{Name: Changes, Text: "Changes"},
	{Name: Resources, Text: "Resources"},
	{Name: Runs, Text: "Runs"},
	{Name: Drift, Text: "Drift"},
	{Name: Settings, Text: "Settings"},
}

// settingsParts are the pages with settings: the last segments of their paths, and their texts.
var settingsParts = []view.Part{
	{Text: "Deploy"},
	{Name: "triggers", Text: "Triggers"},
	{Name: "schedules", Text: "Schedules"},
	{Name: "webhooks", Text: "Webhooks"},
	{Name: "access", Text: "Access"},
	{Name: "options", Text: "Delete or move"},
}

// SettingsTabs returns the pages with settings that a visitor may see. part is the last segment of the current one's path.
func SettingsTabs(v *page.Visit, part string) []view.Tab {
	var seen []view.Part
	for _, p := range settingsParts {
		if p.Name != "webhooks" || v.Who.Can(v.Stack, identity.Manage) {
			seen = append(seen, p)
		}
	}
	return view.Tabs(seen, part, func(name ...string) string {
		return page.StackPath(v.Stack, append([]string{"settings"}, name...)...)
	})
}

// head is what the head of a stack shows.
type head struct {
	estate.Stack
	St      store.Stack
	Set     *workflow.Settings // nil without deployment settings
	Pool    string             // name of the pool; "" if unknown
	All     int64              // its runs, up to [deployments.CountLimit]
	Operate bool
}

// Page returns a page about a stack with its head, its tabs and its live topics. tab is the current tab. The body of the page
// contains its title.
func (h Heads) Page(v *page.Visit, tab string) (view.Page, error) {
	p, _, err := h.page(v, tab)
	return p, err
}

// Known is what the head of a stack has read.
type Known struct {
	estate.Stack
	Set     *workflow.Settings // nil without deployment settings
	Operate bool               // the visitor may start deployments
}

// Known is [Heads.Page], with what it has read.
func (h Heads) Known(v *page.Visit, tab string) (view.Page, Known, error) {
	p, m, err := h.page(v, tab)
	return p, Known{m.Stack, m.Set, m.Operate}, err
}

func (h Heads) page(v *page.Visit, tab string) (view.Page, head, error) {
	st, ctx := v.Stack, v.Context()
	m := head{St: st, Operate: v.Who.Can(st, identity.Operate)}
	var err error
	if m.Stack, err = h.Estate.Get(ctx, v.Who, st); err != nil {
		return view.Page{}, m, err
	}
	switch set, err := h.Deployments.Settings(ctx, st); {
	case err == nil:
		m.Set = &set.Settings
		if m.Pool, err = h.Pools.Name(ctx, st.OrgID, m.Set.AgentPoolID); err != nil {
			return view.Page{}, m, err
		}
	case fault.KindOf(err) != fault.KindNotFound:
		return view.Page{}, m, err
	}
	if m.All, err = h.Deployments.CountRuns(ctx, st); err != nil {
		return view.Page{}, m, err
	}
	o := &view.Object{
		Mark: list.Mark(m.State), Project: st.Project, Name: st.Name, Plain: tab != Overview, Badges: badges(m), Facts: facts(m), Label: "Stack",
		Tabs: view.Tabs(tabs, tab, func(name ...string) string { return page.StackPath(st, name...) }),
	}
	if tab != Overview {
		o.Href = page.StackPath(st)
	}
	if m.Operate {
		o.Actions = actions(m)
	}
	for i := range o.Tabs {
		switch n := m.drifted(); {
		case tabs[i].Name == Resources && m.Resources > 0:
			o.Tabs[i].Count = words.Number(m.Resources)
		case tabs[i].Name == Runs && m.All > 0:
			o.Tabs[i].Count = words.UpTo(m.All, deployments.CountLimit)
		case tabs[i].Name == Drift && n > 0:
			o.Tabs[i].Count = words.Number(n)
		}
	}
	return view.Page{
		Title: st.Project + "/" + st.Name, Mark: tabMarks[m.State], Section: "stacks", Object: o,
		Live: []view.Topic{{Channel: deployments.Topic, About: deployments.About(st, "")}, {Channel: stacks.Topic, About: st.OrgID + "/" + st.ID}},
	}, m, nil
}

// tabMarks are the states that the title and the icon of the window show.
var tabMarks = map[estate.State]string{estate.Running: "run", estate.Failed: "bad", estate.Queued: "queued"}

// branch returns the branch, commit or tag that the deployments of the stack use, and its icon.
func (h head) branch() (icon, name string) {
	if h.Set == nil || h.Set.Git() == nil {
		return "", ""
	}
	switch g := h.Set.Git(); {
	case g.Branch != "":
		return "branch", strings.TrimPrefix(g.Branch, "refs/heads/")
	case g.Commit != "":
		return "commit", g.Commit[:min(len(g.Commit), 8)]
	default:
		return "tag", g.Tag
	}
}

// stateBadge returns the kind and the text of the badge for the state; "" for a stack that is as declared.
func (h head) stateBadge() (kind, text string) {
	switch h.State {
	case estate.Failed:
		if h.LastResult == store.RunCancelled {
			return "bad", "cancelled"
		}
		return "bad", "failed"
	case estate.Drift:
		if counts := list.DriftCounts(h.Drifted()); counts != "" {
			return "warn", "drift: " + counts
		}
		return "warn", "drift found"
	case estate.Running:
		return "run", "running"
	case estate.Queued, estate.Paused, estate.Never:
		return "", h.State.Words()
	default:
		return "", ""
	}
}

// allRuns is the text of the link to all runs.
func (h head) allRuns() string {
	if h.All == 0 {
		return "All runs"
	}
	return "All " + words.UpTo(h.All, deployments.CountLimit)
}

// drifted returns the number of resources that differ from the state, or 0 if it is unknown.
func (h head) drifted() (n int64) {
	if h.Stack.Drift == store.DriftFound {
		for op, count := range h.Drifted() {
			if store.Drifts(op) {
				n += count
			}
		}
	}
	return n
}

// ways are the operations in the menu next to the button Deploy.
var ways = []struct {
	operation workflow.Operation
	icon      string
	text      string
	bad       bool
}{
	{workflow.OperationUpdate, "deploys", "Update…", false},
	{workflow.OperationRefresh, "revert", "Refresh…", false},
	{workflow.OperationDetectDrift, "search", "Detect drift…", false},
	{workflow.OperationRemediateDrift, "s-drift", "Put back drift…", false},
	{workflow.OperationDestroy, "trash", "Destroy…", true},
}

func deployPath(st store.Stack, o workflow.Operation) templ.SafeURL {
	return templ.SafeURL(page.StackPath(st, "deploy") + "?operation=" + urlQuery(string(o)))
}

func starPath(st store.Stack) templ.SafeURL { return view.Href(st.OrgName, "-", "stacks", "star") }

// lockNote is the kind of the notice about a lock.
func lockNote(state string) string {
	if state == stacks.LockAlive {
		return "info"
	}
	return "warn"
}

func byName(e stacks.Entry) string { return requester(e.By.Login, e.DeploymentID) }

// requester names who started an update: a user, or one of the other origins.
func requester(login, deploymentID string) string {
	switch {
	case login != "":
		return login
	case deploymentID != "":
		return "a deployment"
	}
	return "a token"
}
