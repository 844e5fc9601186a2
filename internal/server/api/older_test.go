package api_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
)

// olderPath returns the path at which older clients call the settings of a stack's deployments. With an
// "s" it is that of the deployments themselves.
func olderPath(deployments string) string {
	return strings.TrimSuffix(strings.Replace(deployments, "/api/stacks/", "/api/preview/", 1), "s")
}

// TestOlderPaths calls deployments and settings with the paths of older clients.
func TestOlderPaths(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	older := olderPath(l.deployable("dev"))
	l.do("GET", older+"/settings", nil).want(200, nil)
	l.do("POST", older+"/settings", map[string]any{}).want(200, nil)
	id := l.deploy(l.deployable("other"), "update")
	id = strings.Replace(olderPath("/api/stacks/acme/proj/other/deployments"), "deployment", "deployments/"+id, 1)
	l.do("GET", id, nil).want(200, nil)
	l.do("GET", id+"/updates", nil).want(200, nil)
	l.do("GET", id+"/logs?wait=0", nil).want(200, nil)
	l.do("DELETE", older+"/settings", nil).want(200, nil)
	l.do("DELETE", older+"/settings", nil).want(404, nil)
	l.do("GET", "/api/preview/insights/a/accounts/deployments", nil).want(404, nil).says("does not offer")
	l.send(call{Method: "GET", Path: id, Auth: "none"}).want(401, nil)
}

// TestOlderDeployments creates and lists deployments as older clients do: the operation is a member of the
// operation context, the settings of the stack are inherited only on request, and the list is an array
// that begins with the oldest.
func TestOlderDeployments(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	today := l.deployable("dev")
	l.do("POST", today+"/settings", map[string]any{"operationContext": map[string]any{"preRunCommands": []string{"echo theirs"}, "environmentVariables": map[string]any{"THEIRS": "1"}}}).want(200, nil)
	older := olderPath(today) + "s"
	create := func(body string) (id, job string) {
		t.Helper()
		var made struct{ ID string }
		l.do("POST", older, []byte(body)).want(202, &made)
		return made.ID, string(l.do("GET", older+"/"+made.ID, nil).want(200, nil).Body)
	}
	// As the CLI 3.46.0 sends it.
	const source = `"sourceContext":{"git":{"repoURL":"https://git.example/mine.git","branch":"refs/heads/main"}}`
	first, got := create(`{"executorContext":null,` + source + `,"operationContext":{"preRunCommands":["true"],"operation":"preview","environmentVariables":{"A":"1"}}}`)
	for text, want := range map[string]bool{`"pulumiOperation":"preview"`: true, "THEIRS": false, "echo theirs": false, `"inheritSettings":false`: true} {
		if strings.Contains(got, text) != want {
			t.Errorf("the deployment contains %s: %t, want %t: %s", text, !want, want, got)
		}
	}
	second, _ := create(`{` + source + `,"operation":"update"}`)
	third, got := create(`{"operation":"update","InheritSettings":true}`)
	if !strings.Contains(got, `"inheritSettings":true`) {
		t.Errorf("the settings are not inherited: %s", got)
	}
	l.do("POST", older, []byte(`{"operation":"update","operationContext":{"operation":"destroy"},`+source+`}`)).want(400, nil).says("top level")
	l.do("POST", today, []byte(`{"operationContext":{"operation":"update"}}`)).want(400, nil).says("top level")
	for _, body := range []string{"[]", "null", "{", `{"operationContext":[]}`, `{"operationContext":{"operation":7}}`} {
		l.do("POST", older, []byte(body)).want(400, nil)
	}
	list := func(query string, want ...string) {
		t.Helper()
		var all []struct{ ID string }
		if err := json.Unmarshal(l.do("GET", older+query, nil).want(200, nil).Body, &all); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, d := range all {
			ids = append(ids, d.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%q lists %q, want %q", query, ids, want)
		}
	}
	list("", first, second, third)
	list("?asc=false", third, second, first)
	list("?pageSize=1&page=2", second)
}
