package api_test

import (
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
)

// TestOlderPaths calls deployments and settings with the paths of older clients.
func TestOlderPaths(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	today := l.deployable("dev")
	older := strings.TrimSuffix(strings.Replace(today, "/api/stacks/", "/api/preview/", 1), "s")
	l.do("GET", older+"/settings", nil).want(200, nil)
	l.do("POST", older+"/settings", map[string]any{}).want(200, nil)
	id := l.deploy(older+"s", "update")
	l.do("GET", older+"s/"+id, nil).want(200, nil)
	l.do("GET", older+"s/"+id+"/updates", nil).want(200, nil)
	l.do("GET", older+"s/"+id+"/logs?wait=0", nil).want(200, nil)
	l.do("DELETE", older+"/settings", nil).want(200, nil)
	l.do("DELETE", older+"/settings", nil).want(404, nil)
	l.do("GET", "/api/preview/insights/a/b/deployments", nil).want(404, nil).says("does not offer")
	l.send(call{Method: "GET", Path: older + "s/" + id, Auth: "none"}).want(401, nil)
}
