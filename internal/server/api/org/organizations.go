package org

import (
	"net/http"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/organizations"
)

type organizationRoutes struct {
	identity *identity.Service
	all      *organizations.Service
}

// RegisterOrganizations adds the routes of organizations as a whole. The public API has none of them.
func RegisterOrganizations(rt *web.Router, ids *identity.Service, all *organizations.Service) {
	o := &organizationRoutes{ids, all}
	users := []identity.Kind{identity.KindUser}
	rt.Authed(http.MethodGet, "/api/organizations", users, o.list)
	rt.Authed(http.MethodPatch, "/api/organizations/{org}/quota", users, web.OwnToken(o.setQuotas))
	rt.Authed(http.MethodPost, "/api/orgs/{org}/rename", users, web.OwnToken(o.rename))
	rt.Authed(http.MethodDelete, "/api/orgs/{org}", users, web.OwnToken(o.delete))
}

func (o *organizationRoutes) list(w http.ResponseWriter, r *http.Request) error {
	if !web.Principal(r).CanAdminServer() {
		return errNoSiteAdmin
	}
	list, err := o.all.List(r.Context())
	bodies := make([]organizations.Description, len(list))
	for i, found := range list {
		bodies[i] = found.Describe()
	}
	return web.Answer(w, r, map[string]any{"organizations": bodies}, err)
}

var errNoSiteAdmin = fault.Forbidden("only site administrators may do this")

func (o *organizationRoutes) setQuotas(w http.ResponseWriter, r *http.Request) error {
	if !web.Principal(r).CanAdminServer() {
		return errNoSiteAdmin
	}
	var body struct {
		Storage     *int64 `json:"storageQuota"`
		Deployments *int64 `json:"deploymentQuota"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	changed, err := o.all.SetQuotas(r.Context(), web.Param(r, "org"), organizations.Quotas{Storage: body.Storage, Deployments: body.Deployments})
	return web.Answer(w, r, changed.Describe(), err)
}

// governed returns the id of an organization that the caller, or a site administrator, may rename and delete.
func (o *organizationRoutes) governed(r *http.Request) (id string, err error) {
	p, name := web.Principal(r), web.Param(r, "org")
	if p.CanAdminServer() {
		found, err := o.identity.Named(r.Context(), name)
		return found.ID, err
	}
	found, err := o.identity.Organization(r.Context(), p, name)
	if err == nil && !p.CanAdminOrg(found.ID) {
		err = fault.Forbidden("only administrators of %s may do this", found.Name)
	}
	return found.ID, err
}

func (o *organizationRoutes) rename(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		NewName string `json:"newName"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	id, err := o.governed(r)
	if err != nil {
		return err
	}
	renamed, err := o.identity.RenameOrganization(r.Context(), web.Principal(r), id, body.NewName)
	return web.Answer(w, r, map[string]any{"githubLogin": renamed.Name, "name": renamed.DisplayName}, err)
}

// delete deletes an organization whose name the body repeats. Without it, the error says what would be lost.
func (o *organizationRoutes) delete(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := request.Decode(w, r, &body); err != nil {
		return err
	}
	id, err := o.governed(r)
	if err == nil {
		_, _, err = o.all.Delete(r.Context(), id, body.Name)
	}
	return web.Done(w, err)
}
