package org

import (
	"cmp"
	"net/http"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/store"
)

// invitationRoutes make, list and revoke invitations. Visitors accept them in the console, where they sign in or become
// users.
type invitationRoutes struct {
	invitations *invitations.Service
	console     links.Console
}

func (i *invitationRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/invites"
	rt.Org(http.MethodGet, base, web.NeedAdmin, i.list)
	rt.Org(http.MethodPost, base+"/link", web.NeedGrant, i.create)
	rt.Org(http.MethodDelete, base+"/{inviteID}", web.NeedGrant, i.revoke)
}

type invitationBody struct {
	ID              string       `json:"id"`
	AcceptInviteURL string       `json:"acceptInviteUrl"` // always "": only the answer to its creation contains the link
	Email           string       `json:"email"`
	Role            string       `json:"role"`
	SentAt          int64        `json:"sentAt"`
	SentBy          web.UserInfo `json:"sentBy"`
	Status          string       `json:"status"`
	ExpiresAt       int64        `json:"expiresAt"`
}

func (i *invitationRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	list, err := i.invitations.List(r.Context(), o.ID)
	now := time.Now()
	return web.Answer(w, r, map[string]any{"invites": web.Each(list, func(v invitations.Listed) invitationBody {
		status := "pending"
		switch {
		case invitations.Expired(v.Invitation, now):
			status = "expired"
		case v.Void:
			status = "void"
		}
		return invitationBody{
			ID: v.ID, Email: v.Invitee, Role: v.Role, SentAt: web.Unix(v.CreatedAt), SentBy: web.MemberInfo(v.Inviter, v.Inviter, ""),
			Status: status, ExpiresAt: web.Unix(v.ExpiresAt),
		}
	})}, err)
}

// create responds with the link of a new invitation. The lifetime is not in the public API.
func (i *invitationRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Email           string `json:"email"`
		Role            string `json:"role"`
		RoleID          string `json:"roleId"`
		LifetimeSeconds int64  `json:"lifetimeSeconds"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	const most = int64(365 * 24 * time.Hour / time.Second) // a [time.Duration] cannot hold every number
	lifetime := time.Duration(max(-1, min(body.LifetimeSeconds, most))) * time.Second
	secret, made, err := i.invitations.Make(r.Context(), web.Principal(r), o, invitations.Spec{
		Role: cmp.Or(body.Role, body.RoleID), For: body.Email, Lifetime: lifetime,
	})
	return web.Answer(w, r, map[string]string{"id": made.ID, "acceptInviteUrl": i.console.Invitation(secret)}, err)
}

func (i *invitationRoutes) revoke(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, i.invitations.Revoke(r.Context(), o, web.Param(r, "inviteID")))
}
