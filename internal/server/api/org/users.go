// Package org serves the routes of users, organizations, members, invitations, teams, permissions, tokens,
// agent pools, OIDC issuers and usage.
package org

import (
	"cmp"
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/store"
)

type userRoutes struct{ identity *identity.Service }

// Register adds the routes of this package.
func Register(rt *web.Router, ids *identity.Service, p *pools.Service, issuers *oidc.Service, used *usage.Service, log *audit.Service, invited *invitations.Service, console links.Console) {
	users := &userRoutes{ids}
	(&invitationRoutes{invited, console}).register(rt)
	users.register(rt)
	(&memberRoutes{ids}).register(rt)
	(&teamRoutes{ids}).register(rt)
	(&accessRoutes{ids}).register(rt)
	(&tokenRoutes{ids}).register(rt)
	(&poolRoutes{p, users}).register(rt)
	(&oidcRoutes{issuers}).register(rt)
	(&usageRoutes{used}).register(rt)
	(&auditRoutes{log}).register(rt)
	registerEmpty(rt, ids)
}

func (u *userRoutes) register(rt *web.Router) {
	rt.Authed(http.MethodGet, "/api/user", web.People, u.user)
	rt.Authed(http.MethodGet, "/api/user/organizations/default", web.People, u.defaultOrg)
	rt.Authed(http.MethodPost, "/api/user/organizations/{org}/default", web.People, web.OwnToken(u.setDefaultOrg))
	rt.Authed(http.MethodPost, "/api/orgs", web.People, web.OwnToken(u.createOrg))
	rt.Org(http.MethodGet, "/api/orgs/{org}", web.NeedMember, u.org)
	rt.Org(http.MethodGet, "/api/orgs/{org}/metadata", web.NeedMember, u.metadata)
}

type orgSummary struct {
	GithubLogin string `json:"githubLogin"`
	Name        string `json:"name"`
	AvatarURL   string `json:"avatarUrl"`
	Role        string `json:"role"`
}

type tokenInfo struct {
	Name         string `json:"name"`
	Organization string `json:"organization"`
	Team         string `json:"team"`
}

type userBody struct {
	ID                  string       `json:"id"`
	GithubLogin         string       `json:"githubLogin"`
	Name                string       `json:"name"`
	Email               string       `json:"email"`
	AvatarURL           string       `json:"avatarUrl"`
	Organizations       []orgSummary `json:"organizations"`
	Identities          []string     `json:"identities"`
	HasMFA              bool         `json:"hasMFA"`
	IsOrgManaged        bool         `json:"isOrgManaged"`
	IsManagedByMultiOrg bool         `json:"isManagedByMultiOrg"`
	SiteAdmin           bool         `json:"siteAdmin,omitempty"`
	TokenInfo           *tokenInfo   `json:"tokenInfo,omitempty"`
}

func (u *userRoutes) user(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	orgs, err := u.identity.OrganizationsOf(r.Context(), p)
	if err != nil {
		return err
	}
	body := userBody{
		ID: p.User.ID, GithubLogin: p.User.Login, Name: p.User.Name, Email: p.User.Email,
		SiteAdmin:  p.User.SiteAdmin && p.Kind == identity.KindUser,
		Identities: []string{}, Organizations: []orgSummary{},
	}
	if p.User.Login == "" {
		// Clients see an organization as the user of its tokens.
		body.ID, body.GithubLogin, body.Name = p.Org.ID, p.Org.Name, p.Org.DisplayName
	}
	switch p.Kind {
	case identity.KindOrg:
		body.TokenInfo = &tokenInfo{Name: p.TokenName, Organization: p.Org.Name, Team: p.Team}
	case identity.KindJob:
		body.TokenInfo = &tokenInfo{Name: "deployment " + p.DeploymentID, Organization: p.Org.Name}
	}
	for _, o := range orgs {
		role := cmp.Or(p.Role(o.ID), identity.RoleMember)
		body.Organizations = append(body.Organizations, orgSummary{GithubLogin: o.Name, Name: o.DisplayName, Role: role})
	}
	return web.WriteJSON(w, r, http.StatusOK, body)
}

// defaultOrg responds with the organization for stack names without one: the organization that the
// user has chosen, or the user's first organization.
func (u *userRoutes) defaultOrg(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	orgs, err := u.identity.OrganizationsOf(r.Context(), p)
	if err != nil {
		return err
	}
	name := ""
	for _, o := range orgs {
		if name == "" || o.Name == p.User.DefaultOrg {
			name = o.Name
		}
	}
	// These member names are capitalized in the public API.
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{"GitHubLogin": name, "Messages": []any{}})
}

func (u *userRoutes) setDefaultOrg(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	if p.Kind != identity.KindUser {
		return fault.Forbidden("only users have a default organization")
	}
	o, err := u.identity.Organization(r.Context(), p, web.Param(r, "org"))
	if err != nil {
		return err
	}
	return web.Done(w, u.identity.SetDefaultOrg(r.Context(), p.User.ID, o.Name))
}

// createOrg creates an organization. The public API has no such call.
func (u *userRoutes) createOrg(w http.ResponseWriter, r *http.Request) error {
	p := web.Principal(r)
	if p.Kind != identity.KindUser || !p.User.SiteAdmin {
		return fault.Forbidden("only site administrators create organizations")
	}
	var body struct {
		Name  string `json:"name"`
		Admin string `json:"admin"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	o, err := u.identity.CreateOrganization(r.Context(), body.Name, cmp.Or(body.Admin, p.User.Login))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, r, http.StatusCreated, map[string]any{"githubLogin": o.Name, "name": o.DisplayName})
}

func (u *userRoutes) org(w http.ResponseWriter, r *http.Request, o store.Organization) error {
	return web.WriteJSON(w, r, http.StatusOK, map[string]any{
		"githubLogin": o.Name, "name": o.DisplayName, "avatarUrl": "", "repos": []any{},
	})
}
