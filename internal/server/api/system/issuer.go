package system

import (
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity/issuer"
)

type issuerRoutes struct{ issuer *issuer.Service }

// RegisterIssuer adds the documents with which others verify the identity tokens of jobs and environments.
func RegisterIssuer(rt *web.Router, s *issuer.Service) {
	i := &issuerRoutes{s}
	rt.Public(http.MethodGet, issuer.Path+issuer.ConfigurationPath, i.configuration)
	rt.Public(http.MethodGet, issuer.Path+issuer.KeysPath, i.keys)
	rt.Public(http.MethodGet, issuer.Path+issuer.CustomPath+issuer.ConfigurationPath, i.customConfiguration)
	rt.Public(http.MethodGet, issuer.Path+issuer.CustomPath+issuer.KeysPath, i.keys)
}

func (i *issuerRoutes) customConfiguration(w http.ResponseWriter, r *http.Request) error {
	return cacheable(w, r, i.issuer.CustomConfiguration(), nil)
}

func (i *issuerRoutes) configuration(w http.ResponseWriter, r *http.Request) error {
	return cacheable(w, r, i.issuer.Configuration(), nil)
}

func (i *issuerRoutes) keys(w http.ResponseWriter, r *http.Request) error {
	set, err := i.issuer.KeySet(r.Context())
	return cacheable(w, r, set, err)
}

// cacheable responds with a document that caches may keep for a few minutes. Keys are published
// long before they sign, so the time limits only how long a revoked key remains trusted.
func cacheable(w http.ResponseWriter, r *http.Request, v any, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	return web.WriteJSON(w, r, http.StatusOK, v)
}
