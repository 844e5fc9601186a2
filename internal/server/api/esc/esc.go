// Package esc provides the routes of environments (Pulumi ESC).
package esc

import (
	"net/http"
	"strconv"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

type routes struct {
	environments *environments.Service
	identity     *identity.Service
}

// Register adds the routes that read and change environments.
func Register(rt *web.Router, s *environments.Service, ids *identity.Service) {
	e := &routes{s, ids}
	const list, one = "/api/esc/environments", web.EnvironmentPath
	rt.Authed(http.MethodGet, list, []identity.Kind{identity.KindUser, identity.KindOrg}, e.listAll)
	rt.Org(http.MethodGet, list+"/{org}", web.NeedMember, e.list)
	rt.Org(http.MethodPost, list+"/{org}", web.NeedMember, e.create)
	rt.Org(http.MethodGet, list+"/{org}/tags", web.NeedMember, e.allTags)

	rt.Environment(http.MethodGet, one, store.ReadEnvironment, e.get)
	rt.Environment(http.MethodHead, one, store.ReadEnvironment, e.head)
	rt.Environment(http.MethodPatch, one, store.WriteEnvironment, e.update)
	rt.Environment(http.MethodDelete, one, store.AdminEnvironment, e.remove)
	rt.Environment(http.MethodGet, one+"/decrypt", store.OpenEnvironment, e.decrypt)
	rt.Environment(http.MethodGet, one+"/metadata", store.ReadEnvironment, e.metadata)
	rt.Environment(http.MethodGet, one+"/settings", store.ReadEnvironment, e.settings)
	rt.Environment(http.MethodPatch, one+"/settings", store.AdminEnvironment, e.setSettings)
	rt.Environment(http.MethodPost, one+"/clone", store.OpenEnvironment, e.clone)
	rt.Environment(http.MethodGet, one+"/referrers", store.ReadEnvironment, e.referrers)

	rt.Environment(http.MethodGet, one+"/tags", store.ReadEnvironment, e.tags)
	rt.Environment(http.MethodPost, one+"/tags", store.WriteEnvironment, e.addTag)
	rt.Environment(http.MethodGet, one+"/tags/{tag}", store.ReadEnvironment, e.tag)
	rt.Environment(http.MethodPatch, one+"/tags/{tag}", store.WriteEnvironment, e.changeTag)
	rt.Environment(http.MethodDelete, one+"/tags/{tag}", store.WriteEnvironment, e.removeTag)

	const versions = one + "/versions"
	rt.Environment(http.MethodGet, versions, store.ReadEnvironment, e.history)
	rt.Environment(http.MethodGet, versions+"/tags", store.ReadEnvironment, e.versionTags)
	rt.Environment(http.MethodPost, versions+"/tags", store.WriteEnvironment, e.addVersionTag)
	rt.Environment(http.MethodGet, versions+"/tags/{tag}", store.ReadEnvironment, e.versionTag)
	rt.Environment(http.MethodPatch, versions+"/tags/{tag}", store.WriteEnvironment, e.changeVersionTag)
	rt.Environment(http.MethodDelete, versions+"/tags/{tag}", store.WriteEnvironment, e.removeVersionTag)
	rt.Environment(http.MethodGet, versions+"/{version}", store.ReadEnvironment, e.get)
	rt.Environment(http.MethodGet, versions+"/{version}/decrypt", store.OpenEnvironment, e.decrypt)
	rt.Environment(http.MethodGet, versions+"/{version}/referrers", store.ReadEnvironment, e.referrers)
	rt.Environment(http.MethodGet, versions+"/{version}/tags", store.ReadEnvironment, e.versionTags)
	rt.Environment(http.MethodPost, versions+"/{version}/retract", store.WriteEnvironment, e.retract)
}

// revisionHeader contains the number of the revision that a response is about.
const revisionHeader = "Pulumi-ESC-Revision"

// identify adds the headers by which clients know a revision.
func identify(w http.ResponseWriter, e store.Environment, number int64) {
	w.Header().Set(revisionHeader, strconv.FormatInt(number, 10))
	w.Header().Set("ETag", environments.ETag(e.ID, number))
}

// writeYAML responds with a definition.
func writeYAML(w http.ResponseWriter, r *http.Request, definition string) error {
	if err := budget.Of(r.Context()).Take(r.Context(), int64(len(definition))); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-yaml")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(definition)))
	w.WriteHeader(http.StatusOK)
	w.Write([]byte(definition)) //nolint:errcheck,gosec // the client might have disconnected; browsers do not show YAML as a page
	return nil
}
