package org

import (
	"context"
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/store"
)

type usageRoutes struct{ usage *usage.Service }

func (u *usageRoutes) register(rt *web.Router) {
	const org = "/api/orgs/{org}"
	rt.Org(http.MethodGet, org+"/resources/summary", web.NeedMember, summary(u.usage.Resources, func(p usage.Point) (int64, int64) {
		return p.Average(), p.Hours()
	}))
	// Of deployments, the members are the number of those that started, and the minutes for which they ran.
	rt.Org(http.MethodGet, org+"/deployments/summary", web.NeedMember, summary(u.usage.Deployments, func(p usage.Point) (int64, int64) {
		return p.Count, p.Minutes()
	}))
	rt.Org(http.MethodGet, org+"/deployments/usagereport", web.NeedMember, u.report)
}

// usagePoint is the usage in one unit. Members below the unit are missing.
type usagePoint struct {
	Year          int   `json:"year"`
	Month         *int  `json:"month,omitempty"`
	WeekNumber    *int  `json:"weekNumber,omitempty"`
	Day           *int  `json:"day,omitempty"`
	Hour          *int  `json:"hour,omitempty"`
	Resources     int64 `json:"resources"`
	ResourceHours int64 `json:"resourceHours"`
}

func usagePointOf(t time.Time, g usage.Granularity) usagePoint {
	month, week, day, hour := int(t.Month()), usage.Week(t), t.Day(), t.Hour()
	p := usagePoint{Year: t.Year()}
	switch g {
	case usage.Weekly:
		p.WeekNumber = &week
	case usage.Hourly:
		p.Month, p.Day, p.Hour = &month, &day, &hour
	case usage.Daily:
		p.Month, p.Day = &month, &day
	case usage.Monthly:
		p.Month = &month
	}
	return p
}

func usageQuery(r *http.Request) (usage.Query, error) {
	q := usage.Query{Granularity: usage.Granularity(r.URL.Query().Get("granularity"))}
	for name, p := range map[string]**int64{"lookbackDays": &q.Days, "lookbackStart": &q.Start} {
		if r.URL.Query().Get(name) == "" {
			continue
		}
		*p = new(int64)
		if err := request.QueryInt64(r, name, *p); err != nil {
			return q, err
		}
	}
	return q, nil
}

// summary responds with the usage that read returns, of which members returns the two members of a point.
func summary(read func(context.Context, string, store.Reach, usage.Query) ([]usage.Point, error), members func(usage.Point) (int64, int64)) func(http.ResponseWriter, *http.Request, store.Organization) error {
	return func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
		q, err := usageQuery(r)
		if err != nil {
			return err
		}
		points, err := read(r.Context(), o.ID, web.Principal(r).Reach(o.ID), q)
		out := web.Each(points, func(p usage.Point) usagePoint {
			b := usagePointOf(p.From, q.Granularity)
			b.Resources, b.ResourceHours = members(p)
			return b
		})
		return web.Answer(w, r, map[string]any{"summary": out}, err)
	}
}

// usageRecord is the usage of deployments on one day. Its names are those of the public API.
type usageRecord struct {
	OrgID           string
	Timestamp       int64
	UsageRangeStart int64
	UsageRangeEnd   int64
	Value           int64 // minutes
	Count           int64 // deployments that started
}

// reportDays is the default period of a report.
const reportDays = 30

func (u *usageRoutes) report(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	days := int64(reportDays)
	if err := request.QueryInt64(r, "lookbackDays", &days); err != nil {
		return err
	}
	points, err := u.usage.Deployments(r.Context(), o.ID, web.Principal(r).Reach(o.ID), usage.Query{Granularity: usage.Daily, Days: &days})
	out := make([]usageRecord, 0, len(points))
	for _, p := range points {
		if p.Count > 0 || p.Millis > 0 {
			out = append(out, usageRecord{o.ID, p.To.Unix(), p.From.Unix(), p.To.Unix(), p.Minutes(), p.Count})
		}
	}
	return web.Answer(w, r, out, err)
}
