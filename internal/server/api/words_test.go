package api_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
)

// Clients match these texts in errors. The CLI prints an error as "[code] message". The Automation
// API matches the CLI's output against these texts in this order, and uses the first match.
var (
	noStackWords       = regexp.MustCompile("no stack named.*found")
	existsWords        = regexp.MustCompile("stack.*already exists")
	concurrentWords    = "[409] Conflict: Another update is currently in progress."
	lockedWords        = "the stack is currently locked by" // of backends without a server
	overLimitWords     = "you are using"                    // matched by the CLI in a 409 response to the creation of a stack
	stillResourcesText = "Bad Request: Stack still contains resources."
)

func (a answer) printed() string {
	a.t.Helper()
	var e struct {
		Code    int
		Message string
	}
	if err := json.Unmarshal(a.Body, &e); err != nil {
		a.t.Fatalf("%s: the body is %s: %v", a.call, a.Body, err)
	}
	return fmt.Sprintf("[%d] %s", e.Code, e.Message)
}

// TestWordsThatClientsMatch pins the texts and statuses of errors on which the CLI, the Automation
// API and the pulumiservice provider depend.
func TestWordsThatClientsMatch(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	busy := l.stack("busy")
	u := l.fixture.start(busy, "update")
	var second struct{ UpdateID string }
	l.do("POST", busy+"/update", program()).want(200, &second)
	for _, c := range []struct{ method, path string }{
		{"POST", busy + "/update/" + second.UpdateID},
		{"POST", busy + "/import"},
		{"DELETE", busy},
		{"DELETE", busy + "?force=true"},
		{"POST", busy + "/rename"},
	} {
		body := any(map[string]any{"newName": "renamed"})
		if strings.HasSuffix(c.path, "/import") {
			body = state(0)
		}
		text := l.do(c.method, c.path, body).want(409, nil).printed()
		if !strings.HasPrefix(text, concurrentWords+" ") || !strings.Contains(text, "started by admin at 20") {
			t.Errorf("%s %s: the message is %q: clients match %q, and users need to know who holds the stack", c.method, c.path, text, concurrentWords)
		}
		if noStackWords.MatchString(text) || existsWords.MatchString(text) || strings.Contains(text, lockedWords) {
			t.Errorf("%s %s: the message is %q, which clients mistake for another error", c.method, c.path, text)
		}
	}
	// The status for a lost lease is 403, because the CLI stops renewing a lease only on that
	// status.
	l.do("POST", u.path+"/cancel", nil).want(204, nil)
	u.send("POST", "/renew_lease", map[string]any{}).want(403, nil)

	exists := l.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "busy"}).want(409, nil).printed()
	if !existsWords.MatchString(exists) || strings.Contains(exists, overLimitWords) {
		t.Errorf("creating a stack twice: the message is %q", exists)
	}
	l.do("POST", busy+"/import", state(1)).want(200, nil)
	if text := l.do("DELETE", busy, nil).want(400, nil).printed(); text != "[400] "+stillResourcesText {
		t.Errorf("removing a stack with resources: the message is %q; clients compare it with %q", text, stillResourcesText)
	}
	// The CLI and the provider use only the status to detect that an object does not exist.
	empty := l.stack("empty")
	for _, path := range []string{
		"/api/stacks/acme/proj/none", empty + "/updates/latest", empty + "/deployments/settings", empty + "/config",
		"/api/orgs/acme/agent-pools/none", "/api/orgs/acme/oidc/issuers/none", empty + "/deployments/none",
	} {
		l.do("GET", path, nil).want(404, nil)
	}
	l.do("DELETE", "/api/stacks/acme/proj/none", nil).want(404, nil)
	// The CLI asks users to log in if and only if it receives status 401.
	l.send(call{Method: "GET", Path: "/api/user", Auth: "token pul-none"}).want(401, nil)
}
