// Package console serves the pages of the server for browsers. Its packages contain one family of
// pages each, and register their routes on a [page.Site].
package console

import (
	"context"
	"net/http"
	"strings"

	changelog "workflowagent/internal/server/activity"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/console/account"
	"workflowagent/internal/server/console/activity"
	"workflowagent/internal/server/console/agents"
	"workflowagent/internal/server/console/auditlog"
	"workflowagent/internal/server/console/definition"
	"workflowagent/internal/server/console/deploy"
	"workflowagent/internal/server/console/deployment"
	"workflowagent/internal/server/console/drift"
	environmentpages "workflowagent/internal/server/console/environments"
	"workflowagent/internal/server/console/estate"
	"workflowagent/internal/server/console/forges"
	"workflowagent/internal/server/console/githubapp"
	"workflowagent/internal/server/console/home"
	"workflowagent/internal/server/console/joblog"
	"workflowagent/internal/server/console/orgs"
	"workflowagent/internal/server/console/orgsettings"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/palette"
	policypages "workflowagent/internal/server/console/policies"
	"workflowagent/internal/server/console/resources"
	"workflowagent/internal/server/console/restore"
	"workflowagent/internal/server/console/runs"
	"workflowagent/internal/server/console/schedules"
	"workflowagent/internal/server/console/stack"
	"workflowagent/internal/server/console/stacksettings"
	"workflowagent/internal/server/console/update"
	"workflowagent/internal/server/console/users"
	"workflowagent/internal/server/console/versions"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/deployments"
	detection "workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/environments"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/server/identity/signin/passkey"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/search"
	"workflowagent/internal/server/stacks"
	stacklist "workflowagent/internal/server/stacks/estate"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
)

// Deps are the services behind the pages.
type Deps struct {
	Site          page.Options
	Identity      *identity.Service
	Organizations *organizations.Service
	SignIn        *signin.Service
	Invitations   *invitations.Service
	Grants        *grants.Service
	Providers     *openid.Service
	Passkeys      *passkey.Service
	Stacks        *stacks.Service
	Estate        *stacklist.Service
	Search        *search.Service
	Deployments   *deployments.Service
	Pools         *pools.Service
	Drift         *detection.Service
	Triggers      *triggers.Service
	Policies      *policies.Service
	Audit         *audit.Service
	Activity      *changelog.Service
	Webhooks      *webhooks.Service
	OIDC          *oidc.Service
	Recovery      *recovery.Service
	Results       *results.Service
	Exceptions    *exceptions.Service
	Evaluations   *evaluations.Service
	Environments  *environments.Service
	Opening       *opening.Service
	// Integrations and Events deploy what the organization's git hosts report.
	Integrations *integrations.Service
	Events       *dispatch.Service
	// Issuer is the URL of the server's identity tokens for clouds.
	Issuer string
	// APIURL is the server's address for clients, without a trailing slash.
	APIURL string
	// URLNotice warns those who create stacks of the server's URL, or is "".
	URLNotice string
	// Server describes the server to its administrators.
	Server agents.Server
	// Releases is the directory of the mirror of the agent's releases that the server serves, or "".
	Releases string
}

