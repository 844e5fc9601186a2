// Package absent lists the parts of the public API that this server does not offer. Their paths
// answer 404 with a sentence that names what is missing, because clients show that sentence.
// docs/api.md is generated from the list.
package absent

import (
	"net/http"
	"slices"
	"strings"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
)

// Feature is a part of the public API.
type Feature struct {
	// Path is the start of the feature's paths, as in "/api/ai", or "POST /api/ai" if the other
	// methods are offered. Segments in braces match any text.
	Path string
	// What completes "this server does not offer". If empty, the paths are offered, in spite of
	// later features.
	What string
	// Why is the reason, for docs/api.md.
	Why string
}

// Reasons.
const (
	later = "not built yet"
	other = "a separate product"
	cloud = "depends on services of Pulumi Cloud"
	small = "clients work without it"
)

const (
	stack   = web.StackPath
	org     = "/api/orgs/{org}"
	console = "/api/console"

	environments = "/api/esc/environments"
	environment  = web.EnvironmentPath
)

// What is missing at several paths.
const (
	roles         = "custom roles; a member is admin, member, billing-manager or stack-collaborator"
	signInAtHosts = "sign-in at git hosts; integrations have tokens or keys of their own"
	registry      = "a registry of packages, templates and policy packs"
	acceptance    = "this call for invitations; open the link in a browser to accept one"
	approvals     = "approvals of changes and of opening"
	rotation      = "the rotation of secrets in environments"
	mail          = "invitations by e-mail; make a link and pass it on"
)

