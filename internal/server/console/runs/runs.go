package runs

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/waiting"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// runs is the page of a stack's runs.
type runs struct {
	St      store.Stack
	Query   deployments.RunQuery
	Lines   []line
	Next    string // address of the next page, or ""
	Paused  store.StackQueue
	Operate bool // the viewer may pause the stack
	filters
}

// compareForm is the id of the form that compares versions of the stack.
const compareForm = "compare"

// runParameters are those of the page's URL.
var runParameters = []string{"kind", "status", "who", "mine", "after"}

// kinds are the values of the parameter kind.
var kinds = []view.Option{
	{Text: "any"},
	{Value: "update", Text: "update"},
	{Value: "preview", Text: "preview"},
	{Value: "refresh", Text: "refresh"},
	{Value: "destroy", Text: "destroy"},
	{Value: "detect-drift", Text: "detect drift"},
	{Value: "remediate-drift", Text: "put back drift"},
	{Value: "import", Text: "import"},
	{Value: "rename", Text: "rename"},
}

func (p *pages) runs(v *page.Visit) (view.Page, error) {
	st, values := v.Stack, v.R.URL.Query()
	m := runs{St: st, Operate: v.Who.Can(st, identity.Operate), filters: newFilters(page.StackPath(st, "runs"), values, runParameters)}
	m.Query = deployments.RunQuery{
		Kind: values.Get("kind"), State: values.Get("status"), Who: strings.TrimSpace(values.Get("who")), Mine: values.Get("mine") == "on" && v.Who.User.ID != "", After: values.Get("after"),
	}
	if !slices.ContainsFunc(states, func(s state) bool { return s.value == m.Query.State }) {
		m.Query.State = ""
	}
	out, err := p.Heads.Page(v, stack.Runs)
	if err != nil {
		return out, err
	}
	found, err := p.Deployments.Runs(v.Context(), v.Who, st, m.Query)
	if err != nil {
		return out, err
	}
	queues, err := p.Deployments.Queues(v.Context(), v.Who, st.OrgID, st.ID)
	if err != nil {
		return out, err
	}
	m.Paused = queues.Stack
	if found.Next != "" {
		m.Next = m.With("after", found.Next)
	}
	now := time.Now()
	for _, r := range found.Items {
		m.Lines = append(m.Lines, runLine(st, r, now))
	}
	out.Title, out.Body = "Runs of "+st.Project+"/"+st.Name, runsBody(m)
	// A deployment can wait for one of another stack, or for a pool.
	out.Live = append(out.Live, view.Topic{Channel: deployments.Topic, About: st.OrgID + "/"}, view.Topic{Channel: pools.Topic, About: st.OrgID + "/"})
	return out, nil
}

// runLine returns the line of a run.
func runLine(st store.Stack, r deployments.StackRun, now time.Time) line {
	var l line
	version := int64(0)
	if d := r.Deployment; d != nil {
		l, version = lineOf(Row{Listed: *d, Org: st.OrgName}, now), d.Written
	} else {
		l = updateLine(st, *r.Update, r.By)
		if !r.Update.Preview {
			version = r.Update.Version
		}
	}
	if version > 0 {
		l.Pick, l.Value = compareForm, strconv.FormatInt(version, 10)
	}
	return l
}

// updateLine returns the line of an update that no deployment ran.
func updateLine(st store.Stack, u store.Update, by string) line {
	l := line{
		ID: "u-" + u.ID, Mark: view.MarkOf(u.Status), State: view.StatusWord(u.Status), Kind: u.Kind, Says: u.Message, Icon: "terminal", Origin: "run by the CLI",
		Who: cmp.Or(by, "a token"), Where: "CLI", Changes: estate.Counts(u.ResourceChanges), At: u.FinishedAt,
	}
	if u.Preview {
		l.Kind, l.Number, l.Path = "preview", "preview", links.Path(st.OrgName, st.Project, st.Name, "previews", u.ID)
	} else {
		l.Number = "v" + strconv.FormatInt(u.Version, 10)
		l.Path = links.Path(st.OrgName, st.Project, st.Name, "updates", strconv.FormatInt(u.Version, 10))
	}
	l.Title = fmt.Sprintf("%s %d", l.Kind, u.Version)
	if u.Status == waiting.StateFailed && u.Reason != "" {
		l.Says, l.Attention = u.Reason, true
	}
	if u.FinishedAt.IsZero() {
		l.Began, l.At, l.Running = u.StartedAt, u.StartedAt, true
	} else {
		l.Took = words.Elapsed(u.FinishedAt.Sub(u.StartedAt))
	}
	return l
}

func (m *runs) chips() []chip {
	at := m.Query.State
	list := []chip{{Text: "All", Href: m.With("status", "", "mine", ""), Current: at == "" && !m.Query.Mine}}
	for _, s := range states {
		if s.mark != "" {
			list = append(list, chip{Text: s.text, Mark: s.mark, Href: m.With("status", s.value), Current: at == s.value})
		}
	}
	return append(list, chip{Text: "Mine", Href: m.With("mine", "on"), Current: m.Query.Mine})
}

func (m *runs) kindMenu() (string, []view.MenuItem) {
	text, list := m.Menu("kind", kinds)
	return "Kind: " + text, list
}

func (m *runs) resultMenu() (string, []view.MenuItem) {
	options := statusOptions()
	options[0].Text = "any"
	text, list := m.Menu("status", options)
	return "Result: " + text, list
}

func (m *runs) whoText() string {
	if m.Query.Who != "" {
		return m.Query.Who
	}
	return "Who: any"
}

// toRuns sends visitors of former pages about a stack to its runs.
func toRuns(_ http.ResponseWriter, v *page.Visit) error {
	f := newFilters(page.StackPath(v.Stack, "runs"), nil, nil)
	values := v.R.URL.Query()
	status, kind := values.Get("status"), values.Get("operation")
	switch {
	case values.Get("previews") != "":
		kind = "preview"
	case values.Get("show") == "queued":
		status = waiting.StateQueued
	case values.Get("show") == "active":
		status = deployments.StateStarted
	}
	return page.GoTo(f.With("kind", kind, "status", status))
}

// compare sends visitors to the comparison of the two versions that they have selected.
func compare(_ http.ResponseWriter, v *page.Visit) error {
	var versions []int64
	for _, text := range v.R.URL.Query()["id"] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return fault.Invalid("%q is not a version of the stack", text)
		}
		versions = append(versions, n)
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) != 2 {
		return fault.Invalid("Select two runs that changed the stack, to compare its versions.")
	}
	return page.GoTo(fmt.Sprintf("%s?from=%d&to=%d", page.StackPath(v.Stack, "changes"), versions[0], versions[1]))
}
