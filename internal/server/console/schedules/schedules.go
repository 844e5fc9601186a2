// Package schedules contains the page with the schedules of all stacks of an organization, as a list
// and as a calendar.
package schedules

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
)

// shown is the number of schedules on a page of the list.
const shown = 50

type pages struct{ triggers *triggers.Service }

// Register registers the page.
func Register(site *page.Site, t *triggers.Service) {
	site.View("/{org}/-/schedules", page.Belongs, (&pages{t}).show)
}

// model is the page. Either the list or the calendar is set.
type model struct {
	triggers.Overview
	Org, Path   string
	Calendar    bool
	Kind, Q     string
	First, Next string // paths of other pages
	Days        []day
	Now         time.Time
	Times       *triggers.Calendar
}

var kinds = []view.Option{
	{Text: "any"},
	{Value: string(store.CustomSchedule), Text: "operations"},
	{Value: string(store.DriftSchedule), Text: "drift detection"},
	{Value: string(store.TTLSchedule), Text: "destroy once"},
}

func (p *pages) show(v *page.Visit) (view.Page, error) {
	m := model{Org: v.Org.Name, Path: links.Path(v.Org.Name, "-", "schedules"), Kind: v.Query("kind"), Q: v.Query("q"), Calendar: v.Query("view") == "calendar", Now: time.Now().UTC(), Times: &triggers.Calendar{}}
	f := store.OrgScheduleFilter{OrgID: v.Org.ID, Kind: store.ScheduleKind(m.Kind), Contains: m.Q, Limit: shown}
	if m.Calendar {
		f.Active, f.Limit = true, inCalendar
	}
	var err error
	if f.After, err = parsePosition(v.Query("after")); err != nil {
		return view.Page{}, err
	}
	if m.Overview, err = p.triggers.OfOrg(v.Context(), v.Who, f); err != nil {
		return view.Page{}, err
	}
	if m.Calendar {
		m.Days = week(m.Overview, m.Now)
	}
	if f.After.ID != "" {
		m.First = m.link(m.Calendar, "")
	}
	if m.More && !m.Calendar {
		m.Next = m.link(false, position(m.List[len(m.List)-1]))
	}
	return view.Page{
		Title: "Schedules · " + v.Org.Name, Section: "schedules", Bar: &view.Bar{Title: "Schedules"},
		Tabs: []view.Tab{
			{Text: "List", Href: m.link(false, ""), Current: !m.Calendar},
			{Text: "Calendar", Href: m.link(true, ""), Current: m.Calendar},
		},
		Body: body(m),
	}, nil
}

// link returns the path of a page with the same filters.
func (m model) link(calendar bool, after string) string {
	q := url.Values{}
	for name, value := range map[string]string{"kind": m.Kind, "q": m.Q, "after": after} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if calendar {
		q.Set("view", "calendar")
	}
	if len(q) == 0 {
		return m.Path
	}
	return m.Path + "?" + q.Encode()
}

// position returns the place of a schedule in the list as text.
func position(c store.Schedule) string {
	paused, next := "0", int64(0)
	if c.Paused {
		paused = "1"
	}
	if !c.NextAt.IsZero() {
		next = c.NextAt.UnixMicro()
	}
	return paused + "-" + strconv.FormatInt(next, 10) + "-" + c.ID
}

func parsePosition(text string) (c store.Schedule, err error) {
	if text == "" {
		return c, nil
	}
	paused, rest, _ := strings.Cut(text, "-")
	next, id, _ := strings.Cut(rest, "-")
	micros, err := strconv.ParseInt(next, 10, 64)
	if err != nil || id == "" || paused != "0" && paused != "1" {
		return c, fault.Invalid("The position in the list is not valid.")
	}
	c.ID, c.Paused = id, paused == "1"
	if micros != 0 {
		c.NextAt = time.UnixMicro(micros)
	}
	return c, nil
}

// state returns why a schedule does not start deployments, or "".
func (m model) state(c store.Schedule) string {
	switch {
	case c.Paused:
		return "paused"
	case m.PausedStacks[c.Project+"/"+c.Stack]:
		return "the stack is paused"
	case m.OrgPaused:
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
