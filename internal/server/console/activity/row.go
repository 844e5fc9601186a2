package activity

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/activity"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/auditlog"
	"workflowagent/internal/server/console/deeds"
	list "workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
	"workflowagent/internal/words"
)

// row is an entry in words.
type row struct {
	At             time.Time
	Who            string
	Mark           string // "" for an entry that needs no one
	Did, What      string
	Project, Stack string // "" for an entry that is not about a stack
	Object         string // of other entries
	Href           string // "" if the object has no page
	Changes        map[string]int64
	Icon, Origin   string
}

// title is all that the row says about a change.
func (r row) title() string { return strings.TrimSpace(r.Who + " " + r.Did + " " + r.What) }

func (m model) row(e activity.Entry) row {
	if e.Run != nil {
		return m.run(e)
	}
	return m.entry(*e.Audit, e.By())
}

var marks = map[store.RunResult]string{store.RunFailed: view.MarkFailed, store.RunDrift: view.MarkDrift, store.RunRunning: view.MarkRunning, store.RunCancelled: view.MarkCancelled}

func (m model) run(e activity.Entry) row {
	run, result := e.Run, e.Result()
	initiator := run.Initiator
	r := row{
		At: e.At, Who: deeds.Who(e.By(), initiator), Mark: marks[result], Did: deeds.Did(run.Kind, result), What: run.Message,
		Project: run.Project, Stack: run.Stack, Changes: e.Changes(),
	}
	r.Icon, r.Origin = deeds.Origin(run.Number > 0, initiator)
	switch {
	case e.Kind == store.FeedDrift:
		r.Did, r.What = "found drift:", strings.TrimPrefix(list.DriftText(r.Changes), "The ")
	case run.Status == "skipped":
		r.Mark, r.Did = view.MarkSkipped, "skipped "+run.Kind
	case result == "":
		r.Mark = view.MarkQueued
	}
	if r.What == "" {
		r.What = about(run)
	}
	if run.Deleted {
		return r
	}
	base := []string{m.Org, run.Project, run.Stack}
	if run.Number > 0 {
		r.Href = links.Path(append(base, "deployments", strconv.FormatInt(run.Number, 10))...)
		if len(r.Changes) > 0 {
			r.Href += "?view=changes"
		}
	} else {
		r.Href = links.Path(append(base, "updates", strconv.FormatInt(run.Version, 10))...)
	}
	return r
}

// shortCommit is the number of characters of a commit that a row shows.
const shortCommit = 7

// about says what a run without a message is about.
func about(run *store.FeedRun) string {
	branch := strings.TrimPrefix(run.Branch, "refs/heads/")
	switch {
	case branch != "" && run.Commit != "":
		return branch + " at " + run.Commit[:min(len(run.Commit), shortCommit)]
	case branch != "":
		return branch
	case run.Number > 0:
		return "#" + strconv.FormatInt(run.Number, 10)
	default:
		return "version " + strconv.FormatInt(run.Version, 10)
	}
}

// ways are the icons and words for the ways of changes in the audit log.
var ways = map[string]struct{ icon, text string }{
	audit.WayAPI: {"terminal", "from the CLI or API"}, audit.WayConsole: {"click", "in the console"}, audit.WayAgent: {"agents", "by an agent"},
	audit.WaySchedule: {"clock", "by a schedule"}, audit.WayWebhook: {"hook", "by a webhook"}, audit.WayForge: {"push", "by an event of the repository"},
	audit.WayCommand: {"terminal", "by a command on the server's machine"}, audit.WayServer: {"agents", "by the server"},
}

func (m model) entry(e store.AuditEntry, by string) row {
	way := ways[e.Way]
	r := row{At: e.At, Who: by, Icon: way.icon, Origin: way.text, Did: auditlog.Did(audit.Action(e.Action)), What: auditlog.Detail(e)}
	if r.Who == "" {
		r.Who = "The server"
	}
	if r.Icon == "" {
		r.Icon, r.Origin = "terminal", e.Way
	}
	if e.Address != "" {
		r.Origin += ", " + e.Address
	}
	if e.Reads > 1 {
		r.What = strings.TrimPrefix(r.What+", "+words.Number(e.Reads)+" times until "+e.LastAt.In(m.Zone).Format("15:04"), ", ")
	}
	ref := strings.SplitN(e.Subject, "/", 3)
	switch {
	case e.SubjectKind == "stack" && len(ref) == 3:
		r.Project, r.Stack = ref[1], ref[2]
		r.Href = links.Path(m.Org, r.Project, r.Stack)
		return r
	case e.SubjectKind == "stack":
		return r
	case e.SubjectKind == "environment" && len(ref) == 3:
		r.Object, r.Href = ref[1]+"/"+ref[2], links.Path(m.Org, "-", "environments", ref[1], ref[2])
		return r
	}
	if r.Object, r.Href = m.object(e); r.Object != e.Subject && e.Subject != "" {
		r.What = strings.Trim(e.Subject+" "+bracket(r.What), " ")
	}
	return r
}

