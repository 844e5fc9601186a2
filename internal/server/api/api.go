// Package api is the HTTP face of the control plane: routes, authentication,
// decoding and the mapping of errors. What the routes do is decided in the
// domain packages; nothing here knows SQL.
package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
)

// Deps are what every route may use.
type Deps struct {
	Log      *logrus.Entry
	Identity *identity.Service
	Stacks   *stacks.Service
	// ExternalURL is the address under which clients reach the server,
	// without a trailing slash.
	ExternalURL string
	// Version is the server's own version.
	Version string
	// Metrics is where the requests are counted. Required.
	Metrics *prometheus.Registry
	// Ready tells whether the server can do its work; nil means always.
	Ready func(r *http.Request) error
	// MetricsToken is what callers of /metrics need. Empty: only callers on this
	// machine, directly.
	MetricsToken string
	// Limits bounds requests; the zero value means the defaults.
	Limits Limits
}

// Domain is a group of routes of one domain. The core registers its own; the
// wiring of the server passes the others to [New].
type Domain interface {
	register(rt *Router)
}

// New returns the handler of the whole API.
func New(d Deps, domains ...Domain) http.Handler {
	limits := d.Limits.withDefaults()
	mux := chi.NewRouter()
	m := newMetrics(d.Metrics)
	mux.Use(signAnswers, cutStalled(limits.Stall, limits.Rate), observe(d.Log, m), recoverPanic, stripSlash, Bound(limits), refuseNonText)
	notFound := func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, fault.NotFound("Not Found: %s is no path of this server", r.URL.Path))
	}
	mux.NotFound(notFound)
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, &Error{Status: http.StatusMethodNotAllowed, Message: "Method Not Allowed: " + r.Method + " is not possible here"})
	})
	rt := NewRouter(mux, d.Identity, d.Stacks)
	core := []Domain{
		&serverRoutes{deps: d},
		&userRoutes{identity: d.Identity},
		&tokenRoutes{identity: d.Identity},
		&stackRoutes{stacks: d.Stacks, identity: d.Identity},
		&stateRoutes{stacks: d.Stacks},
		&secretRoutes{stacks: d.Stacks},
		&updateRoutes{stacks: d.Stacks},
		&historyRoutes{stacks: d.Stacks},
	}
	for _, dom := range append(core, domains...) {
		dom.register(rt)
	}
	return mux
}
