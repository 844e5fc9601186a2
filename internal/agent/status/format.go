package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// clean returns untrusted text as one line without terminal control characters.
func clean(text string) string {
	return string(termtext.Plain(nil, []byte(oneLine.Replace(text))))
}

var oneLine = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

func size(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return words.Bytes(n)
}

type line struct{ name, value string }

func (r Report) facts() []line {
	a := r.Agent
	lines := []line{
		{"Agent", fmt.Sprintf("%s, instance %s on %s, process %d", a.Version, a.Instance, a.Hostname, a.PID)},
		{"Id", fmt.Sprintf("%s, session %s", a.ID, a.SessionID)},
		{"Up", fmt.Sprintf("%s, last activity %s ago", words.Short(r.Time.Sub(r.StartedAt)), words.Short(r.Time.Sub(r.LastActivity)))},
		{"Server", r.Server.describe(r.Time)},
		{"Token", r.Token.describe(r.Time)},
		{"Engine", r.Engine.describe(r.Time)},
		{"Slots", fmt.Sprintf("%d of %d busy", r.Slots.Busy, r.Slots.Total)},
		{"Storage", fmt.Sprintf("%s, %s free, %s of log to deliver", r.Storage.Directory, size(r.Storage.FreeBytes), size(r.Storage.PendingLogBytes))},
	}
	if r.Workspaces != nil {
		lines = append(lines, line{"Workspaces", fmt.Sprintf("%d, %s", r.Workspaces.Count, size(r.Workspaces.Bytes))})
	}
	if r.Update.Mode != "" {
		lines = append(lines, line{"Updates", r.Update.describe(r.Time)})
	}
	for _, s := range r.Config {
		lines = append(lines, line{"Setting", s.Key + " = " + s.Value + " (" + s.Source + ")"})
	}
	for _, reason := range r.Reasons {
		lines = append(lines, line{"Not ready", reason})
	}
	for _, problem := range r.Problems {
		lines = append(lines, line{"Problem", problem})
	}
	return lines
}

func (s Server) describe(now time.Time) string {
	text := s.URL + ", not connected yet"
	switch {
	case s.Connected:
		text = s.URL + ", connected" + since(s.Since, now)
	case s.BreakerOpen:
		text = s.URL + ", not reachable" + since(s.Since, now) + ", probing"
	case s.Error != "":
		text = s.URL + ", not connected" + since(s.Since, now)
	}
	if s.LastPoll != nil {
		text += ", last answer " + words.Short(now.Sub(*s.LastPoll)) + " ago"
	}
	return text
}

func (t Token) describe(now time.Time) string {
	switch {
	case t.Kind != TokenOIDC:
		return t.Kind
	case t.Error != "":
		return "OIDC, none: " + t.Error
	case t.ExpiresAt == nil:
		return "OIDC, not exchanged yet"
	case t.ExpiresAt.Before(now):
		return "OIDC, expired " + words.Short(now.Sub(*t.ExpiresAt)) + " ago"
	}
	return "OIDC, expires in " + words.Short(t.ExpiresAt.Sub(now))
}

func (u Update) describe(now time.Time) string {
	text := u.Mode
	if u.CheckedAt != nil {
		text += ", checked " + words.Short(now.Sub(*u.CheckedAt)) + " ago"
	}
	if u.Available != "" {
		text += ", " + u.Available + " is available"
	}
	parts := []string{text, u.State, u.Error}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

func (e Engine) describe(now time.Time) string {
	switch {
	case e.Up:
		return e.Target + ", up" + since(e.Since, now)
	case e.Since == nil:
		return e.Target + ", not checked yet"
	}
	return e.Target + ", down" + since(e.Since, now)
}

func since(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + words.Short(now.Sub(*t))
}

type table struct {
	heads []string
	rows  [][]string
}

func (r Report) jobTable() table {
	t := table{heads: []string{"Deployment", "Stack", "Operation", "Phase", "For", "Age", "Log to deliver"}}
	for _, j := range r.Jobs {
		phase := string(j.Phase)
		if j.Reattached && j.Phase != Reattaching {
			phase += " (reattached)"
		}
		t.rows = append(t.rows, []string{
			orDash(j.DeploymentID), orDash(j.Stack), orDash(j.Operation), phase,
			words.Short(r.Time.Sub(j.PhaseSince)), words.Short(r.Time.Sub(j.ClaimedAt)), size(j.Log.Pending),
		})
	}
	return t
}

func (r Report) endedTable() table {
	t := table{heads: []string{"Deployment", "Stack", "Operation", "Status", "Reason", "Took", "Ended", "Message"}}
	for _, o := range r.Ended {
		t.rows = append(t.rows, []string{
			orDash(o.DeploymentID), orDash(o.Stack), orDash(o.Operation), o.Status, orDash(o.Reason),
			words.Short(o.EndedAt.Sub(o.ClaimedAt)), words.Short(r.Time.Sub(o.EndedAt)) + " ago", orDash(o.Message),
		})
	}
	return t
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// DescribeJob returns a short description of a job that is safe to print.
func DescribeJob(j Job, now time.Time) string {
	what := cmp.Or(j.Stack, "deployment "+j.DeploymentID)
	if j.Operation != "" {
		what = j.Operation + " of " + what
	}
	return clean(fmt.Sprintf("%s (%s for %s)", what, j.Phase, words.Short(now.Sub(j.PhaseSince))))
}
