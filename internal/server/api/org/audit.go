package org

import (
	"net/http"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// auditPage is the number of entries in one response.
const auditPage = 100

type auditRoutes struct{ log *audit.Service }

func (a *auditRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/auditlogs"
	for _, path := range []string{base, base + "/v2"} {
		rt.Org(http.MethodGet, path, web.NeedAdmin, a.list)
		rt.Org(http.MethodGet, path+"/export", web.NeedAdmin, a.export)
	}
}

type auditEvent struct {
	Timestamp   int64        `json:"timestamp"`
	SourceIP    string       `json:"sourceIP"` // the first, if there are several
	SourceIPs   []string     `json:"sourceIPs,omitempty"`
	Event       string       `json:"event"`
	Description string       `json:"description"`
	User        web.UserInfo `json:"user"`
	TokenID     string       `json:"tokenID,omitempty"`
	TokenName   string       `json:"tokenName,omitempty"`
	ActorName   string       `json:"actorName,omitempty"`
	ActorURN    string       `json:"actorUrn,omitempty"`
	// Count and LastTimestamp are the number and the last time of the reads for which an entry stands.
	Count         int64 `json:"count,omitempty"`
	LastTimestamp int64 `json:"lastTimestamp,omitempty"`
}

// auditFilter reads the parameters of a request. The two times are accepted in both orders.
func auditFilter(r *http.Request, orgID string) (f store.AuditFilter, err error) {
	q := r.URL.Query()
	f = store.AuditFilter{OrgID: orgID, Actor: q.Get("userFilter"), Action: q.Get("eventFilter"), Limit: auditPage}
	var start, end int64
	if err := request.QueryInt64(r, "startTime", &start); err != nil {
		return f, err
	}
	if err := request.QueryInt64(r, "endTime", &end); err != nil {
		return f, err
	}
	const last = 1 << 40 // about 36,000 years
	if min(start, end) < 0 || max(start, end) > last {
		return f, fault.Invalid("startTime and endTime must be times in Unix seconds")
	}
	if end > 0 && start > end {
		start, end = end, start
	}
	if start > 0 {
		f.From = time.Unix(start, 0)
	}
	if end > 0 {
		f.Before = time.Unix(end, 0)
	}
	f.OlderThan, err = audit.ParsePosition(q.Get("continuationToken"))
	return f, err
}

func (a *auditRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	if r.URL.Query().Get("format") != "" {
		return a.export(w, r, o)
	}
	f, err := auditFilter(r, o.ID)
	if err != nil {
		return err
	}
	list, more, err := a.log.List(r.Context(), web.Principal(r), f)
	if err != nil {
		return err
	}
	body := struct {
		Events       []auditEvent `json:"auditLogEvents"`
		Continuation string       `json:"continuationToken,omitempty"`
	}{Events: []auditEvent{}}
	for _, e := range list {
		addresses := strings.Split(e.Address, ", ")
		event := auditEvent{
			Timestamp: e.At.Unix(), SourceIP: addresses[0], Event: e.Action, Description: audit.Describe(e), User: web.MemberInfo(e.Actor, e.Actor, ""),
			Count: e.Reads, LastTimestamp: web.Unix(e.LastAt), TokenID: e.TokenID, TokenName: e.TokenName, ActorName: e.Actor, ActorURN: e.ActorKind + ":" + e.ActorID,
		}
		if len(addresses) > 1 {
			event.SourceIPs = addresses
		}
		body.Events = append(body.Events, event)
	}
	if more {
		body.Continuation = audit.Position(list[len(list)-1])
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// export responds with all selected entries as a file.
func (a *auditRoutes) export(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	f, err := auditFilter(r, o.ID)
	if err != nil {
		return err
	}
	write := a.log.WriteCSV
	switch format := r.URL.Query().Get("format"); format {
	case "", "csv":
	case "json":
		write = a.log.WriteJSON
	default:
		return fault.Invalid("the format %q is unknown; use csv or json", format)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // for every format, as the public API says
	err = write(r.Context(), w, web.Principal(r), f)
	if err != nil && web.Begun(w) {
		web.Abort(r, err)
		return nil
	}
	return err
}
