package policy

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/store"
)

type exceptionRoutes struct{ exceptions *exceptions.Service }

// RegisterExceptions adds the routes of exceptions from policies. Members see them, but the targets only of
// stacks that they may read. Only administrators of the organization give and remove them.
func RegisterExceptions(rt *web.Router, s *exceptions.Service) {
	e := &exceptionRoutes{s}
	const base = "/api/orgs/{org}/policy/exceptions"
	rt.Org(http.MethodGet, base, web.NeedMember, e.list)
	rt.Org(http.MethodPost, base, web.NeedGrant, e.create)
	rt.Org(http.MethodPost, base+"/drafts", web.NeedMember, e.draft)
	rt.Org(http.MethodGet, base+"/{exception}", web.NeedMember, e.get)
	rt.Org(http.MethodDelete, base+"/{exception}", web.NeedGrant, e.remove)
}

// The statuses of exceptions.
const (
	statusActive  = "active"
	statusRemoved = "removed"
)

type exceptionBody struct {
	ID        string                 `json:"id"`
	Pack      string                 `json:"policyPack"`
	Match     []store.ExceptionEntry `json:"match"`
	Reason    string                 `json:"reason"`
	Status    string                 `json:"status"`
	ExpiresAt *time.Time             `json:"expiresAt,omitempty"`
	CreatedBy *web.UserInfo          `json:"createdBy,omitempty"`
	CreatedAt time.Time              `json:"createdAt"`
	RemovedBy *web.UserInfo          `json:"removedBy,omitempty"`
	RemovedAt *time.Time             `json:"removedAt,omitempty"`
	// WholeStack is not in the public API: the policies are advisory for the stack of the targets, for all clients.
	WholeStack bool `json:"wholeStack,omitempty"`
}

func exceptionOf(e store.PolicyException, now time.Time) exceptionBody {
	b := exceptionBody{
		ID: e.Name(), Pack: e.Pack, Match: e.Entries, Reason: e.Reason, Status: statusActive, ExpiresAt: optional(e.ExpiresAt),
		CreatedBy: callerOf(e.CreatedBy), CreatedAt: e.CreatedAt, RemovedBy: callerOf(e.RemovedBy), RemovedAt: optional(e.RemovedAt), WholeStack: e.WholeStack,
	}
	if !e.Active(now) {
		b.Status = statusRemoved
		if b.RemovedAt == nil {
			b.RemovedAt = b.ExpiresAt
		}
	}
	return b
}

func callerOf(name string) *web.UserInfo {
	if name == "" {
		return nil
	}
	who := web.MemberInfo(name, name, "")
	return &who
}

func (e *exceptionRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	values := r.URL.Query()
	q := exceptions.Query{Pack: values.Get("policyPack"), Policy: values.Get("policy"), Stack: values.Get("stack")}
	for _, status := range values["status"] {
		switch status {
		case statusActive:
			q.Active = true
		case statusRemoved:
			q.Removed = true
		default:
			return fault.Invalid("Invalid query parameter: status must be active or removed")
		}
	}
	after, err := request.After(r)
	if err != nil {
		return err
	}
	if after != "" {
		if q.Before, err = strconv.ParseInt(after, 10, 64); err != nil || q.Before < 1 {
			return request.ErrContinuation
		}
	}
	page, err := e.exceptions.List(r.Context(), web.Principal(r), o, q)
	if err != nil {
		return err
	}
	answer := map[string]any{"exceptions": web.Each(page.Exceptions, func(x store.PolicyException) exceptionBody { return exceptionOf(x, page.Now) })}
	if page.Next > 0 {
		answer["continuationToken"] = request.Continuation(strconv.FormatInt(page.Next, 10))
	}
	return web.WriteJSON(w, r, http.StatusOK, answer)
}

// create responds with 200 instead of 201 if the same exception exists.
func (e *exceptionRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Pack       string                 `json:"policyPack"`
		Match      []store.ExceptionEntry `json:"match"`
		Reason     string                 `json:"reason"`
		Seconds    *int64                 `json:"expiresInSeconds"`
		WholeStack bool                   `json:"wholeStack"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	n := exceptions.New{Pack: body.Pack, Entries: slices.Clone(body.Match), Reason: body.Reason, WholeStack: body.WholeStack}
	if body.Seconds != nil {
		const most = 3650 * 24 * 3600
		if *body.Seconds < 3600 || *body.Seconds > most {
			return fault.Invalid("member \"expiresInSeconds\" must be 3600 to %d", most)
		}
		n.Lasts = time.Duration(*body.Seconds) * time.Second
	}
	made, existed, err := e.exceptions.Create(r.Context(), web.Principal(r), o, n)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if existed {
		status = http.StatusOK
	}
	return web.WriteJSON(w, r, status, exceptionOf(made, made.CreatedAt))
}

// draft refuses requests for exceptions, for which clients use change requests.
func (e *exceptionRoutes) draft(http.ResponseWriter, *http.Request, store.Organization) error {
	return fault.Invalid("this server has no change requests; an administrator of the organization gives the exception, without --draft")
}

func (e *exceptionRoutes) get(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	x, now, err := e.exceptions.Get(r.Context(), web.Principal(r), o, web.Param(r, "exception"))
	return web.Answer(w, r, exceptionOf(x, now), err)
}

func (e *exceptionRoutes) remove(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, e.exceptions.Remove(r.Context(), web.Principal(r), o, web.Param(r, "exception")))
}
