package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// routesByAbility is the table in docs/permissions.md. It lists, for each ability of a job's token,
// the routes below a stack that require the ability.
var routesByAbility = map[identity.Ability][]string{
	identity.StateRead | identity.Outputs | identity.DecryptConfig: {"GET"},
	identity.StateRead | identity.Outputs:                          {"GET /export", "GET /outputs"},
	identity.Decrypt | identity.Outputs | identity.DecryptConfig:   {"POST /decrypt", "POST /batch-decrypt"},
	identity.Decrypt:       {"POST /decrypt/log-decryption", "POST /decrypt/log-batch-decryption"},
	identity.DecryptConfig: {"GET /config"},
	identity.Encrypt:       {"POST /encrypt", "POST /batch-encrypt"},
	identity.StateRead: {
		"GET /export/{version}", "GET /metadata", "GET /policypacks", "GET /policygroups",
		"GET /updates", "GET /updates/latest", "GET /updates/latest/previews", "GET /updates/{version}", "GET /updates/{version}/summary",
		"GET /updates/latest/timeline", "GET /updates/{version}/timeline", "GET /updates/{version}/previews", "GET /previews/{updateID}/summary",
		"GET /annotations/{kind}", "GET /activity", "GET /upstreamreferences", "GET /downstreamreferences",
		"GET /resources/count", "GET /resources/latest", "GET /resources/latest/{urn}", "GET /resources/{version}", "GET /resources/{version}/{urn}",
		"GET /previews/{updateID}", "GET /UPDATE/{updateID}", "GET /UPDATE/{updateID}/events",
		"GET /deployments", "GET /deployments/metadata", "GET /deployments/settings", "GET /deployments/version/{version}",
		"GET /deployments/{deploymentID}", "GET /deployments/{deploymentID}/updates", "GET /deployments/{deploymentID}/logs",
		"GET /deployments/schedules", "GET /deployments/schedules/{scheduleID}", "GET /deployments/schedules/{scheduleID}/history",
		"GET /drift/runs", "GET /drift/runs/{driftRunId}", "GET /drift/status", "GET /vcs/events", "GET /vcs/pulls",
		"GET /collaborators", "GET /teams", "GET /grants", "GET /policyevaluations", "GET /policyevaluations/{id}", "GET /policyevaluations/{id}/logs",
	},
	// The test's update is not a preview, unless the path contains "preview".
	identity.Preview:                  {"POST /preview"},
	identity.Preview | identity.Write: {"POST /begin-update"}, // whose body names the kind
	identity.Write: {
		"POST /update", "POST /refresh", "POST /destroy", "POST /UPDATE/{updateID}", "POST /UPDATE/{updateID}/cancel",
		"POST /import", "PATCH /tags", "POST /tags", "PATCH /tags/{tag}", "DELETE /tags/{tag}", "PATCH /annotations/{kind}",
	},
	identity.DeleteStack: {"DELETE"},
	identity.Manage: {
		"POST /grants", "DELETE /grants/{grantID}", "POST /rename", "POST /ownership", "POST /transfer", "PUT /collaborators/{user}", "DELETE /collaborators/{user}", "PATCH CONSOLE/teams/{team}",
		"GET /hooks", "POST /hooks", "GET /hooks/{hook}", "PATCH /hooks/{hook}", "DELETE /hooks/{hook}", "POST /hooks/{hook}/ping",
		"GET /hooks/{hook}/deliveries", "POST /hooks/{hook}/deliveries/{event}/redeliver",
	},
	identity.Operate: {
		"PUT /config", "DELETE /config", "POST /deployments",
		"POST /deployments/schedules", "POST /deployments/schedules/{scheduleID}", "DELETE /deployments/schedules/{scheduleID}",
		"POST /deployments/schedules/{scheduleID}/pause", "POST /deployments/schedules/{scheduleID}/resume",
		"POST /deployments/drift/schedules", "POST /deployments/drift/schedules/{scheduleID}",
		"POST /deployments/ttl/schedules", "POST /deployments/ttl/schedules/{scheduleID}",
		"PUT /deployments/settings", "POST /deployments/settings", "DELETE /deployments/settings", "POST /deployments/settings/encrypt",
		"POST /deployments/pause", "POST /deployments/resume", "POST /deployments/{deploymentID}/cancel", "POST /deployments/{deploymentID}/again", "DELETE /deployments/cache", "POST /vcs/pulls/{number}/approve",
		"POST /policyevaluations", "POST /policyevaluations/{id}/cancel",
	},
}

