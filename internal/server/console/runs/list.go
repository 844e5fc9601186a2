package runs

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// list is the page of an organization's deployments. Its query is its URL.
type list struct {
	deployments.Board
	Org, URL string
	Now      time.Time
	Zone     *time.Location // of the visitor
	Query    deployments.Query
	Groups   []group
	Pools    []view.Option
	Admin    bool // the viewer may pause all queues
	filters
}

// group is a part of the list.
type group struct {
	Title, Count, Note string
	Lines              []line
	// Form is the form to which the checkboxes of the lines belong, or "".
	Form string
	// More is the address of a list with all of the group, or "".
	More string
}

// cancelForm is the id of the form that cancels queued deployments.
const cancelForm = "cancel"

// ageOf returns the title of the group of a deployment that was requested at a time: the day in the visitor's zone, or how
// long ago.
func ageOf(at, now time.Time, zone *time.Location) string {
	begin := func(t time.Time) time.Time {
		y, m, d := t.In(zone).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, zone)
	}
	today := begin(now)
	switch {
	case !at.Before(today):
		return "Today"
	case !at.Before(begin(today.Add(-time.Hour))):
		return "Yesterday"
	case now.Sub(at) <= 7*24*time.Hour:
		return "Last 7 days"
	case now.Sub(at) <= 30*24*time.Hour:
		return "Last 30 days"
	default:
		return "Older"
	}
}