// New returns the console with all pages.
func New(d Deps) *page.Site {
	site := page.New(d.Site)
	account.Register(site, account.Deps{Identity: d.Identity, SignIn: d.SignIn, Invitations: d.Invitations, Providers: d.Providers, Passkeys: d.Passkeys, APIURL: d.APIURL})
	heads := stack.Heads{Estate: d.Estate, Deployments: d.Deployments, Pools: d.Pools}
	stack.Register(site, stack.Deps{Stacks: d.Stacks, Triggers: d.Triggers, Recovery: d.Recovery, Results: d.Results, Exceptions: d.Exceptions, Heads: heads})
	drift.Register(site, drift.Deps{Heads: heads, Drift: d.Drift, Deployments: d.Deployments, Stacks: d.Stacks, Triggers: d.Triggers})
	update.Register(site, update.Deps{Stacks: d.Stacks, Deployments: d.Deployments, Results: d.Results})
	versions.Register(site, versions.Deps{Heads: heads, Stacks: d.Stacks})
	resources.Register(site, resources.Deps{Heads: heads, Stacks: d.Stacks})
	estate.Register(site, estate.Deps{Estate: d.Estate, Stacks: d.Stacks, Deployments: d.Deployments, APIURL: d.APIURL})
	deployment.Register(site, deployment.Deps{Deployments: d.Deployments, Stacks: d.Stacks, Results: d.Results, Pools: d.Pools, URL: d.APIURL})
	deploy.Register(site, deploy.Deps{Deployments: d.Deployments, Stacks: d.Stacks, Pools: d.Pools, Estate: d.Estate, Drift: d.Drift})
	joblog.Register(site, joblog.Deps{Deployments: d.Deployments, Evaluations: d.Evaluations})
	stacksettings.Register(site, stacksettings.Deps{
		Heads: heads, Identity: d.Identity, Stacks: d.Stacks, Grants: d.Grants, Environments: d.Environments, Triggers: d.Triggers, Webhooks: d.Webhooks, Integrations: d.Integrations, Events: d.Events, Issuer: d.Issuer,
	})
	runs.Register(site, runs.Deps{Heads: heads, URL: d.APIURL})
	agents.Register(site, agents.Deps{Deployments: d.Deployments, Pools: d.Pools, Server: d.Server, URL: d.APIURL, Releases: d.Releases})
	policypages.Register(site, policypages.Deps{
		Identity: d.Identity, Policies: d.Policies, Results: d.Results, Exceptions: d.Exceptions, Evaluations: d.Evaluations, Stacks: d.Stacks, Estate: d.Estate, Pools: d.Pools,
	})
	environmentHeads := environmentpages.Heads{Environments: d.Environments}
	environmentpages.Register(site, environmentpages.Deps{Heads: environmentHeads, Identity: d.Identity, Grants: d.Grants})
	definition.Register(site, definition.Deps{Heads: environmentHeads, Opening: d.Opening, Stacks: d.Stacks})
	palette.Register(site, palette.Deps{Stacks: d.Stacks, Pools: d.Pools, Deployments: d.Deployments, Search: d.Search, Environments: d.Environments})
	home.Register(site, home.Deps{
		Deployments: d.Deployments, Pools: d.Pools, Stacks: d.Stacks, Estate: d.Estate, Triggers: d.Triggers, Invitations: d.Invitations, URL: d.APIURL, Console: links.Console(d.Site.URL), URLNotice: d.URLNotice, Releases: d.Releases,
	})
	whole := orgs.Deps{Identity: d.Identity, Organizations: d.Organizations, Waiting: waiting(d.Recovery)}
	orgs.RegisterServer(site, whole)
	orgsettings.Register(site, orgsettings.Deps{
		Whole:       whole,
		Deployments: d.Deployments, Identity: d.Identity, Invitations: d.Invitations, OIDC: d.OIDC, Pools: d.Pools, Webhooks: d.Webhooks,
		APIURL: d.APIURL, Console: links.Console(d.Site.URL), Provider: d.Providers.Name,
		Forges: forges.Deps{Integrations: d.Integrations, Events: d.Events, Pools: d.Pools},
	})
	githubapp.Register(site, githubapp.Deps{Integrations: d.Integrations, APIURL: d.APIURL})
	schedules.Register(site, d.Triggers)
	activity.Register(site, activity.Deps{Activity: d.Activity})
	auditlog.Register(site, auditlog.Deps{Audit: d.Audit})
	restore.Register(site, restore.Deps{Recovery: d.Recovery, Tokens: pools.Revoker{Identity: d.Identity, Pools: d.Pools}})
	users.Register(site, users.Deps{Identity: d.Identity, SignIn: d.SignIn})
	return site
}

// Stars returns a function that returns the stacks which a user has marked, for the navigation.
func Stars(list *stacklist.Service) func(ctx context.Context, who identity.Principal, org store.Organization) ([]view.StarLink, error) {
	return func(ctx context.Context, who identity.Principal, org store.Organization) ([]view.StarLink, error) {
		found, err := list.Starred(ctx, who, org.ID)
		var links []view.StarLink
		for _, s := range found {
			links = append(links, estate.StarLink(org.Name, s))
		}
		return links, err
	}
}

// waiting returns a function that counts the organizations that wait for their release after a restore.
func waiting(r *recovery.Service) func(v *page.Visit) (int, error) {
	return func(v *page.Visit) (int, error) {
		restored, err := r.Read(v.Context())
		if err != nil || restored == nil {
			return 0, err
		}
		return len(restored.Waiting()), nil
	}
}

// Split returns a handler that sends requests to the API or to the console by their path.
func Split(api, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Serves(r.URL.Path) {
			pages.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// Serves reports whether the console serves a path. The API serves the others.
func Serves(path string) bool {
	switch firstSegment(path) {
	case "api", "healthz", "readyz", "metrics", "releases", "oidc", ".well-known", "workflow":
		return false
	case "schemas": // can also be the name of an organization
		return !strings.HasSuffix(path, ".schema.json")
	default:
		return true
	}
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimLeft(path, "/"), "/")
	return first
}