// routesWithoutStack lists the other routes by caller. "people" and "every caller" include the
// tokens of all jobs; the others exclude them.
var routesWithoutStack = map[string][]string{
	"every caller": {
		"GET /", "GET /healthz", "GET /oidc/.well-known/openid-configuration", "GET /oidc/.well-known/jwks", "GET /oidc/v2/.well-known/openid-configuration", "GET /oidc/v2/.well-known/jwks", "GET /readyz", "GET /api/capabilities", "GET /api/cli/version", "POST /api/oauth/token",
		"GET /api/openapi/pulumi-spec.json", "GET /schemas/pulumi-workflow-agent.schema.json", "GET /schemas/workflow-server.schema.json",
	},
	"holders of the metrics token": {"GET /metrics"},
	"the server's doctor":          {"GET /workflow/doctor/request", "GET /workflow/doctor/stream", "POST /workflow/doctor/body"},
	"people": {
		"GET /api/user", "GET /api/user/stacks", "GET /api/user/pending-invites", "GET /api/user/pending-emails",
		"GET /api/user/verified-email", "GET /api/user/organizations/default",
		"GET /api/console/orgs/{org}/integrations/github-app",
		"POST /api/esc/environments/{org}/yaml/check", "POST /api/esc/environments/{org}/yaml/open", "GET /api/esc/environments/{org}/yaml/open/{session}",
		"GET /api/esc/providers", "GET /api/esc/providers/{provider}/schema", "GET /api/esc/context/schema",
		"GET /api/registry/templates", "GET /api/registry/packages", "GET /api/preview/registry/templates", "GET /api/preview/registry/packages",
	},
	"users": {
		"GET /api/organizations", "PATCH /api/organizations/{org}/quota", "POST /api/orgs", "DELETE /api/orgs/{org}", "POST /api/orgs/{org}/rename",
		"POST /api/user/organizations/{org}/default",
		"GET /api/server/users", "GET /api/server/users/{user}/owned", "POST /api/server/users/{user}/disable", "POST /api/server/users/{user}/enable",
		"POST /api/server/users/{user}/hand-over", "DELETE /api/server/users/{user}",
		"GET /api/user/tokens", "POST /api/user/tokens", "DELETE /api/user/tokens/{tokenID}",
	},
	"members": {
		"GET /api/orgs/{org}", "GET /api/orgs/{org}/metadata", "GET /api/orgs/{org}/auditlogs", "GET /api/orgs/{org}/auditlogs/export",
		"GET /api/orgs/{org}/auditlogs/v2", "GET /api/orgs/{org}/auditlogs/v2/export", "PATCH /api/orgs/{org}", "GET /api/orgs/{org}/members",
		"POST /api/orgs/{org}/members/{user}", "PATCH /api/orgs/{org}/members/{user}", "DELETE /api/orgs/{org}/members/{user}",
		"POST /api/orgs/{org}/members/{user}/set-admin", "GET /api/orgs/{org}/members/{user}/teams",
		"GET /api/orgs/{org}/teams", "POST /api/orgs/{org}/teams/pulumi",
		"GET /api/orgs/{org}/teams/{team}", "PATCH /api/orgs/{org}/teams/{team}", "DELETE /api/orgs/{org}/teams/{team}",
		"GET /api/orgs/{org}/tokens", "POST /api/orgs/{org}/tokens", "DELETE /api/orgs/{org}/tokens/{tokenID}",
		"GET /api/orgs/{org}/teams/{team}/tokens", "POST /api/orgs/{org}/teams/{team}/tokens", "DELETE /api/orgs/{org}/teams/{team}/tokens/{tokenID}",
		"GET /api/orgs/{org}/roles", "GET /api/orgs/{org}/teams/{team}/roles", "GET /api/orgs/{org}/invites", "POST /api/orgs/{org}/invites/link", "DELETE /api/orgs/{org}/invites/{inviteID}",
		"GET /api/orgs/{org}/agent-pools", "POST /api/orgs/{org}/agent-pools", "GET /api/orgs/{org}/agent-pools/{poolID}",
		"PATCH /api/orgs/{org}/agent-pools/{poolID}", "DELETE /api/orgs/{org}/agent-pools/{poolID}",
		"GET /api/orgs/{org}/agent-pools/{poolID}/tokens", "POST /api/orgs/{org}/agent-pools/{poolID}/tokens",
		"DELETE /api/orgs/{org}/agent-pools/{poolID}/tokens/{tokenID}",
		"GET /api/orgs/{org}/deployments", "GET /api/orgs/{org}/deployments/metadata",
		"GET /api/orgs/{org}/deployments/summary", "GET /api/orgs/{org}/deployments/usagereport", "GET /api/orgs/{org}/resources/summary",
		"POST /api/orgs/{org}/deployments/pause", "POST /api/orgs/{org}/deployments/resume", "GET /api/orgs/{org}/restore", "POST /api/orgs/{org}/restore/release",
		"GET /api/orgs/{org}/hooks", "POST /api/orgs/{org}/hooks", "GET /api/orgs/{org}/hooks/{hook}", "PATCH /api/orgs/{org}/hooks/{hook}",
		"DELETE /api/orgs/{org}/hooks/{hook}", "POST /api/orgs/{org}/hooks/{hook}/ping", "GET /api/orgs/{org}/hooks/{hook}/deliveries",
		"POST /api/orgs/{org}/hooks/{hook}/deliveries/{event}/redeliver",
		"GET /api/orgs/{org}/oidc/issuers", "POST /api/orgs/{org}/oidc/issuers", "GET /api/orgs/{org}/oidc/issuers/{issuerID}",
		"PATCH /api/orgs/{org}/oidc/issuers/{issuerID}", "DELETE /api/orgs/{org}/oidc/issuers/{issuerID}",
		"POST /api/orgs/{org}/oidc/issuers/{issuerID}/regenerate-thumbprints",
		"GET /api/orgs/{org}/auth/policies/oidcissuers/{issuerID}", "PATCH /api/orgs/{org}/auth/policies/{policyID}",
		"HEAD /api/stacks/{org}/{project}", "POST /api/stacks/{org}/{project}",
		"GET /api/orgs/{org}/restore-stack", "POST /api/orgs/{org}/restore-stack/{stackID}", "DELETE /api/orgs/{org}/restore-stack/{stackID}",
		"GET /api/orgs/{org}/policypacks", "POST /api/orgs/{org}/policypacks", "DELETE /api/orgs/{org}/policypacks/{pack}", "GET /api/orgs/{org}/policypacks/{pack}/latest",
		"GET /api/orgs/{org}/policypacks/{pack}/versions/{version}", "DELETE /api/orgs/{org}/policypacks/{pack}/versions/{version}",
		"GET /api/orgs/{org}/policypacks/{pack}/versions/{version}/schema", "POST /api/orgs/{org}/policypacks/{pack}/versions/{version}/complete",
		"GET /api/orgs/{org}/policygroups", "POST /api/orgs/{org}/policygroups", "GET /api/orgs/{org}/policygroups/metadata",
		"GET /api/orgs/{org}/policygroups/{group}", "PATCH /api/orgs/{org}/policygroups/{group}", "DELETE /api/orgs/{org}/policygroups/{group}",
		"GET /api/orgs/{org}/policygroups/{group}/evaluations", "POST /api/orgs/{org}/policygroups/{group}/evaluations",
		"PATCH /api/orgs/{org}/policygroups/{group}/batch", "GET /api/orgs/{org}/policygroups/{group}/stacks", "GET /api/orgs/{org}/policygroups/{group}/accounts",
		"POST /api/orgs/{org}/policyresults/issues", "POST /api/orgs/{org}/policyresults/issues/export", "POST /api/orgs/{org}/policyresults/issues/filters",
		"GET /api/orgs/{org}/policyresults/issues/{issue}", "PATCH /api/orgs/{org}/policyresults/issues/{issue}",
		"POST /api/orgs/{org}/policyresults/compliance", "POST /api/orgs/{org}/policyresults/policies", "GET /api/orgs/{org}/policyresults/metadata",
		"GET /api/orgs/{org}/policy/exceptions", "POST /api/orgs/{org}/policy/exceptions", "POST /api/orgs/{org}/policy/exceptions/drafts",
		"GET /api/esc/environments", "GET /api/esc/environments/{org}", "POST /api/esc/environments/{org}", "GET /api/esc/environments/{org}/tags",
		"GET /api/orgs/{org}/policy/exceptions/{exception}", "DELETE /api/orgs/{org}/policy/exceptions/{exception}",
	},
	"holders of a signed address": {"PUT /api/blobs/policy-packs/{id}", "GET /api/blobs/policy-packs/{id}"},
	"agents": {
		"GET /api/deployments/poll", "GET /api/deployments/{deploymentID}/status", "GET /api/agent-pools/self/load",
		"GET /api/background-activities/token", "POST /api/background-activities/configuration", "POST /api/background-activities/worker/lease/acquire", "POST /api/agent-workflows/deployment", "POST /api/agent-workflows/{workflow}/check",
	},
	"forges, which sign deliveries": {
		"POST /workflow/generic-vcs", "POST /workflow/github", "POST /workflow/github/{id}", "POST /workflow/gitlab/{id}", "POST /workflow/gitea/{id}",
		"POST /workflow/bitbucket/{id}", "POST /workflow/azure-devops/{id}",
	},
	"agents, runners and jobs": {"GET /api/deployments/executor"},
	"runners": {
		"GET /api/workflow/jobs/{jobID}", "POST /api/workflow/jobs/{jobID}/heartbeat", "POST /api/workflow/jobs/{jobID}/oidc-token", "POST /api/workflow/jobs/{jobID}/environments", "GET /api/workflow/jobs/{jobID}/opened-secrets", "POST /api/workflow/jobs/{jobID}/result",
		"PATCH /api/workflow/jobs/{jobID}/{step}/status", "POST /api/workflow/jobs/{jobID}/{step}/logs", "PUT /api/workflow/jobs/{jobID}/{step}/log",
	},
	"the policy evaluation's own token": {"PUT /api/preview/insights/{org}/policy/stacks/{project}/{stack}/updates/{version}/results"},
	"the update's own token": {
		"POST STACK/UPDATE/{updateID}/renew_lease", "POST STACK/UPDATE/{updateID}/events", "POST STACK/UPDATE/{updateID}/events/batch",
		"POST STACK/UPDATE/{updateID}/complete", "PATCH STACK/CHANGE/{updateID}/checkpoint",
		"PATCH STACK/CHANGE/{updateID}/checkpointverbatim", "PATCH STACK/CHANGE/{updateID}/journalentries",
	},
}