func (p *pages) ofOrg(v *page.Visit) (view.Page, error) {
	path := links.Path(v.Org.Name, "-", "deployments")
	values := v.R.URL.Query()
	if values.Has("show") {
		return view.Page{}, page.GoTo(path + formerQuery(values))
	}
	l := list{Org: v.Org.Name, URL: p.URL, Now: time.Now(), Zone: v.Zone(), Admin: v.Who.CanAdminOrg(v.Org.ID), filters: newFilters(path, values, listParameters)}
	l.Query = query(values, l.Now)
	if v.Who.User.ID == "" {
		l.Query.Mine = false
	}
	var err error
	if l.Board, err = p.Deployments.Board(v.Context(), v.Who, v.Org.ID, l.Query); err != nil {
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
	l.group()
	return view.Page{
		Title: "Deployments", Section: "deployments",
		Bar:  &view.Bar{Title: "Deployments", Count: l.counts(), Note: l.limit(), Actions: listActions(l)},
		Body: listBody(l),
		Live: []view.Topic{{Channel: deployments.Topic, About: v.Org.ID + "/"}, {Channel: pools.Topic, About: v.Org.ID + "/"}},
	}, nil
}

// listParameters are those of the page's URL.
var listParameters = []string{"q", "status", "stack", "operation", "pool", "who", "initiator", "mine", "batch", "since", "after"}

// period is how long ago deployments were requested at most.
type period struct {
	value, text string
	length      time.Duration
}

// periods are the values of the parameter since. The first is the default.
var periods = []period{
	{"7d", "Last 7 days", 7 * 24 * time.Hour}, {"24h", "Last 24 hours", 24 * time.Hour}, {"30d", "Last 30 days", 30 * 24 * time.Hour}, {"all", "Any time", 0},
}

// query returns the query of a page's URL.
func query(values url.Values, now time.Time) deployments.Query {
	q := deployments.Query{
		State: values.Get("status"), Operation: workflow.Operation(values.Get("operation")), PoolID: values.Get("pool"), Initiator: values.Get("initiator"),
		Who: strings.TrimSpace(values.Get("who")), Mine: values.Get("mine") == "on", Text: strings.TrimSpace(values.Get("q")), Batch: values.Get("batch"), After: values.Get("after"),
	}
	q.Project, q.Stack, _ = strings.Cut(strings.TrimSpace(values.Get("stack")), "/")
	if !slices.ContainsFunc(states, func(s state) bool { return s.value == q.State }) {
		q.State = ""
	}
	if length := periodOf(values.Get("since")).length; length > 0 && q.Batch == "" {
		q.Since = now.Add(-length)
	}
	return q
}

// periodOf returns the period with a value, or else the default.
func periodOf(value string) period {
	for _, p := range periods {
		if p.value == value {
			return p
		}
	}
	return periods[0]
}

// formerQuery returns the query for that of a former page, which showed one stage.
func formerQuery(values url.Values) string {
	switch values.Get("show") {
	case "queued":
		values.Set("status", waiting.StateQueued)
	case "active":
		values.Set("status", deployments.StateStarted)
	default:
		values.Set("since", "all")
	}
	values.Del("show")
	values.Del("after")
	return "?" + values.Encode()
}

func (l *list) counts() string {
	return fmt.Sprintf("%s running, %s queued", words.UpTo(l.Queues.Running, deployments.CountLimit), words.UpTo(l.Queues.Queued, deployments.CountLimit))
}

// limit says that the organization cannot run more deployments at once; "" if it can.
func (l *list) limit() string {
	if l.Active < l.Cap {
		return ""
	}
	return fmt.Sprintf("the limit of %s at once is reached", words.Number(l.Cap))
}

// group divides the deployments into groups.
func (l *list) group() {
	more := func(shown int, all int64, state string) string {
		if l.Query.State != "" || int64(shown) >= all {
			return ""
		}
		return l.With("status", state)
	}
	add := func(g group, found deployments.Listing) {
		for _, r := range Rows(l.Org, found, l.Usual) {
			g.Lines = append(g.Lines, l.line(r, g.Form))
		}
		if len(g.Lines) > 0 {
			l.Groups = append(l.Groups, g)
		}
	}
	running, queued := l.Queues.Running, l.Queues.Queued
	add(group{Title: "Running", Count: words.UpTo(running, deployments.CountLimit), More: more(len(l.Running.Items), running, deployments.StateStarted)}, l.Running)
	add(group{Title: "Queued", Count: words.UpTo(queued, deployments.CountLimit), Note: "in the order in which they start", Form: cancelForm, More: more(len(l.Waiting.Items), queued, waiting.StateQueued)}, l.Waiting)
	finished := l.Finished.Items
	for len(finished) > 0 {
		title, n := ageOf(finished[0].Job.QueuedAt, l.Now, l.Zone), 1
		for n < len(finished) && ageOf(finished[n].Job.QueuedAt, l.Now, l.Zone) == title {
			n++
		}
		shown := words.Number(n)
		if n == len(finished) && l.Finished.Next != "" {
			shown += "+"
		}
		add(group{Title: title, Count: shown}, deployments.Listing{Items: finished[:n]})
		finished = finished[n:]
	}
}

func (l *list) line(r Row, form string) line {
	out := lineOf(r, l.Now)
	out.Project, out.Stack = r.Project, r.Stack
	if out.Pick = form; form != "" {
		out.Value = r.ID
	}
	out.OfStack, out.RunsOfStack = l.With("stack", r.Project+"/"+r.Stack), links.Path(r.Org, r.Project, r.Stack, "runs")
	return out
}

// pager returns the addresses of the first page, of the next one and of a list that is longer; "" for those that do not exist.
func (l *list) pager() (first, next, longer string) {
	if l.Query.After != "" {
		first = l.With()
	}
	switch after := cmp.Or(l.Finished.Next, l.Running.Next, l.Waiting.Next); {
	case l.Query.State == "" && l.Finished.Next != "":
		next = l.With("after", l.Finished.Next)
	case l.Query.State != "" && after != "":
		next = l.With("after", after)
	case l.Older:
		longer = l.With("since", "all")
	}
	return first, next, longer
}

// empty says why the list is empty.
func (l *list) empty() (title, text string) {
	_, next, _ := l.pager()
	switch {
	case l.Query.Text != "" && next != "":
		return "No deployment found here", fmt.Sprintf("A page searches %s deployments. The next page searches more of them.", words.Number(deployments.Searched))
	case l.filtered():
		return "No deployment found", "No deployment that you may see matches the filters."
	case l.Older:
		return "No deployment lately", "All deployments that you may see are older."
	default:
		return "No deployment yet", "A deployment runs pulumi on one of your agents. Start one from the page of a stack, by the CLI, or by the API."
	}
}

// curl is the command that starts a deployment.
func (l *list) curl() string {
	return fmt.Sprintf(`curl -X POST -H "Authorization: token $PULUMI_ACCESS_TOKEN" -H "Content-Type: application/json" -d '{"operation":"update"}' %s/api/stacks/%s/PROJECT/STACK/deployments`, l.URL, l.Org)
}

func pausedText(what, by string) string {
	if by == "" {
		return what + " are paused"
	}
	return what + " are paused by " + by
}
