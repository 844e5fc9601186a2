// Package queue contains the lists of deployments: of an organization and of a stack. Its [Table]
// also serves other pages.
package queue

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/changes"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Deps are the services behind the pages.
type Deps struct {
	stack.Heads
	// URL is the server's address for clients, without a trailing slash.
	URL string
}

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/deployments", page.Belongs, p.ofOrg)
	site.Action("/{org}/-/deployments/cancel", page.Belongs, p.cancel)
	site.Action("/{org}/-/deployments/pause", page.Admin, p.pause(true))
	site.Action("/{org}/-/deployments/resume", page.Admin, p.pause(false))
	site.View("/{org}/{project}/{stack}/deployments", page.Stack(identity.StateRead), p.ofStack)
}

// Row is a deployment in a [Table].
type Row struct {
	deployments.Listed
	Org string
}

// Rows returns the rows of deployments of an organization.
func Rows(org string, l deployments.Listing) []Row {
	out := make([]Row, len(l.Items))
	for i, item := range l.Items {
		out[i] = Row{item, org}
	}
	return out
}

// Path returns the path of the deployment's page.
func (r Row) Path() string {
	return links.Path(r.Org, r.Project, r.Stack, "deployments", strconv.FormatInt(r.Version, 10))
}

func (r Row) by() string { return cmp.Or(r.Requester, "the server") }

// started returns the time at which the deployment left the queue.
func (r Row) started() time.Time {
	if r.Job.StartedAt.IsZero() {
		return r.Job.ClaimedAt
	}
	return r.Job.StartedAt
}

func (r Row) waited() time.Duration {
	if r.Job.ClaimedAt.IsZero() {
		return 0
	}
	return r.Job.ClaimedAt.Sub(r.Job.QueuedAt)
}

func (r Row) ran() time.Duration {
	from := r.started()
	if from.IsZero() || r.Job.EndedAt.IsZero() {
		return 0
	}
	return r.Job.EndedAt.Sub(from)
}

// changes returns the changed resources in short, such as "+2 ~1", and in words.
func (r Row) changes() (short, words string) {
	if r.Changes == nil {
		return "", ""
	}
	return changes.Brief(r.Changes)
}

// place returns the place of a queued deployment in words, or "".
func (r Row) place() string {
	switch {
	case r.Why.Position > 0:
		return waiting.Ordinal(r.Why.Position)
	case r.Why.Ahead > 0:
		return waiting.Ordinal(r.Why.Ahead+1) + " of its stack"
	default:
		return ""
	}
}

// The stages in the order of their tabs.
var stages = []struct {
	stage store.Stage
	text  string
	empty string
}{
	{deployments.StageActive, "Active", "No deployment is running."},
	{deployments.StageQueued, "Queued", "No deployment is queued."},
	{deployments.StageFinished, "Finished", "No deployment has finished yet."},
}

// states are the states that the filter of a stage offers.
var states = map[store.Stage][]string{
	deployments.StageActive:   {waiting.StateClaimed, waiting.StateRunning},
	deployments.StageFinished: {waiting.StateSucceeded, waiting.StateFailed, waiting.StateDrift, waiting.StateCancelled, waiting.StateSkipped, waiting.StateLost},
}

var operations = []workflow.Operation{
	workflow.OperationUpdate, workflow.OperationPreview, workflow.OperationRefresh, workflow.OperationDestroy,
	workflow.OperationDetectDrift, workflow.OperationRemediateDrift,
}

// list is a page with a list of deployments.
type list struct {
	Org, Path string
	Stage     store.Stage
	Query     deployments.Query
	Rows      []Row
	First     string // path of the first page, on the others
	Next      string // path of the next page
	Queues    deployments.Queues
	Pools     []view.Option
	// Stack is set on the page of a stack.
	Stack *store.Stack
	// Admin reports whether the viewer may pause all queues; Operate, whether the viewer may cancel
	// and pause the stack of the page.
	Admin, Operate bool
	// Filtered reports whether the page shows only a part of the stage.
	Filtered bool
	URL      string
}