func spread(route string) []string {
	route = strings.ReplaceAll(route, "STACK", stackPattern)
	route = strings.ReplaceAll(route, "CONSOLE", "/api/console/stacks/{org}/{project}/{stack}")
	for short, long := range map[string][]string{
		"UPDATE": {"update", "preview", "refresh", "destroy"},
		"CHANGE": {"update", "refresh", "destroy"},
	} {
		if !strings.Contains(route, short) {
			continue
		}
		var out []string
		for _, l := range long {
			out = append(out, strings.ReplaceAll(route, short, l))
		}
		return out
	}
	return []string{route}
}

// integrationRoutes returns the routes of integrations.
func integrationRoutes() []string {
	const base = "/api/console/orgs/{org}/integrations"
	const source = "/api/orgs/{org}/environment-source"
	all := []string{"GET " + source, "PUT " + source, "DELETE " + source, "POST " + source + "/sync", "GET " + base, "POST " + base + "/custom/{integration}/repos", "DELETE " + base + "/custom/{integration}/repos"}
	for _, provider := range []string{"custom", "github", "github-enterprise", "gitlab", "bitbucket", "azure-devops"} {
		of := base + "/" + provider
		one := of + "/{integration}"
		all = append(
			all, "GET "+of, "POST "+of, "GET "+one, "PATCH "+one, "DELETE "+one, "GET "+one+"/repos", "GET "+one+"/repos/{repo}/branches", "GET "+one+"/events",
		)
	}
	return all
}

