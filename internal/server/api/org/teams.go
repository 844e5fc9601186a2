package org

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type teamRoutes struct{ identity *identity.Service }

func (t *teamRoutes) register(rt *web.Router) {
	const base = "/api/orgs/{org}/teams"
	rt.Org(http.MethodGet, base, web.NeedMember, t.list)
	rt.Org(http.MethodPost, base+"/pulumi", web.NeedGrant, t.create)
	rt.Org(http.MethodGet, base+"/{team}", web.NeedMember, t.get)
	rt.Org(http.MethodPatch, base+"/{team}", web.NeedOwnToken, t.change)
	rt.Org(http.MethodDelete, base+"/{team}", web.NeedGrant, t.remove)
}

type teamMemberBody struct {
	web.UserInfo
	Role string `json:"role"`
}

type teamStackBody struct {
	ProjectName string           `json:"projectName"`
	StackName   string           `json:"stackName"`
	Permission  store.Permission `json:"permission"`
}

type teamEnvironmentBody struct {
	ProjectName string `json:"projectName"`
	EnvName     string `json:"envName"`
	Permission  string `json:"permission"`
	// MaxOpenDuration is refused, because the server has one limit for all sessions.
	MaxOpenDuration string `json:"maxOpenDuration,omitempty"`
}

func (b teamEnvironmentBody) grant() (identity.EnvironmentGrant, error) {
	permission, ok := store.ParseEnvironmentPermission(b.Permission)
	switch {
	case !ok:
		return identity.EnvironmentGrant{}, fault.Invalid("the permission %q is unknown; use none, read, open, write or admin", b.Permission)
	case b.MaxOpenDuration != "":
		return identity.EnvironmentGrant{}, fault.Invalid("this server does not limit for how long a team opens an environment; leave out maxOpenDuration")
	}
	return identity.EnvironmentGrant{Project: b.ProjectName, Name: b.EnvName, Permission: permission}, nil
}

type teamBody struct {
	Kind         string                `json:"kind"`
	Name         string                `json:"name"`
	DisplayName  string                `json:"displayName"`
	Description  string                `json:"description"`
	Members      []teamMemberBody      `json:"members"`
	Stacks       []teamStackBody       `json:"stacks"`
	Environments []teamEnvironmentBody `json:"environments"`
	UserRole     string                `json:"userRole"`
}

func teamBodyOf(p identity.Principal, t identity.TeamInfo) teamBody {
	body := teamBody{
		Kind: "pulumi", Name: t.Name, DisplayName: t.DisplayName, Description: t.Description,
		Members: []teamMemberBody{}, Stacks: []teamStackBody{}, Environments: []teamEnvironmentBody{}, UserRole: "none",
	}
	for _, m := range t.Members {
		if m.UserID == p.User.ID {
			body.UserRole = m.Role
		}
		body.Members = append(body.Members, teamMemberBody{web.MemberInfo(m.Login, m.Name, m.Email), m.Role})
	}
	for _, st := range t.Stacks {
		body.Stacks = append(body.Stacks, teamStackBody{st.Project, st.Stack, st.Permission})
	}
	for _, e := range t.Environments {
		body.Environments = append(body.Environments, teamEnvironmentBody{ProjectName: e.Project, EnvName: e.Name, Permission: e.Permission.String()})
	}
	return body
}

func (t *teamRoutes) list(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	teams, err := t.identity.Teams(r.Context(), web.Principal(r), o.ID)
	list := web.Each(teams, func(team identity.TeamInfo) teamBody { return teamBodyOf(web.Principal(r), team) })
	return web.Answer(w, r, map[string]any{"teams": list}, err)
}

func (t *teamRoutes) get(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	team, err := t.identity.TeamInfo(r.Context(), web.Principal(r), o.ID, web.Param(r, "team"))
	return web.Answer(w, r, teamBodyOf(web.Principal(r), team), err)
}

func (t *teamRoutes) create(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	var body struct {
		Name        string `json:"name"`
		DisplayName string `json:"displayName"`
		Description string `json:"description"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	team, err := t.identity.CreateTeam(r.Context(), o, store.Team{Name: body.Name, DisplayName: body.DisplayName, Description: body.Description})
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusCreated, teamBodyOf(web.Principal(r), identity.TeamInfo{Team: team}))
}

func (t *teamRoutes) change(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	type removed struct {
		ProjectName string `json:"projectName"`
		StackName   string `json:"stackName"`
	}
	var body struct {
		NewDisplayName string               `json:"newDisplayName"`
		NewDescription string               `json:"newDescription"`
		Member         string               `json:"member"`
		MemberAction   string               `json:"memberAction"`
		AddStack       *teamStackBody       `json:"addStackPermission"`
		EditStack      *teamStackBody       `json:"editStackPermission"`
		RemoveStack    *removed             `json:"removeStack"`
		AddEnv         *teamEnvironmentBody `json:"addEnvironmentPermission"`
		EditEnv        *teamEnvironmentBody `json:"editEnvironmentPermission"`
		RemoveEnv      *teamEnvironmentBody `json:"removeEnvironment"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	c := identity.TeamChange{DisplayName: body.NewDisplayName, Description: body.NewDescription, Member: body.Member, Action: body.MemberAction}
	for _, s := range []*teamStackBody{body.AddStack, body.EditStack} {
		if s != nil {
			c.Grants = append(c.Grants, identity.StackGrant{Project: s.ProjectName, Stack: s.StackName, Permission: s.Permission})
		}
	}
	if s := body.RemoveStack; s != nil {
		c.Grants = append(c.Grants, identity.StackGrant{Project: s.ProjectName, Stack: s.StackName})
	}
	if e := body.RemoveEnv; e != nil {
		c.Environments = append(c.Environments, identity.EnvironmentGrant{Project: e.ProjectName, Name: e.EnvName})
	}
	for _, e := range []*teamEnvironmentBody{body.AddEnv, body.EditEnv} {
		if e == nil {
			continue
		}
		g, err := e.grant()
		if err != nil {
			return err
		}
		c.Environments = append(c.Environments, g)
	}
	return web.Done(w, t.identity.ChangeTeam(r.Context(), web.Principal(r), o, web.Param(r, "team"), c))
}

func (t *teamRoutes) remove(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.Done(w, t.identity.DeleteTeam(r.Context(), o.ID, web.Param(r, "team")))
}
