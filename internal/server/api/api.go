// Package api is the HTTP face of the control plane. What the routes do is
// decided in the domain packages; nothing here knows SQL.
//
// This package puts the groups of routes together, one package each:
//
//   - state: the state backend, from stacks to secrets, updates and histories
//   - deploy: deployments and their settings, as users see them
//   - jobs: what agents and runners call
//   - org: users, organizations, tokens, agent pools, OIDC issuers
//   - system: health, metrics, capabilities, releases
//
// Package web has what every route needs: routing with authentication, answers,
// errors, the access log. Package request reads bodies and parameters within
// limits. A new group of routes is a package with a function Register.
package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/oidc"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/stacks"
)

// Deps are the services behind the routes.
type Deps struct {
	Log         *logrus.Entry
	Identity    *identity.Service
	Stacks      *stacks.Service
	Deployments *deployments.Service
	Pools       *pools.Service
	OIDC        *oidc.Service
	Runner      RunnerBinary
	Server      Server
	// ExternalURL is the address under which clients reach the server,
	// without a trailing slash.
	ExternalURL string
	// Limits bounds requests; the zero value means the defaults.
	Limits Limits
}

// New returns the handler of the whole API.
func New(d Deps) http.Handler {
	limits := d.Limits.withDefaults()
	mux := chi.NewRouter()
	m := newMetrics(d.Server.Metrics)
	mux.Use(signAnswers, cutStalled(limits.Stall, limits.Rate), observe(d.Log, m), recoverPanic, stripSlash, Bound(limits), refuseNonText)
	notFound := func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, fault.NotFound("Not Found: %s is no path of this server", r.URL.Path))
	}
	mux.NotFound(notFound)
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, &Error{Status: http.StatusMethodNotAllowed, Message: "Method Not Allowed: " + r.Method + " is not possible here"})
	})
	rt := NewRouter(mux, d.Identity, d.Stacks)
	registerSystem(rt, d.Server)
	registerOrg(rt, d.Identity, d.Pools, d.OIDC)
	registerState(rt, d.Stacks, d.Identity)
	registerDeploy(rt, d.Deployments, d.Stacks)
	registerJobs(rt, d.Deployments, d.Runner, d.ExternalURL)
	return mux
}