func bracket(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

// object returns what an entry of the audit log is about, and its page; "" if it has none.
func (m model) object(e store.AuditEntry) (text, href string) {
	settings := func(more ...string) string {
		return links.Path(append([]string{m.Org, "-", "settings"}, more...)...)
	}
	switch e.SubjectKind {
	case "token":
		return "Tokens", settings("tokens")
	case "user", "invitation":
		return "Members", settings("members")
	case "team":
		return "Teams", settings("teams")
	case "issuer":
		return "Issuers", settings("issuers")
	case "webhook":
		return "Webhooks", settings("webhooks")
	case "integration":
		return "Integrations", settings("integrations")
	case "pool":
		if e.SubjectID == "" {
			return "Agents", links.Path(m.Org, "-", "pools")
		}
		return cmp.Or(e.Subject, "Pool"), links.Path(m.Org, "-", "pools", e.SubjectID)
	case "agent":
		return "Agents", links.Path(m.Org, "-", "pools")
	case "policy-pack":
		return "Policies", links.Path(m.Org, "-", "policies")
	case "policy-group":
		return "Policies", links.Path(m.Org, "-", "policies", "groups")
	case "policy-exception":
		return "Policies", links.Path(m.Org, "-", "policies", "exceptions")
	case "environment-source":
		return "Environments", links.Path(m.Org, "-", "environments")
	case "organization":
		return "Settings", settings()
	default:
		return e.Subject, ""
	}
}

// dayOf is a day of the list.
type dayOf struct {
	Title string
	// Count is what is known about the changes of the day, or "".
	Count   string
	Entries []activity.Entry
}

// days returns the entries by day.
func (m model) days() []dayOf {
	var out []dayOf
	var begins []time.Time
	for _, e := range m.Entries {
		begin := midnight(e.At, m.Zone)
		if len(out) == 0 || !begins[len(begins)-1].Equal(begin) {
			out, begins = append(out, dayOf{Title: m.dayTitle(begin)}), append(begins, begin)
		}
		out[len(out)-1].Entries = append(out[len(out)-1].Entries, e)
	}
	for i, begin := range begins {
		if i > 0 || m.Query.After == "" { // else the day began on another page
			out[i].Count = m.count(begin)
		}
	}
	return out
}

func (m model) dayTitle(begin time.Time) string {
	switch today := midnight(m.Now, m.Zone); {
	case begin.Equal(today):
		return "Today"
	case begin.Equal(today.AddDate(0, 0, -1)):
		return "Yesterday"
	case begin.Year() == today.Year():
		return begin.Format("Monday 2 January")
	default:
		return begin.Format("Monday 2 January 2006")
	}
}

// count says how many changes a day has, as far as they are known.
func (m model) count(begin time.Time) string {
	end, people, n := begin.AddDate(0, 0, 1), map[string]bool{}, 0
	for _, e := range m.Found {
		if e.At.Before(begin) || !e.At.Before(end) {
			continue
		}
		n++
		if by := cmp.Or(e.Login(), e.By()); by != "" {
			people[by] = true
		}
	}
	if len(m.Found) > 0 && !m.All && !m.Found[len(m.Found)-1].At.Before(begin) {
		return words.Number(n) + "+ changes"
	}
	text := words.Count(n, "change")
	switch len(people) {
	case 0:
		return text
	case 1:
		return text + " by 1 person"
	default:
		return text + " by " + words.Number(len(people)) + " people"
	}
}

// chip is a filter with the number of its entries.
type chip struct {
	Text, Count, Href string
	Current           bool
}

func (m model) chips() []chip {
	counts := map[activity.Part]int{}
	for _, e := range m.Whole {
		for part, ok := range map[activity.Part]bool{activity.Deletes: e.Deletes(), activity.Production: e.Run != nil && e.Run.Production, activity.Access: e.Audit != nil} {
			if ok {
				counts[part]++
			}
		}
	}
	var out []chip
	add := func(part activity.Part, text string, always bool) {
		c := chip{Text: text, Href: m.With("part", string(part), "action", "", "way", ""), Current: m.Query.Part == part}
		if n := counts[part]; n > 0 {
			c.Count = words.Number(n)
			if !m.WholeAll {
				c.Count += "+"
			}
		}
		if always || c.Current || c.Count != "" {
			out = append(out, c)
		}
	}
	add(activity.Everything, "Everything", true)
	add(activity.Deletes, "Deletes and replaces", true)
	add(activity.Production, "Production", false)
	if m.Audit {
		add(activity.Access, "Settings and access", true)
	}
	add(activity.Mine, "Mine", true)
	return out
}

// sinceText names the last visit, if it separates entries on the page.
func (m model) sinceText() string {
	at := m.Since.In(m.Zone)
	switch today := midnight(m.Now, m.Zone); {
	case !m.Since.Before(today):
		return at.Format("15:04")
	case !m.Since.Before(today.AddDate(0, 0, -1)):
		return "yesterday " + at.Format("15:04")
	default:
		return at.Format("2 January 15:04")
	}
}

// marker returns the entry before which the visitor's last visit was; "" if it has no place on the page.
func (m model) marker() string {
	if m.Since.IsZero() || len(m.Entries) == 0 || !m.Entries[0].At.After(m.Since) {
		return ""
	}
	for _, e := range m.Entries {
		if !e.At.After(m.Since) {
			return e.ID
		}
	}
	return ""
}

// newText says how many entries wait.
func (m model) newText() string {
	if m.New >= activity.MaxNew {
		return words.Number(activity.MaxNew) + "+ new"
	}
	return words.Number(m.New) + " new"
}
