// Package openapi describes the routes of this server in the form of OpenAPI 3. The command "pulumi
// api" finds the server's operations in that description.
package openapi

import (
	_ "embed"
	"net/http"

	"workflowagent/internal/server/api/web"
)

// Path is the path at which clients expect the description.
const Path = "/api/openapi/pulumi-spec.json"

// spec describes all routes below /api. The command internal/dev/apidoc generates it.
//
//go:embed pulumi-spec.json
var spec []byte

// Register adds a route that returns the description.
func Register(rt *web.Router) {
	rt.Public(http.MethodGet, Path, func(w http.ResponseWriter, r *http.Request) error {
		return web.WriteRaw(w, r, http.StatusOK, spec)
	})
}
