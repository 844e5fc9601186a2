package org

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// accessRoutes read and change the permissions on a stack.
type accessRoutes struct{ identity *identity.Service }

func (a *accessRoutes) register(rt *web.Router) {
	rt.Stack(http.MethodGet, web.StackPath+"/collaborators", identity.StateRead, a.collaborators)
	rt.StackAccess(http.MethodPut, web.StackPath+"/collaborators/{user}", a.setCollaborator)
	rt.StackAccess(http.MethodDelete, web.StackPath+"/collaborators/{user}", a.removeCollaborator)
	rt.StackAccess(http.MethodPost, web.StackPath+"/ownership", a.setOwner)
	rt.Stack(http.MethodGet, web.StackPath+"/teams", identity.StateRead, a.teams)
	rt.StackAccess(http.MethodPatch, "/api/console/stacks/{org}/{project}/{stack}/teams/{team}", a.setTeam)
}

func (a *accessRoutes) collaborators(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	access, err := a.identity.StackAccess(r.Context(), web.Principal(r), st)
	if err != nil {
		return err
	}
	type user struct {
		Permission store.Permission `json:"permission"`
		User       web.UserInfo     `json:"user"`
	}
	body := struct {
		Creator string `json:"stackCreatorUserName,omitempty"`
		Users   []user `json:"users"`
	}{access.Creator.Login, []user{}}
	for _, c := range access.Collaborators {
		body.Users = append(body.Users, user{c.Permission, web.MemberInfo(c.Login, c.Name, c.Email)})
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// setCollaborator is not in the public API, which offers no call that adds a collaborator.
func (a *accessRoutes) setCollaborator(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Permission *store.Permission `json:"permission"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if body.Permission == nil {
		return fault.Invalid("member \"permission\" is required")
	}
	return web.Done(w, a.identity.SetCollaborator(r.Context(), st, web.Param(r, "user"), *body.Permission))
}

// setOwner responds with the previous owner.
func (a *accessRoutes) setOwner(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Login string `json:"githubLogin"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	previous, err := a.identity.SetOwner(r.Context(), web.Principal(r), st, body.Login)
	return web.Answer(w, r, web.UserInfoOf(previous), err)
}

func (a *accessRoutes) removeCollaborator(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	return web.Done(w, a.identity.SetCollaborator(r.Context(), st, web.Param(r, "user"), store.NoPermission))
}

func (a *accessRoutes) teams(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	access, err := a.identity.StackAccess(r.Context(), web.Principal(r), st)
	if err != nil {
		return err
	}
	type team struct {
		Name        string           `json:"name"`
		DisplayName string           `json:"displayName"`
		Description string           `json:"description"`
		IsMember    bool             `json:"isMember"`
		Permission  store.Permission `json:"permission"`
	}
	teams := []team{}
	for _, t := range access.Teams {
		teams = append(teams, team{t.Name, t.DisplayName, t.Description, t.IsMember, t.Permission})
	}
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{"projectName": st.Project, "teams": teams})
}

func (a *accessRoutes) setTeam(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	var body struct {
		Permissions *store.Permission `json:"permissions"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	if body.Permissions == nil {
		return fault.Invalid("member \"permissions\" is required")
	}
	org := store.Organization{ID: st.OrgID, Name: st.OrgName}
	return web.Done(w, a.identity.ChangeTeam(r.Context(), web.Principal(r), org, web.Param(r, "team"), identity.TeamChange{
		Grants: []identity.StackGrant{{Project: st.Project, Stack: st.Name, Permission: *body.Permissions}},
	}))
}
