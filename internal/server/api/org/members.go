package org

import (
	"cmp"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type memberRoutes struct{ identity *identity.Service }

func (m *memberRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/members"
	rt.Org(http.MethodGet, base, web.NeedMember, m.list)
	rt.Org(http.MethodPost, base+"/{user}", web.NeedGrant, m.add)
	rt.Org(http.MethodPatch, base+"/{user}", web.NeedGrant, m.change)
	rt.Org(http.MethodDelete, base+"/{user}", web.NeedGrant, m.remove)
	rt.Org(http.MethodPost, base+"/{user}/set-admin", web.NeedGrant, m.setSoleAdmin)
	rt.Org(http.MethodGet, base+"/{user}/teams", web.NeedMember, m.teams)
}

type roleBody struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	ModifiedAt string `json:"modifiedAt"`
}

type memberBody struct {
	Created       string       `json:"created"`
	FGARole       roleBody     `json:"fgaRole"`
	KnownToPulumi bool         `json:"knownToPulumi"`
	Role          string       `json:"role"`
	User          web.UserInfo `json:"user"`
	VirtualAdmin  bool         `json:"virtualAdmin"`
}

func memberBodyOf(m store.Member) memberBody {
	created := web.RFC3339(m.CreatedAt)
	return memberBody{
		Created: created, FGARole: roleBody{ID: m.Role, Name: m.Role, ModifiedAt: created},
		KnownToPulumi: true, Role: m.Role, User: web.MemberInfo(m.Login, m.Name, m.Email),
	}
}

func (m *memberRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	after, err := request.After(r)
	if err != nil {
		return err
	}
	members, more, err := m.identity.Members(r.Context(), o.ID, "", after, request.DefaultPage)
	if err != nil {
		return err
	}
	body := map[string]any{"members": web.Each(members, memberBodyOf)}
	if more {
		body["continuationToken"] = request.Continuation(members[len(members)-1].Login)
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

func (m *memberRoutes) add(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Role string `json:"role"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	member, err := m.identity.AddMember(r.Context(), o, web.Param(r, "user"), body.Role)
	return web.Answer(w, r, memberBodyOf(member), err)
}

// change sets a member's role. The ids of the built-in roles are their names.
func (m *memberRoutes) change(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Role      string `json:"role"`
		FGARoleID string `json:"fgaRoleId"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	return web.Done(w, m.identity.SetRole(r.Context(), o, web.Param(r, "user"), cmp.Or(body.Role, body.FGARoleID)))
}

func (m *memberRoutes) remove(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, m.identity.RemoveMember(r.Context(), o, web.Param(r, "user")))
}

func (m *memberRoutes) setSoleAdmin(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, m.identity.SetSoleAdmin(r.Context(), o, web.Param(r, "user")))
}

func (m *memberRoutes) teams(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	names, err := m.identity.TeamsOf(r.Context(), o, web.Param(r, "user"))
	return web.Answer(w, r, map[string]any{"teams": names}, err)
}
