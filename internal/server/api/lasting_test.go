package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
)

// endsWithTheToken lists the routes that write and that an exchanged token may call, by the reason why
// nothing of them keeps acting after the token has ended. All other routes that write are refused.
var endsWithTheToken = map[string][]string{
	"state, which does nothing by itself": {
		"POST /api/stacks/{org}/{project}", "DELETE STACK", "POST STACK/rename", "POST STACK/import", "PUT STACK/config", "DELETE STACK/config",
		"PATCH STACK/tags", "POST STACK/tags", "PATCH STACK/tags/{tag}", "DELETE STACK/tags/{tag}", "PATCH STACK/annotations/{kind}",
		"DELETE /api/orgs/{org}/restore-stack/{stackID}",
	},
	"a policy pack, which has no effect until a policy group enables it": {
		"POST /api/orgs/{org}/policypacks", "POST /api/orgs/{org}/policypacks/{pack}/versions/{version}/complete",
	},
	"values, which do nothing by themselves": {
		"POST /api/esc/environments/{org}", "PATCH ENV", "DELETE ENV", "PATCH ENV/settings", "POST ENV/clone", "POST ENV/tags", "PATCH ENV/tags/{tag}", "DELETE ENV/tags/{tag}",
		"POST ENV/versions/tags", "PATCH ENV/versions/tags/{tag}", "DELETE ENV/versions/tags/{tag}", "POST ENV/versions/{version}/retract",
	},
	"a session or a draft, which ends with the token": {
		"POST ENV/drafts", "POST ENV/drafts/{draft}/open",
		"POST ENV/open", "POST ENV/versions/{version}/open", "POST /api/esc/environments/{org}/yaml/open",
	},
	"the status of a policy issue, which permits nothing": {"PATCH /api/orgs/{org}/policyresults/issues/{issue}"},
	"an evaluation of a state, which changes nothing": {
		"POST STACK/policyevaluations", "POST STACK/policyevaluations/{id}/cancel", "POST /api/orgs/{org}/policygroups/{group}/evaluations",
	},
	"a stack whose settings others have made, and whose schedules are paused": {"POST /api/orgs/{org}/restore-stack/{stackID}"},
	"an update of the caller's own program, with a lease":                     {"POST STACK/begin-update", "POST STACK/UPDATE", "POST STACK/UPDATE/{updateID}", "POST STACK/UPDATE/{updateID}/cancel"},
	"a deployment, which starts at once or in its turn": {
		"POST STACK/deployments", "POST STACK/deployments/{deploymentID}/cancel", "POST STACK/deployments/{deploymentID}/again",
	},
	"an end or a pause of what acts": {
		"DELETE STACK/deployments/cache",
		"DELETE STACK/deployments/schedules/{scheduleID}", "POST STACK/deployments/schedules/{scheduleID}/pause", "DELETE STACK/deployments/settings",
		"POST STACK/deployments/pause", "POST STACK/deployments/resume", "POST /api/orgs/{org}/deployments/pause", "POST /api/orgs/{org}/deployments/resume",
	},
	"nothing is stored": {
		"POST ENV/check", "POST ENV/versions/{version}/check", "POST ENV/encrypt-secrets", "POST ENV/decrypt-secrets", "POST /api/esc/environments/{org}/yaml/check",
		"POST STACK/encrypt", "POST STACK/batch-encrypt", "POST STACK/decrypt", "POST STACK/batch-decrypt", "POST STACK/decrypt/log-decryption",
		"POST STACK/decrypt/log-batch-decryption", "POST STACK/deployments/settings/encrypt",
		"POST /api/orgs/{org}/policyresults/issues", "POST /api/orgs/{org}/policyresults/issues/export", "POST /api/orgs/{org}/policyresults/issues/filters",
		"POST /api/orgs/{org}/policyresults/compliance", "POST /api/orgs/{org}/policyresults/policies", "POST /api/orgs/{org}/policy/exceptions/drafts",
	},
}

// TestNothingOutlivesAnExchangedToken calls every route that writes with tokens that were obtained in
// exchange for identity tokens of administrators. What keeps acting after the token has ended, such as
// a schedule, must be refused. A new route must be refused, or be in the list above with its reason.
func TestNothingOutlivesAnExchangedToken(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.withKey()
	acme := l.tenant("acme", "token "+l.admin)
	l.do("PATCH", "/api/esc/environments/acme/proj/env/settings", map[string]any{"deletionProtected": true}).want(200, nil) // so that it stays
	org, user, _ := l.ids("dev")
	soon := time.Now().Add(time.Hour)
	exchanged := map[string]string{
		"organization": l.issue(store.Token{Kind: store.OrgToken, OrgID: org, Name: "oidc:issuer", Admin: true, IssuerID: "issuer", ExpiresAt: soon}),
		"personal":     l.issue(store.Token{Kind: store.PersonalToken, OrgID: org, UserID: user, IssuerID: "issuer", ExpiresAt: soon}),
	}
	passes := map[string]bool{}
	for _, routes := range endsWithTheToken {
		for _, route := range routes {
			for _, full := range spread(strings.Replace(route, "ENV", environmentPattern, 1)) {
				passes[full] = true
			}
		}
	}
	abilities, callers := classified()
	known := map[string]bool{}
	for _, route := range l.routes() {
		method, pattern, _ := strings.Cut(route, " ")
		_, below := abilities[route]
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method) ||
			!below && !slices.Contains([]string{"people", "users", "members", "callers with a permission on the environment"}, callers[route]) {
			continue
		}
		known[route] = true
		for kind, token := range exchanged {
			a := l.send(call{Method: method, Path: acme.path(t, pattern), Body: map[string]any{}, Auth: "token " + token})
			refused := a.Status == http.StatusForbidden && !strings.Contains(string(a.Body), "only administrators")
			if refused == passes[route] {
				t.Errorf("%s: status %d, body %.150s, for an exchanged %s token; in the list of what ends with the token: %t", route, a.Status, a.Body, kind, passes[route])
			}
		}
	}
	for route := range passes {
		if !known[route] {
			t.Errorf("%s is in the list of this test but is not a route that writes", route)
		}
	}
	// The issuer's owner must not see the user's own tokens.
	l.send(call{Method: "GET", Path: "/api/user/tokens", Auth: "token " + exchanged["personal"]}).want(403, nil)
	lasting := "token " + l.issue(store.Token{Kind: store.OrgToken, OrgID: org, Name: "robot", Admin: true})
	l.send(call{Method: "POST", Path: "/api/orgs/acme/agent-pools", Body: map[string]any{"name": "y"}, Auth: lasting}).want(200, nil)
}
