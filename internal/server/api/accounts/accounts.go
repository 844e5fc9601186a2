// Package accounts serves the routes with which administrators of the server manage its users. The public API has no
// such routes.
package accounts

import (
	"net/http"

	"workflowagent/internal/server/admin"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
)

type routes struct{ identity *identity.Service }

// Register adds the routes of this package.
func Register(rt *web.Router, ids *identity.Service) {
	u := &routes{ids}
	const all = "/api/server/users"
	const one = all + "/{user}"
	add := func(method, pattern string, h func(w http.ResponseWriter, r *http.Request) error) {
		rt.Authed(method, pattern, []identity.Kind{identity.KindUser, identity.KindOrg}, web.OwnToken(func(w http.ResponseWriter, r *http.Request) error {
			if !web.Principal(r).CanAdminServer() {
				return fault.Forbidden("only administrators of the server manage its users")
			}
			return h(w, r)
		}))
	}
	add(http.MethodGet, all, u.list)
	add(http.MethodGet, one+"/owned", u.owned)
	add(http.MethodPost, one+"/disable", u.disable)
	add(http.MethodPost, one+"/enable", u.enable)
	add(http.MethodPost, one+"/hand-over", u.handOver)
	add(http.MethodDelete, one, u.remove)
}

func (u *routes) list(w http.ResponseWriter, r *http.Request) error {
	after, err := request.After(r)
	if err != nil {
		return err
	}
	users, more, err := u.identity.Users(r.Context(), "", after, request.DefaultPage)
	if err != nil {
		return err
	}
	body := map[string]any{"users": web.Each(users, admin.UserOf)}
	if more {
		body["continuationToken"] = request.Continuation(users[len(users)-1].Login)
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (u *routes) owned(w http.ResponseWriter, r *http.Request) error {
	h, err := u.identity.Holdings(r.Context(), web.Principal(r), web.Param(r, "user"))
	return web.Answer(w, r, admin.HoldingsOf(h), err)
}

// successor is the body of requests that name the login of the user who takes over.
type successor struct {
	To string `json:"to"`
}

func (u *routes) disable(w http.ResponseWriter, r *http.Request) error {
	var body successor
	if err := request.DecodeOptional(w, r, &body); err != nil {
		return err
	}
	if err := web.Principal(r).CheckSuccessor(body.To); err != nil {
		return err
	}
	ended, err := u.identity.DisableUser(r.Context(), web.Principal(r), web.Param(r, "user"), body.To)
	return web.Answer(w, r, admin.Ended(ended), err)
}

func (u *routes) enable(w http.ResponseWriter, r *http.Request) error {
	return web.Done(w, u.identity.EnableUser(r.Context(), web.Param(r, "user")))
}

func (u *routes) handOver(w http.ResponseWriter, r *http.Request) error {
	var body successor
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if err := web.Principal(r).CheckSuccessor(body.To); err != nil {
		return err
	}
	h, err := u.identity.HandOver(r.Context(), web.Principal(r), web.Param(r, "user"), body.To)
	return web.Answer(w, r, admin.HoldingsOf(h), err)
}

func (u *routes) remove(w http.ResponseWriter, r *http.Request) error {
	to := r.URL.Query().Get("to")
	if err := web.Principal(r).CheckSuccessor(to); err != nil {
		return err
	}
	ended, err := u.identity.DeleteUser(r.Context(), web.Principal(r), web.Param(r, "user"), to)
	return web.Answer(w, r, admin.Ended(ended), err)
}
