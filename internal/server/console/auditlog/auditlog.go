// Package auditlog contains the page of the server's audit log, and the downloads of audit logs. The page of an
// organization's activity contains its log.
package auditlog

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// Deps are the services behind the pages.
type Deps struct{ Audit *audit.Service }

type pages struct{ Deps }

// Register registers the pages.
func Register(site *page.Site, d Deps) {
	p := &pages{d}
	site.Raw("/{org}/-/audit", page.Admin, moved)
	site.Raw("/{org}/-/audit/export", page.Admin, p.export)
	site.View("/-/server/audit", page.SiteAdmin, p.show)
	site.Raw("/-/server/audit/export", page.SiteAdmin, p.export)
}

const (
	pageSize = 50
	// counted bounds the number of new entries that the page states.
	counted = 100
)

// fields are the parameters of the filters.
var fields = []string{"actor", "action", "subject", "way", "from", "to"}

type list struct {
	Path  string
	Query url.Values
	Rows  []store.AuditEntry
	Next  string
	// New is the number of entries that are newer than the list.
	New      int64
	Problem  string
	Filtered bool
}

// filter returns the entries that the parameters of a page or download select.
func filter(v *page.Visit) (f store.AuditFilter, err error) {
	f = store.AuditFilter{
		OrgID: v.Org.ID, Actor: v.Query("actor"), Action: v.Query("action"), Subject: v.Query("subject"), Way: v.Query("way"), Limit: pageSize,
	}
	if f.From, err = day(v.Query("from")); err != nil {
		return f, err
	}
	if f.Before, err = day(v.Query("to")); err != nil {
		return f, err
	}
	if !f.Before.IsZero() {
		f.Before = f.Before.AddDate(0, 0, 1)
	}
	if f.UpTo, err = audit.ParsePosition(v.Query("upto")); err != nil {
		return f, err
	}
	f.OlderThan, err = audit.ParsePosition(v.Query("after"))
	return f, err
}

func day(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		return t, fault.Invalid("A date must have the form 2026-01-31.")
	}
	return t, nil
}

// moved redirects the former page of an organization's log to the same entries of its activity.
func moved(_ http.ResponseWriter, v *page.Visit) error {
	to := url.Values{"part": {string(activity.Access)}}
	for name, now := range map[string]string{"actor": "who", "action": "action", "subject": "q", "way": "way", "from": "from", "to": "to"} {
		if value := v.Query(name); value != "" {
			to.Set(now, value)
		}
	}
	return page.GoTo(links.Path(v.Org.Name, "-", "activity") + "?" + to.Encode())
}

// path is that of the server's log.
const path = "/-/server/audit"

// show shows the log up to the entry that was the newest when the user opened the page, so that new
// entries never move it.
func (p *pages) show(v *page.Visit) (view.Page, error) {
	l := list{Path: path, Query: url.Values{}}
	for _, name := range fields {
		if value := v.Query(name); value != "" {
			l.Query.Set(name, value)
			l.Filtered = true
		}
	}
	out := func(l list) view.Page {
		p := view.ServerPage("Audit log", "audit", "", content(l))
		p.Bar.Actions = actions(l)
		p.Live = []view.Topic{{Channel: audit.Topic, About: audit.ServerPayload}}
		return p
	}
	f, err := filter(v)
	if err != nil {
		if fault.KindOf(err) != fault.KindInvalid {
			return view.Page{}, err
		}
		l.Problem = err.Error()
		return out(l), nil
	}
	rows, more, err := p.Audit.List(v.Context(), v.Who, f)
	if err != nil {
		return view.Page{}, err
	}
	if len(rows) > 0 && f.UpTo.ID == "" {
		q := l.query("upto", audit.Position(rows[0]))
		return view.Page{}, page.GoTo(l.Path + "?" + q)
	}
	l.Rows = rows
	if more {
		q := l.with("upto", v.Query("upto"))
		q.Set("after", audit.Position(rows[len(rows)-1]))
		l.Next = l.Path + "?" + q.Encode()
	}
	fresh := f
	fresh.NewerThan, fresh.UpTo, fresh.OlderThan, fresh.Limit = f.UpTo, store.AuditEntry{}, store.AuditEntry{}, counted
	if f.UpTo.ID != "" || len(rows) == 0 {
		if l.New, err = p.Audit.Count(v.Context(), v.Who, fresh); err != nil {
			return view.Page{}, err
		}
	}
	return out(l), nil
}

// export sends all selected entries as a file.
func (p *pages) export(w http.ResponseWriter, v *page.Visit) error {
	f, err := filter(v)
	if err != nil {
		return err
	}
	write, kind, name := p.Audit.WriteCSV, "text/csv; charset=utf-8", "audit.csv"
	if v.Query("format") == "json" {
		write, kind, name = p.Audit.WriteJSON, "application/x-ndjson", "audit.jsonl"
	}
	// The reader's rights are checked before the response begins.
	first := f
	first.Limit = 1
	if _, _, err := p.Audit.List(v.Context(), v.Who, first); err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	return write(v.Context(), w, v.Who, f)
}

func (l list) with(name, value string) url.Values {
	q := url.Values{}
	for k, v := range l.Query {
		q[k] = slices.Clone(v)
	}
	q.Set(name, value)
	return q
}

func (l list) query(name, value string) string { return l.with(name, value).Encode() }

func (l list) exportPath(format string) string {
	return l.Path + "/export?" + l.query("format", format)
}

// newest is the path of the list that begins with the newest entry.
func (l list) newest() string {
	if len(l.Query) == 0 {
		return l.Path
	}
	return l.Path + "?" + l.Query.Encode()
}

func (l list) newText() string {
	if l.New >= counted {
		return fmt.Sprintf("%d or more new entries", counted)
	}
	if l.New == 1 {
		return "1 new entry"
	}
	return fmt.Sprintf("%d new entries", l.New)
}

// ActionOptions are the values of a filter for actions.
func ActionOptions() []view.Option {
	list := []view.Option{{Text: "Any action"}}
	for _, action := range audit.Actions() {
		list = append(list, view.Option{Value: string(action), Text: Did(action)})
	}
	return list
}

// ways are the words for the ways of changes.
var ways = map[string]string{
	audit.WayAPI: "CLI or API", audit.WayConsole: "console", audit.WayAgent: "agent", audit.WaySchedule: "schedule", audit.WayWebhook: "webhook",
	audit.WayForge: "event of a repository", audit.WayCommand: "command on the server's machine", audit.WayServer: "the server itself",
}

// WayOptions are the values of a filter for the ways of changes.
func WayOptions() []view.Option {
	list := []view.Option{{Text: "Any way"}}
	for _, way := range audit.Ways() {
		list = append(list, view.Option{Value: way, Text: cmp.Or(ways[way], way)})
	}
	return list
}
