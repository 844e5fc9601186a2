package sessions

import (
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
)

// RegisterProviders adds the routes that describe providers, and what definitions know about their evaluation, to editors.
func RegisterProviders(rt *web.Router) {
	rt.Authed(http.MethodGet, "/api/esc/providers", web.People, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, r, http.StatusOK, map[string]any{"providers": providers.Names()})
	})
	rt.Authed(http.MethodGet, "/api/esc/providers/{provider}/schema", web.People, func(w http.ResponseWriter, r *http.Request) error {
		p, ok := providers.Find(web.Param(r, "provider"))
		if !ok {
			return fault.NotFound("this server has no provider of that name; GET /api/esc/providers lists them")
		}
		p.Inputs, p.Outputs = providers.Public(p.Inputs), providers.Public(p.Outputs)
		return web.WriteJSON(w, r, http.StatusOK, p)
	})
	rt.Authed(http.MethodGet, "/api/esc/context/schema", web.People, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteJSON(w, r, http.StatusOK, map[string]any{"schema": providers.ContextSchema()})
	})
}