// features are in order: for each request, the first match decides.
var features = []Feature{
	{org + "/bulk-transfer", "the transfer of all stacks at once; transfer them one by one", small},
	{org + "/invites/batch", mail, small},
	{org + "/invites/unverified", mail, small},
	{"POST " + org + "/invites/link", "", ""},
	{org + "/invites/{inviteID}/resend", mail, small},
	{"GET " + org + "/invites/{inviteID}", acceptance, small},
	{"PATCH " + org + "/invites/{inviteID}", acceptance, small},
	{"POST " + org + "/roles", roles, later},
	{org + "/roles/{roleID}", roles, later},
	{org + "/teams/{team}/roles/{roleID}", roles, later},
	{"POST " + org + "/teams/github", "teams of GitHub; create a team of type pulumi", small},
	{org + "/teams/{team}/enable-team-roles", roles, later},
	{org + "/auditlogs/export/config", "the export of audit logs to a bucket; download them instead", later},
	{org + "/auditlogs/reader-kind", "the choice of a reader of audit logs", small},
	{org + "/saml", "SAML", later},
	{"DELETE /api/user/pending-emails", "the verification of e-mail addresses", small},
	{stack + "/notifications", "notifications by e-mail", small},
	{stack + "/workflow", "starter workflows", small},
	{"PATCH " + stack + "/preview/{update}/journalentries", "journals of previews, which do not change the state", small},
	{stack + "/{kind}/{update}/checkpointdelta", "deltas of checkpoints; send a journal or whole checkpoints", small},
	{stack + "/{kind}/{update}/log", "log entries of updates; send engine events", small},
	{"/api/projects", "secrets of projects", small},
	{"/api/log-encryption-session", "encrypted logs", small},
	{"/api/user/github", "linked accounts", small},
	{"/api/user/gitlab-app", "linked accounts", small},
	{"/api/user/vcs", "linked accounts", small},
	{"PATCH " + environment + "/drafts", approvals, other},
	{environment + "/drafts/{changeRequestID}/status", approvals, other},
	{environment + "/drafts/{changeRequestID}/rebase", approvals, other},
	{environment + "/open/request", approvals, other},
	{environment + "/rotate", rotation, later},
	{environment + "/schedules", rotation, later},
	{environment + "/ownership", "this call for owners of environments; workflow-server user hand-over gives all that a user owns to another user", small},
	{environments + "/{org}/restore", "the restoring of deleted environments; protect them from deletion, and restore a backup", small},
	{environments, "", ""},
	{"/api/esc/rotators", rotation, later},
	{"/api/esc/providers", "", ""},
	{"/api/esc/context", "", ""},
	{"/api/esc", "wizards that set up clouds for environments; docs/environment-providers.md shows the steps", small},
	{"/api/environments", "environments without projects; use a newer version of pulumi", small},
	{"/api/preview/environments", "environments without projects; use a newer version of pulumi", small},
	{org + "/policyresults/violationsv2", "this list of violations; list policy issues", small},
	{org + "/search", "a search of resources", other},
	{org + "/discovered-resources", "Pulumi Insights", other},
	{org + "/insights-scans", "Pulumi Insights", other},
	{"/api/preview/insights/{org}/accounts", "Pulumi Insights", other},
	{"/api/preview/insights/{org}/discovered-stacks", "Pulumi Insights", other},
	{"/api/preview/insights/{org}/import", "Pulumi Insights", other},
	{"/api/preview/insights/{org}/insightstrial", "Pulumi Insights", other},
	{"/api/preview/insights/{org}/stacks", "Pulumi Insights", other},
	{"/api/change-gates", "change approvals", other},
	{"/api/change-requests", "change approvals", other},
	{org + "/template", "templates of an organization; instead, run pulumi new with the URL of a template", other},
	{org + "/templates", "templates of an organization; instead, run pulumi new with the URL of a template", other},
	{"GET /api/registry/templates/{source}", registry, other},
	{"GET /api/registry/packages/{source}", registry, other},
	{"GET /api/registry/templates", "", ""},
	{"GET /api/registry/packages", "", ""},
	{"/api/registry", registry, other},
	{"GET /api/preview/registry/templates/{source}", registry, other},
	{"GET /api/preview/registry/packages/{source}", registry, other},
	{"GET /api/preview/registry/templates", "", ""},
	{"GET /api/preview/registry/packages", "", ""},
	{"/api/preview/registry", registry, other},
	{"/api/preview/console", "this path for settings; the settings of deployments are at /api/stacks/ORG/PROJECT/STACK/deployments/settings", small},
	{"/api/ai", "AI", cloud},
	{"/api/agents", "AI", cloud},
	{"/api/preview/agents", "AI", cloud},
	{console + "/orgs/{org}/integrations/github-app", "", ""},
	{console + "/orgs/{org}/integrations/{provider}/access-status", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/azure-devops/oauth", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/azure-devops/setup", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/github/claim", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/github/claimable", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/github-enterprise/{integration}/user-auth", signInAtHosts, small},
	{console + "/orgs/{org}/integrations/{provider}/{integration}/repos/destinations", "new repositories", small},
	{console + "/orgs/{org}/integrations", "", ""},
	{console + "/stacks/{org}/{project}/{stack}/teams", "", ""},
	{console, "the web console's data", later},
}

// Features returns the features in their order.
func Features() []Feature { return slices.Clone(features) }

// Match returns the absent feature to which a request belongs.
func Match(method, path string) (Feature, bool) {
	for _, f := range features {
		only, pattern, _ := strings.Cut(f.Path, "/")
		if (only == "" || only == method+" ") && starts(path, pattern) {
			return f, f.What != ""
		}
	}
	return Feature{}, false
}

// starts reports whether the first segments of path match those of pattern.
func starts(path, pattern string) bool {
	for pattern != "" {
		var want, got string
		want, pattern, _ = strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
		if path == "" {
			return false
		}
		got, path, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
		if want != got && !strings.HasPrefix(want, "{") {
			return false
		}
	}
	return true
}

// Refuse is middleware that answers requests to absent features.
func Refuse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f, ok := Match(r.Method, r.URL.EscapedPath()); ok {
			web.WriteError(w, r, fault.NotFound("this server does not offer %s", f.What))
			return
		}
		next.ServeHTTP(w, r)
	})
}