const stackPattern = "/api/stacks/{org}/{project}/{stack}"

// classified returns the requirement of each route: abilities for a route below a stack, and the
// kind of caller for other routes.
func classified() (abilities map[string]identity.Ability, callers map[string]string) {
	abilities, callers = map[string]identity.Ability{}, map[string]string{}
	for need, routes := range routesByAbility {
		for _, r := range routes {
			method, rest, _ := strings.Cut(r, " ")
			if !strings.HasPrefix(rest, "CONSOLE") {
				rest = "STACK" + rest
			}
			for _, full := range spread(method + " " + rest) {
				abilities[full] = need
			}
		}
	}
	for _, route := range allEnvironmentRoutes() {
		callers[route] = "callers with a permission on the environment"
	}
	for who, routes := range routesWithoutStack {
		if who == "members" {
			routes = append(slices.Clone(routes), integrationRoutes()...)
		}
		for _, r := range routes {
			for _, full := range spread(r) {
				callers[full] = who
			}
		}
	}
	return abilities, callers
}

// TestEveryRouteWithEveryScope calls every route with job tokens for each ability and each
// operation, on the job's own stack and on another. The server must permit exactly the calls in the
// tables above.
func TestEveryRouteWithEveryScope(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.withKey()
	acme := l.tenant("acme", "token "+l.admin)
	l.do("POST", "/api/stacks/acme/proj/dev/update/"+acme.names["updateID"]+"/cancel", nil).want(204, nil)
	l.publish("/api/stacks/acme/proj/dev") // a stack with resources cannot be deleted
	orgID, userID, own := l.ids("dev")
	l.stack("elsewhere")
	_, _, elsewhere := l.ids("elsewhere")
	issue := func(stackID string, scope identity.Scope) string {
		return "token " + l.issue(store.Token{
			Kind: store.JobToken, OrgID: orgID, UserID: userID, StackID: stackID, JobID: "j", DeploymentID: "d", Scope: scope.String(),
		})
	}
	type caller struct {
		who  string
		has  identity.Ability // abilities on the stack in the path
		auth string
	}
	var all []caller
	for bit := identity.StateRead; bit < identity.Operate; bit <<= 1 {
		all = append(all, caller{bit.String(), bit, issue(own, identity.Scope{own: bit})})
	}
	distinct := map[identity.Ability]bool{}
	for _, op := range workflow.Operations() {
		for _, o := range []workflow.Options{{}, {RemediateIfDriftDetected: true, DeleteAfterDestroy: true}} {
			scope := identity.JobScope(own, op, o, true)
			if !distinct[scope[own]] {
				distinct[scope[own]] = true
				all = append(all, caller{fmt.Sprintf("%s %+v", op, o), scope[own] | identity.Outputs, issue(own, scope)})
			}
		}
	}
	all = append(all,
		caller{"no scope", 0, issue(own, identity.Scope{})},
		caller{"all of another stack", 0, issue(elsewhere, identity.Scope{elsewhere: identity.Operate - 1})},
		caller{"of another stack", identity.Outputs, issue(elsewhere, identity.JobScope(elsewhere, workflow.OperationUpdate, workflow.Options{}, true))},
		caller{"of another stack, without a requester", 0, issue(elsewhere, identity.JobScope(elsewhere, workflow.OperationUpdate, workflow.Options{}, false))},
		caller{"of a review stack, whose template is the stack", identity.DecryptConfig, issue(elsewhere, identity.JobScope(elsewhere, workflow.OperationUpdate, workflow.Options{}, false).WithTemplate(own))},
		caller{"all of other stacks", identity.Outputs, issue(elsewhere, identity.Scope{identity.OtherStacks: identity.Operate - 1})},
	)
	abilities, callers := classified()
	seen := map[string]bool{}
	for _, route := range l.routes() {
		seen[route] = true
		need, below := abilities[route]
		who := callers[route]
		if !below && who == "" {
			t.Errorf("%s is missing from the tables of this test: add who may call it", route)
			continue
		}
		method, pattern, _ := strings.Cut(route, " ")
		for i, c := range all {
			if !below && i < len(all)-2 {
				continue // abilities do not apply to these routes
			}
			a := l.send(call{Method: method, Path: acme.path(t, pattern), Body: map[string]any{}, Auth: c.auth})
			allowed := need&c.has != 0
			if !below {
				allowed = slices.Contains([]string{"every caller", "people", "agents, runners and jobs"}, who)
			}
			refused := a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden ||
				a.Status == http.StatusNotFound && (method == http.MethodHead || strings.Contains(string(a.Body), "or you may not see it") || strings.Contains(string(a.Body), "does not exist on this server"))
			if refused == allowed {
				t.Errorf("%s: status %d, body %.150s, for a token with %s; the route needs %q %s", route, a.Status, a.Body, c.who, need, who)
			}
		}
	}
	for _, known := range []map[string]bool{keys(abilities), keys(callers)} {
		for route := range known {
			if !seen[route] {
				t.Errorf("%s is in a table of this test but is not a route", route)
			}
		}
	}
}

func keys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
