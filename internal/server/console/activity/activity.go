// Package activity contains the page of an organization's activity: updates, deployments, and the audit log.
package activity

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks"
)

// Deps are the services behind the page.
type Deps struct{ Activity *activity.Service }

type pages struct{ Deps }

// Register registers the page.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.View("/{org}/-/activity", page.Belongs, p.show)
}

// model is what the page shows. Its query is the view, which is the page's URL.
type model struct {
	activity.List
	view.Filters
	Org   string
	Query activity.Query
	Zone  *time.Location
	// UTC reports that the visitor has chosen UTC and not the zone of the browser.
	UTC bool
	Now time.Time
	// Since is the visitor's last visit before this one; zero without one, and on pages with a filter.
	Since time.Time
	// New is the number of entries that are newer than the list.
	New     int
	Problem string
	Login   string
}

// parameters are those of the page's URL.
var parameters = []string{"part", "what", "who", "q", "stack", "action", "way", "days", "from", "to", "zone", "after"}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	m := model{Org: v.Org.Name, Zone: v.Zone(), Now: time.Now(), Login: v.Who.User.Login}
	m.Filters = view.Filters{Path: links.Path(v.Org.Name, "-", "activity"), Values: v.R.URL.Query(), Parameters: parameters, Place: "after"}
	if m.UTC = m.Values.Get("zone") == "UTC"; m.UTC {
		m.Zone = time.UTC
	}
	org := v.Org.ID + "/"
	out := view.Page{
		Title: "Activity", Section: "activity",
		Live: []view.Topic{{Channel: deployments.Topic, About: org}, {Channel: stacks.Topic, About: org}, {Channel: audit.Topic, About: v.Org.ID}},
	}
	err := p.read(v, &m)
	if fault.KindOf(err) == fault.KindInvalid {
		m.Problem, err = page.Sentence(err), nil
	}
	out.Bar = &view.Bar{Title: "Activity", Label: "Activity", Tabs: view.ActivityTabs(m.Org, ""), Actions: actions(m)}
	out.Body, out.UpTo = body(m), m.Newest
	return out, err
}

func (p *pages) read(v *page.Visit, m *model) error {
	var err error
	m.Audit = v.Who.CanAdminOrg(v.Org.ID)
	if m.Query, err = query(m.Values, m.Zone, m.Now); err != nil {
		return err
	}
	m.Query.UpTo = v.Query("upto")
	if m.List, err = p.Activity.List(v.Context(), v.Who, v.Org.ID, m.Query); err != nil {
		return err
	}
	if m.Query.UpTo != "" {
		if m.New, err = p.Activity.New(v.Context(), v.Who, v.Org.ID, m.Query); err != nil {
			return err
		}
	}
	switch {
	case m.filtered():
	case m.Query.UpTo != "" || m.Query.After != "" || v.R.Header.Get("Sec-Purpose") != "": // open, a later page, or fetched in advance
		m.Since, err = p.Activity.Since(v.Context(), v.Who, v.Org.ID)
	default:
		m.Since, err = p.Activity.Open(v.Context(), v.Who, v.Org.ID)
	}
	return err
}

// periods are the numbers of days that the page shows.
var periods = []view.Option{{Value: "", Text: "Last 7 days"}, {Value: "1", Text: "Today"}, {Value: "2", Text: "Since yesterday"}, {Value: "30", Text: "Last 30 days"}, {Value: "90", Text: "Last 90 days"}, {Value: "all", Text: "Any time"}}

var periodDays = map[string]int{"": 7, "1": 1, "2": 2, "30": 30, "90": 90}

