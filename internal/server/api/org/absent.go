package org

import (
	"net/http"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// absent lists the routes of features that this server does not have, by the sentence of the
// response. Clients print the sentence.
var absent = map[string][]string{
	"this server has no custom roles; the role of a member is admin, member, billing-manager or stack-collaborator": {
		"POST /roles", "GET /roles/scopes", "GET /roles/{roleID}", "PATCH /roles/{roleID}", "DELETE /roles/{roleID}", "PATCH /roles/{roleID}/default",
		"POST /teams/{team}/roles/{roleID}", "DELETE /teams/{team}/roles/{roleID}",
	},
	"this server has no audit log; its own log records every change": {"GET /auditlogs", "GET /auditlogs/export", "GET /auditlogs/v2", "GET /auditlogs/v2/export"},
	"this server does not measure usage":                             {"GET /resources/summary"},
	"this server sends no invitations; its operator creates users with \"workflow-server user create\"": {
		"POST /invites/batch", "POST /invites/link", "POST /invites/unverified/batch", "GET /invites/{inviteID}", "PATCH /invites/{inviteID}", "DELETE /invites/{inviteID}",
	},
}

// empty lists the routes whose lists are always empty, by the name of the list.
var empty = map[string]string{"/roles": "roles", "/teams/{team}/roles": "roles", "/invites": "invites"}

func registerAbsent(rt *web.Router, ids *identity.Service) {
	org := func(method, path string, answer func(w http.ResponseWriter, r *http.Request) error) {
		need := web.NeedMember
		if method != http.MethodGet {
			need = web.NeedOwnToken // as for each change of lasting access
		}
		rt.Org(method, "/api/orgs/{org}"+path, need, func(w http.ResponseWriter, r *http.Request, o store.Organization) error {
			if strings.Contains(path, "{team}") {
				if _, err := ids.Team(r.Context(), o.ID, web.Param(r, "team")); err != nil {
					return err
				}
			}
			return answer(w, r)
		})
	}
	for sentence, routes := range absent {
		for _, route := range routes {
			method, path, _ := strings.Cut(route, " ")
			org(method, path, func(http.ResponseWriter, *http.Request) error { return fault.NotFound("Not Found: %s", sentence) })
		}
	}
	for path, name := range empty {
		org(http.MethodGet, path, func(w http.ResponseWriter, r *http.Request) error {
			return web.WriteJSON(w, r, http.StatusOK, map[string]any{name: []any{}})
		})
	}
}