func (p *pages) ofOrg(v *page.Visit) (view.Page, error) {
	l, err := p.load(v, links.Path(v.Org.Name, "-", "deployments"), "")
	if err != nil {
		return view.Page{}, err
	}
	if v.Who.CanReadPools(v.Org.ID) {
		list, _, err := p.Pools.List(v.Context(), v.Org.ID)
		if err != nil {
			return view.Page{}, err
		}
		for _, pool := range list {
			l.Pools = append(l.Pools, view.Option{Value: pool.ID, Text: pool.Name})
		}
	}
	return view.Page{
		Title: "Deployments", Section: "deployments", Bar: &view.Bar{Title: "Deployments", Actions: actions(v.Org.Name)},
		Tabs: l.tabs(), Body: body(l),
		Live: []view.Topic{{Channel: deployments.Topic, About: v.Org.ID + "/"}, {Channel: pools.Topic, About: v.Org.ID + "/"}},
	}, nil
}

func (p *pages) ofStack(v *page.Visit) (view.Page, error) {
	l, err := p.load(v, links.Path(v.Stack.OrgName, v.Stack.Project, v.Stack.Name, "deployments"), v.Stack.ID)
	if err != nil {
		return view.Page{}, err
	}
	l.Stack = &v.Stack
	l.Operate = v.Who.Can(v.Stack, identity.Operate)
	out, err := p.Heads.Page(v, stack.Runs)
	if err != nil {
		return out, err
	}
	out.Title = "Deployments of " + v.Stack.Project + "/" + v.Stack.Name
	out.Body = body(l)
	// A deployment can wait for one of another stack, or for a pool.
	out.Live = append(out.Live, view.Topic{Channel: deployments.Topic, About: v.Stack.OrgID + "/"}, view.Topic{Channel: pools.Topic, About: v.Stack.OrgID + "/"})
	return out, nil
}

func (p *pages) load(v *page.Visit, path, stackID string) (list, error) {
	l := list{Org: v.Org.Name, Path: path, URL: p.URL, Admin: v.Who.CanAdminOrg(v.Org.ID)}
	l.Query = deployments.Query{
		Stage: store.Stage(v.Query("show")), StackID: stackID, State: v.Query("status"), Operation: workflow.Operation(v.Query("operation")),
		PoolID: v.Query("pool"), Initiator: v.Query("initiator"), Mine: v.Query("mine") == "on", Text: strings.TrimSpace(v.Query("q")), After: v.Query("after"),
	}
	var err error
	if l.Queues, err = p.Deployments.Queues(v.Context(), v.Who, v.Org.ID, stackID); err != nil {
		return l, err
	}
	if l.Query.Stage == "" {
		l.Query.Stage = l.usual()
	}
	l.Stage = l.Query.Stage
	if !slices.Contains(states[l.Stage], l.Query.State) {
		l.Query.State = ""
	}
	if v.Who.User.ID == "" {
		l.Query.Mine = false
	}
	found, err := p.Deployments.Page(v.Context(), v.Who, v.Org.ID, l.Query)
	if err != nil {
		return l, err
	}
	l.Rows = Rows(v.Org.Name, found)
	q := l.Query
	l.Filtered = q.State != "" || q.Operation != "" || q.PoolID != "" || q.Initiator != "" || q.Mine || q.Text != "" || q.After != ""
	if q.After != "" {
		l.First = l.link(l.Stage, "")
	}
	if found.Next != "" {
		l.Next = l.link(l.Stage, found.Next)
	}
	return l, nil
}

// usual returns the stage that a page shows by default: the first one with deployments.
func (l list) usual() store.Stage {
	switch {
	case l.Queues.Running > 0:
		return deployments.StageActive
	case l.Queues.Queued > 0:
		return deployments.StageQueued
	default:
		return deployments.StageFinished
	}
}