// query returns the query of a page's URL.
func query(values url.Values, zone *time.Location, now time.Time) (activity.Query, error) {
	q := activity.Query{
		Part: activity.Part(values.Get("part")), What: activity.What(values.Get("what")), Who: values.Get("who"), Text: strings.TrimSpace(values.Get("q")),
		Stack: strings.Trim(values.Get("stack"), "/ "), Action: values.Get("action"), Way: values.Get("way"), After: values.Get("after"),
	}
	from, err := day(values.Get("from"), zone)
	if err != nil {
		return q, err
	}
	to, err := day(values.Get("to"), zone)
	if err != nil {
		return q, err
	}
	if !to.IsZero() {
		to = to.AddDate(0, 0, 1)
	}
	q.Since, q.Before = from, to
	if days, ok := periodDays[values.Get("days")]; ok && from.IsZero() && to.IsZero() {
		q.Since = midnight(now, zone).AddDate(0, 0, 1-days)
	}
	return q, nil
}

func day(text string, zone *time.Location) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		return t, fault.Invalid("A date must have the form 2026-01-31.")
	}
	return t, nil
}

// midnight returns the beginning of the day of a time.
func midnight(t time.Time, zone *time.Location) time.Time {
	year, month, day := t.In(zone).Date()
	return time.Date(year, month, day, 0, 0, 0, 0, zone)
}

// filtered reports whether the page shows only a part of the entries of its period.
func (m model) filtered() bool {
	return slices.ContainsFunc([]string{"part", "what", "who", "q", "stack", "action", "way", "from", "to"}, func(name string) bool { return m.Values.Get(name) != "" })
}

var kinds = []view.Option{
	{Text: "Any kind"},
	{Value: string(activity.Updates), Text: "Updates"},
	{Value: string(activity.Destroys), Text: "Destroys"},
	{Value: string(activity.Refreshes), Text: "Refreshes"},
	{Value: string(activity.FoundDrift), Text: "Drift"},
	{Value: string(activity.ByCLI), Text: "From the CLI"},
	{Value: string(activity.ByDeployment), Text: "Deployments"},
}

// moreText says what the filters select for which the bar has no room.
func (m model) moreText() string {
	var parts []string
	for _, o := range kinds[1:] {
		if o.Value == string(m.Query.What) {
			parts = append(parts, o.Text)
		}
	}
	for _, text := range []string{m.Query.Stack, m.Query.Action, m.Query.Way} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

func (m model) periods() (string, []view.MenuItem) {
	text, list := m.Menu("days", periods)
	if from, to := m.Values.Get("from"), m.Values.Get("to"); from != "" || to != "" {
		text = strings.TrimSpace(cmp.Or(from, "…") + " to " + cmp.Or(to, "today"))
		for i := range list {
			list[i].Current = false
		}
	}
	for i, o := range periods {
		list[i].Href = m.With("days", o.Value, "from", "", "to", "")
	}
	return text, list
}

func (m model) zones() (string, []view.MenuItem) {
	return m.Menu("zone", []view.Option{{Text: "Local time"}, {Value: "UTC", Text: "UTC"}})
}

// maxPeople bounds the people of the menu.
const maxPeople = 40

// people returns who made the newest changes.
func (m model) people() (string, []view.MenuItem) {
	names := map[string]string{}
	if m.Query.Who != "" {
		names[m.Query.Who] = m.Query.Who
	}
	for _, e := range slices.Concat(m.Whole, m.Entries) {
		if login := e.Login(); login != "" && (names[login] == "" || names[login] == login) && (len(names) < maxPeople || names[login] != "") {
			names[login] = e.By()
		}
	}
	texts := []view.Option{{Text: "anyone"}}
	for login, name := range names {
		texts = append(texts, view.Option{Value: login, Text: name})
	}
	slices.SortFunc(texts[1:], func(a, b view.Option) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Text), strings.ToLower(b.Text)), strings.Compare(a.Value, b.Value))
	})
	text, list := m.Menu("who", texts)
	return "Who: " + text, list
}

// newest is the page that begins with the newest entry.
func (m model) newest() string { return m.With() }

func (m model) next() string {
	if m.Next == "" {
		return ""
	}
	return m.With("after", m.Next)
}

// first is the first page, unless this is it.
func (m model) first() string {
	if m.Query.After == "" {
		return ""
	}
	return m.With()
}
