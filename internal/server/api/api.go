// Package api is the HTTP interface of the control plane. The domain packages implement the
// operations behind the routes. This package combines one package per group of routes:
//
//   - state: the state backend, from stacks to secrets, updates and histories
//   - deploy: deployments, their settings, schedules and drift runs, for users
//   - hooks: webhooks
//   - policy: policy packs and groups, their results, and exceptions
//   - esc: environments (Pulumi ESC)
//   - esc/sessions: checks and openings of environments
//   - forges: integrations with forges, and the deliveries that they send
//   - evaluation: policy evaluations, for users, and the results of their jobs
//   - jobs: the calls of agents and runners
//   - accounts: the users of the whole server, for its administrators
//   - org: users, organizations, tokens, agent pools, OIDC issuers, usage
//   - system: health, metrics, capabilities, schemas, releases, keys of identity tokens
//   - openapi: the description of all routes
//   - mirror: how the requests of the server's doctor arrive
//   - absent: the errors of parts of the public API that the server does not offer
//
// Package web provides routing with authentication, responses, errors and the access log. Package
// request reads bodies and parameters within limits. To add a group of routes, add a package with a
// function Register.
package api

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/api/absent"
	"workflowagent/internal/server/api/accounts"
	"workflowagent/internal/server/api/deploy"
	"workflowagent/internal/server/api/esc"
	"workflowagent/internal/server/api/esc/sessions"
	"workflowagent/internal/server/api/evaluation"
	"workflowagent/internal/server/api/forges"
	"workflowagent/internal/server/api/hooks"
	"workflowagent/internal/server/api/jobs"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/api/openapi"
	"workflowagent/internal/server/api/org"
	"workflowagent/internal/server/api/policy"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/state"
	"workflowagent/internal/server/api/system"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
)

// Deps are the services behind the routes.
type Deps struct {
	Log           *logrus.Entry
	Identity      *identity.Service
	Organizations *organizations.Service
	Stacks        *stacks.Service
	Deployments   *deployments.Service
	Evaluations   *evaluations.Service
	Triggers      *triggers.Service
	Pools         *pools.Service
	Drift         *drift.Service
	Usage         *usage.Service
	OIDC          *oidc.Service
	Recovery      *recovery.Service
	Issuer        *issuer.Service
	Webhooks      *webhooks.Service
	Policies      *policies.Service
	Results       *results.Service
	Exceptions    *exceptions.Service
	Forges        *integrations.Service
	Events        *dispatch.Service
	Audit         *audit.Service
	Invitations   *invitations.Service
	Grants        *grants.Service
	Environments  *environments.Service
	Opening       *opening.Service
	Sources       *sources.Service
	// RunnerDir is the directory with the runner binary that agents download.
	RunnerDir string
	Server    system.Server
	// ExternalURL is the server's address for clients, without a trailing slash.
	ExternalURL string
	Console     links.Console
	// Observe is the middleware of [web.Observe], which the console shares; nil creates one.
	Observe func(http.Handler) http.Handler
	Limits  request.Limits
	Mirror  mirror.Server
	// URLNotice warns those who create stacks of the server's URL, or is "".
	URLNotice string
}

// New returns the handler of the API.
func New(d Deps) http.Handler {
	limits := d.Limits.WithDefaults()
	mux := chi.NewRouter()
	if d.Observe == nil {
		d.Observe = web.Observe(d.Log, d.Server.Metrics)
	}
	mux.Use(web.SignAnswers, web.CutStalled(limits.Stall, limits.Rate), d.Observe, web.RecoverPanic, web.StripSlash, web.OlderPaths, request.Bound(limits), request.RefuseNonText, absent.Refuse)
	notFound := func(w http.ResponseWriter, r *http.Request) {
		web.WriteError(w, r, fault.NotFound("%s does not exist on this server", r.URL.Path))
	}
	mux.NotFound(notFound)
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		web.WriteError(w, r, &web.Error{Status: http.StatusMethodNotAllowed, Message: r.Method + " is not supported for this path"})
	})
	rt := web.NewRouter(mux, d.Identity, d.Stacks, d.Environments)
	system.Register(rt, d.Server, d.ExternalURL)
	system.RegisterIssuer(rt, d.Issuer)
	org.Register(rt, d.Identity, d.Pools, d.OIDC, d.Usage, d.Audit, d.Invitations, d.Console)
	accounts.Register(rt, d.Identity)
	state.Register(rt, d.Stacks, d.Identity, d.Environments, d.Policies, d.Results, d.URLNotice)
	deploy.Register(rt, d.Deployments, d.Stacks, d.Triggers, d.Drift, d.Console)
	org.RegisterGrants(rt, d.Grants)
	org.RegisterRestore(rt, d.Recovery)
	org.RegisterOrganizations(rt, d.Identity, d.Organizations)
	hooks.Register(rt, d.Webhooks)
	policy.Register(rt, d.Policies)
	policy.RegisterResults(rt, d.Policies, d.Results)
	policy.RegisterExceptions(rt, d.Exceptions)
	esc.Register(rt, d.Environments, d.Identity)
	esc.RegisterSource(rt, d.Sources)
	forges.Register(rt, d.Forges, d.Events, d.Console)
	jobs.Register(rt, d.Deployments, d.Evaluations, d.RunnerDir, d.ExternalURL)
	jobs.RegisterOpenings(rt, d.Identity, d.Deployments, d.Opening)
	evaluation.Register(rt, d.Evaluations)
	sessions.Register(rt, d.Identity, d.Environments, d.Opening)
	sessions.RegisterProviders(rt)
	openapi.Register(rt)
	mirror.Register(rt, d.Mirror)
	return mux
}
