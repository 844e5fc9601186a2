package org

import (
	"net/http"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// empty lists the routes whose lists are always empty, by the name of the list. Package absent
// refuses the changes of these lists.
var empty = map[string]string{"/roles": "roles", "/teams/{team}/roles": "roles"}

// registry are the lists of the registry that clients read before they continue without one: pulumi new
// with the templates of Pulumi, and the resolution of a package with the release of a provider. They show
// any error instead. Older versions of the CLI read them below /api/preview.
var registry = map[string]string{"/registry/templates": "templates", "/registry/packages": "packages"}

func registerEmpty(rt *web.Router, ids *identity.Service) {
	rt.Authed(http.MethodGet, "/api/user/pending-invites", web.People, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, r, http.StatusOK, map[string]any{"invites": []any{}})
	})
	// No user has an e-mail address that waits for verification, or a verified one: the operator sets
	// the addresses, and the server sends no e-mails.
	noEmail := func(w http.ResponseWriter, _ *http.Request) error { return web.Done(w, nil) }
	rt.Authed(http.MethodGet, "/api/user/pending-emails", web.People, noEmail)
	rt.Authed(http.MethodGet, "/api/user/verified-email", web.People, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, r, http.StatusOK, false)
	})
	for path, name := range registry {
		none := func(w http.ResponseWriter, r *http.Request) error {
			return web.WriteJSON(w, r, http.StatusOK, map[string]any{name: []any{}})
		}
		rt.Authed(http.MethodGet, "/api"+path, web.People, none)
		rt.Authed(http.MethodGet, "/api/preview"+path, web.People, none)
	}
	for path, name := range empty {
		rt.Org(http.MethodGet, "/api/orgs/{org}"+path, web.NeedMember, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
			if strings.Contains(path, "{team}") {
				if _, err := ids.Team(r.Context(), o.ID, web.Param(r, "team")); err != nil {
					return err
				}
			}
			return web.WriteJSON(w, r, http.StatusOK, map[string]any{name: []any{}})
		})
	}
}
