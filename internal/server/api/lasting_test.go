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

// shortLived are the routes that change an organization but accept expiring tokens, because the
// changes create no credentials and grant no access.
var shortLived = []string{
	"POST /api/orgs/{org}/deployments/pause",
	"POST /api/orgs/{org}/deployments/resume",
}

// TestExchangedTokensGrantNothingThatLasts uses exchanged tokens of administrators to call every
// route that changes an organization or an account. The server must reject all calls, except those
// to shortLived.
func TestExchangedTokensGrantNothingThatLasts(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	acme := l.tenant("acme", "token "+l.admin)
	org, user, _ := l.ids("dev")
	soon := time.Now().Add(time.Hour)
	exchanged := map[string]string{
		"organization": l.issue(store.Token{Kind: store.OrgToken, OrgID: org, Name: "oidc:issuer", Admin: true, IssuerID: "issuer", ExpiresAt: soon}),
		"personal":     l.issue(store.Token{Kind: store.PersonalToken, OrgID: org, UserID: user, IssuerID: "issuer", ExpiresAt: soon}),
	}
	tried := 0
	for _, route := range l.routes() {
		method, pattern, _ := strings.Cut(route, " ")
		changes := method != http.MethodGet && method != http.MethodHead
		below := strings.HasPrefix(pattern, "/api/orgs/{org}") || strings.HasPrefix(pattern, "/api/user")
		if !changes || !below || slices.Contains(shortLived, route) {
			continue
		}
		for kind, token := range exchanged {
			a := l.send(call{Method: method, Path: acme.path(t, pattern), Body: map[string]any{"name": "x"}, Auth: "token " + token})
			if tried++; a.Status != http.StatusForbidden {
				t.Errorf("%s: status %d, body %s, for an exchanged %s token, want 403", route, a.Status, a.Body, kind)
			}
		}
	}
	if tried < 30 {
		t.Errorf("the test made only %d calls", tried)
	}
	for kind, token := range exchanged {
		l.send(call{Method: "POST", Path: "/api/orgs/acme/deployments/resume", Auth: "token " + token}).want(200, nil)
		if kind == "personal" {
			// The issuer's owner must not see the user's own tokens.
			l.send(call{Method: "GET", Path: "/api/user/tokens", Auth: "token " + token}).want(403, nil)
			continue
		}
		lasting := "token " + l.issue(store.Token{Kind: store.OrgToken, OrgID: org, Name: "robot", Admin: true})
		l.send(call{Method: "POST", Path: "/api/orgs/acme/agent-pools", Body: map[string]any{"name": "y"}, Auth: lasting}).want(200, nil)
	}
}
