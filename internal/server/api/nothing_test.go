package api_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
)

// TestChangesOfNothingAreNotFound sends all DELETE and PATCH requests with a name that no object has,
// for each part of the path in turn, and then each DELETE request until there is nothing left to
// delete. An answer of 2xx would confirm a change that did not happen, such as one with a misspelt
// name.
func TestChangesOfNothingAreNotFound(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	n := l.tenant("acme", "token "+l.admin)
	bodies := map[string]any{
		"/api/stacks/{org}/{project}/{stack}/annotations/{kind}":          map[string]any{"version": 1, "annotations": map[string]any{}},
		"/api/orgs/{org}/members/{user}":                                  map[string]any{"role": "member"},
		"/api/console/stacks/{org}/{project}/{stack}/teams/{team}":        map[string]any{"permissions": 0},
		"/api/orgs/{org}/teams/{team}":                                    map[string]any{"displayName": "x"},
		"/api/stacks/{org}/{project}/{stack}/tags/{tag}":                  map[string]any{"value": "x"},
		"/api/orgs/{org}/agent-pools/{poolID}":                            map[string]any{"description": "x"},
		"/api/orgs/{org}/oidc/issuers/{issuerID}":                         map[string]any{"name": "x"},
		"/api/orgs/{org}/auth/policies/{policyID}":                        map[string]any{"policies": []any{}},
		"/api/deployments/{jobID}/steps/{step}/status":                    map[string]any{"status": "running"},
		"/api/console/orgs/{org}/integrations/custom/{integration}/repos": nil,
	}
	tried := 0
	for _, methodRoute := range l.routes() {
		method, route, _ := strings.Cut(methodRoute, " ")
		if method != http.MethodDelete && method != http.MethodPatch {
			continue
		}
		var parameters []string
		for segment := range strings.SplitSeq(route, "/") {
			if strings.HasPrefix(segment, "{") {
				parameters = append(parameters, strings.Trim(segment, "{}"))
			}
		}
		try := func(path string) {
			t.Helper()
			body, known := bodies[route]
			if !known {
				body = map[string]any{}
			}
			for _, auth := range authorizations(n, route) {
				tried++
				if a := l.send(call{Method: method, Path: path, Body: body, Auth: auth}); a.Status < 300 {
					t.Errorf("%s %s: status %d, body %.200s", method, path, a.Status, a.Body)
				}
			}
		}
		for _, p := range parameters {
			unknown := tenant{names: maps.Clone(n.names)}
			unknown.names[p] = "unknown"
			if p == "kind" && strings.HasSuffix(route, "/annotations/{kind}") || p == "version" || p == "step" {
				continue // a kind of annotation exists as soon as it is set
			}
			try(unknown.path(t, route))
		}
	}
	if tried < 60 {
		t.Errorf("the test sent only %d requests", tried)
	}

	// Objects without a name.
	stack := l.stack("empty")
	for _, path := range []string{stack + "/deployments/settings", stack + "/config"} {
		if a := l.do("DELETE", path, nil); a.Status != http.StatusNotFound {
			t.Errorf("DELETE %s: status %d, body %.200s", path, a.Status, a.Body)
		}
	}
}
