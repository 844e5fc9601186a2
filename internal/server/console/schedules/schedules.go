// Package schedules contains the calendar of an organization's schedules, a tab of its activity.
package schedules

import (
	"net/http"
	"net/url"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

type pages struct{ triggers *triggers.Service }

// Register registers the page.
func Register(site *page.Site, t *triggers.Service) {
	site.View("/{org}/-/activity/calendar", page.Belongs, (&pages{t}).show)
	site.Raw("/{org}/-/schedules", page.Belongs, moved)
}

// moved redirects the former list of schedules to the calendar.
func moved(_ http.ResponseWriter, v *page.Visit) error {
	to := links.Path(v.Org.Name, "-", "activity", "calendar")
	if q := v.Query("q"); q != "" {
		to += "?q=" + url.QueryEscape(q)
	}
	return page.GoTo(to)
}

// model is the page.
type model struct {
	triggers.Overview
	Org, Path string
	Kind, Q   string
	Zone      *time.Location
	Now       time.Time
	week
	Next []upcoming
}

var kinds = []view.Option{
	{Text: "Any schedule"},
	{Value: string(store.CustomSchedule), Text: "Operations"},
	{Value: string(store.DriftSchedule), Text: "Drift detection"},
	{Value: string(store.TTLSchedule), Text: "Destroy once"},
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	m := model{Org: v.Org.Name, Path: links.Path(v.Org.Name, "-", "activity", "calendar"), Kind: v.Query("kind"), Q: v.Query("q"), Zone: v.Zone(), Now: time.Now()}
	f := store.OrgScheduleFilter{OrgID: v.Org.ID, Kind: store.ScheduleKind(m.Kind), Contains: m.Q, Active: true, Limit: inCalendar}
	var err error
	if m.Overview, err = p.triggers.OfOrg(v.Context(), v.Who, f); err != nil {
		return view.Page{}, err
	}
	var times triggers.Calendar
	m.week = weekOf(m.Overview, &times, m.Now, m.Zone)
	m.Next = next(m.Overview, &times)
	return view.Page{
		Title: "Calendar", Section: "activity", Bar: &view.Bar{Title: "Activity", Label: "Activity", Tabs: view.ActivityTabs(m.Org, "calendar")},
		Body: body(m), ChangesAt: m.Now.Truncate(time.Minute).Add(time.Minute),
		Live: []view.Topic{{Channel: stacks.Topic, About: v.Org.ID + "/"}},
	}, nil
}

// with returns the URL of the page with another kind.
func (m model) with(kind string) string {
	q := url.Values{}
	for name, value := range map[string]string{"kind": kind, "q": m.Q} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return m.Path
	}
	return m.Path + "?" + q.Encode()
}

// why says why a schedule will not start deployments, or "".
func why(o triggers.Overview, c store.Schedule) string {
	switch {
	case o.PausedStacks[c.Project+"/"+c.Stack]:
		return "the stack is paused"
	case o.OrgPaused:
		return "all deployments are paused"
	default:
		return ""
	}
}

func (m model) filtered() bool { return m.Kind != "" || m.Q != "" }

// settings returns the path of the schedules of a schedule's stack.
func (m model) settings(c store.Schedule) string {
	return links.Path(m.Org, c.Project, c.Stack, "settings", "schedules")
}