// link returns the path of a page of the list with the same filters.
func (l list) link(stage store.Stage, after string) string {
	values := url.Values{"show": {string(stage)}}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	if stage == l.Stage {
		set("status", l.Query.State)
	}
	set("operation", string(l.Query.Operation))
	set("pool", l.Query.PoolID)
	set("initiator", l.Query.Initiator)
	if l.Query.Mine {
		set("mine", "on")
	}
	set("q", l.Query.Text)
	set("after", after)
	return l.Path + "?" + values.Encode()
}

func (l list) tabs() []view.Tab {
	var out []view.Tab
	for _, s := range stages {
		t := view.Tab{Text: s.text, Href: l.link(s.stage, ""), Current: s.stage == l.Stage}
		switch s.stage {
		case deployments.StageActive:
			t.Count = count(l.Queues.Running)
		case deployments.StageQueued:
			t.Count = count(l.Queues.Queued)
		default:
		}
		out = append(out, t)
	}
	return out
}

// count returns a number for a tab.
func count(n int64) string {
	if n >= deployments.CountLimit {
		return words.Number(deployments.CountLimit) + "+"
	}
	return words.Number(n)
}

func (l list) empty() (title, text string) {
	for _, s := range stages {
		if s.stage == l.Stage {
			title = s.empty
		}
	}
	if l.Query.Text != "" && l.Next != "" {
		return "No deployment found here.", fmt.Sprintf("A page searches %s deployments. The next page searches more of them.", words.Number(deployments.Searched))
	}
	if l.Filtered {
		return "No deployment found.", "The filters select none. Remove some of them."
	}
	return title, "A deployment runs pulumi on one of your agents. Start one from the page of a stack, by the CLI, or by the API."
}

// stateOptions are the values of the filter by status.
func (l list) stateOptions() []view.Option {
	return view.Options("Any status", states[l.Stage])
}

func operationOptions() []view.Option {
	return view.Options("Any operation", operations)
}

func (l list) poolOptions() []view.Option {
	return append([]view.Option{{Text: "Any pool"}}, l.Pools...)
}

// initiators are the values of the filter by initiator.
var initiators = []view.Option{
	{Text: "Started by anything"},
	{Value: deployments.InitiatorConsole, Text: "Console"},
	{Value: "cli", Text: "Another CLI"},
	{Value: "api", Text: "API"},
	{Value: view.FromCLI, Text: view.Initiator(view.FromCLI)},
	{Value: "schedule", Text: "Schedule"},
	{Value: "webhook", Text: "Webhook of a stack"},
	{Value: vcs.InitiatorPush, Text: "Git push"},
	{Value: vcs.InitiatorTag, Text: "Git tag"},
	{Value: vcs.InitiatorPull, Text: "Pull request"},
	{Value: vcs.InitiatorReview, Text: "Review stack"},
}

// curl is the command that starts a deployment of the page's stack.
func (l list) curl() string {
	stack := "/" + l.Org + "/PROJECT/STACK"
	if l.Stack != nil {
		stack = links.Path(l.Stack.OrgName, l.Stack.Project, l.Stack.Name)
	}
	return fmt.Sprintf(`curl -X POST -H "Authorization: token $PULUMI_ACCESS_TOKEN" -H "Content-Type: application/json" -d '{"operation":"update"}' %s/api/stacks%s/deployments`, l.URL, stack)
}

func (p *pages) cancel(v *page.Visit) (page.Answer, error) {
	back := page.Back(v, links.Path(v.Org.Name, "-", "deployments"))
	_, err := p.Deployments.CancelQueued(v.Context(), v.Who, v.Org.ID, v.Values()["id"])
	return page.See(back), err
}

func (p *pages) pause(paused bool) func(v *page.Visit) (page.Answer, error) {
	return func(v *page.Visit) (page.Answer, error) {
		err := p.Deployments.PauseOrg(v.Context(), v.Who, v.Org.ID, paused)
		return page.See(page.Back(v, links.Path(v.Org.Name, "-", "deployments"))), err
	}
}
