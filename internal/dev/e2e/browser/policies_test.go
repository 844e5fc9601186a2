package browser

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
)

const policedURN = "urn:pulumi:policed::box::pkg:index:Thing::a-thing-with-a-long-name-that-violates-a-policy"

// pack publishes a policy pack with hostile texts, lets the default group require it, and returns its name.
func (w *world) pack(t *testing.T) string {
	t.Helper()
	org := "/api/orgs/" + w.org
	schema := map[string]any{"type": "object", "properties": map[string]any{"enforcementLevel": map[string]any{"type": "string"}, "max": map[string]any{"type": "integer"}}}
	draft := map[string]any{
		"name": "lab", "displayName": hostile, "versionTag": "1.0.0", "runtime": "test", "description": hostile, "readme": strings.Repeat(hostile+"\n", 5),
		"policies": []any{map[string]any{"name": "no-public", "displayName": hostile, "description": strings.Repeat("long ", 40), "enforcementLevel": "mandatory", "severity": "high", "configSchema": schema}},
	}
	var made struct{ UploadURI string }
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, org+"/policypacks", draft, &made))
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, made.UploadURI, strings.NewReader("archive")))(t)
	res, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	must.OK(t, res.Body.Close())
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, org+"/policypacks/lab/versions/1.0.0/complete", nil, nil))
	must.OK(t, w.Server.Call(t.Context(), http.MethodPatch, org+"/policygroups/default-policy-group", map[string]any{"addPolicyPack": map[string]any{"name": "lab"}}, nil))
	return "lab"
}

// issue runs an update of a stack that violates the pack, and returns the id of the issue.
func (w *world) issue(t *testing.T) string {
	t.Helper()
	s := consoletest.At(t, w.Server.URL, w.Server.Token)
	call := func(token, method, path string, in, out any) {
		t.Helper()
		if status, body := s.APIAs(token, method, path, in, out); status >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: status %d: %s", method, path, status, body)
		}
	}
	path := "/api/stacks/" + w.org + "/box"
	call(s.Token, http.MethodPost, path, map[string]string{"stackName": "policed"}, nil)
	var update struct{ UpdateID string }
	call(s.Token, http.MethodPost, path+"/policed/update", map[string]any{"name": "box", "runtime": "yaml"}, &update)
	path += "/policed/update/" + update.UpdateID
	var started struct{ Token string }
	call(s.Token, http.MethodPost, path, map[string]any{}, &started)
	token := "update-token " + started.Token
	events := []map[string]any{
		{"sequence": 0, "timestamp": 1764000000, "policyEvent": map[string]any{
			"resourceUrn": policedURN, "message": strings.Repeat(hostile+" ", 5), "policyName": "no-public", "policyPackName": "lab", "policyPackVersion": "1.0.0", "policyPackVersionTag": "1.0.0", "enforcementLevel": "mandatory",
		}},
		{"sequence": 1, "timestamp": 1764000001, "summaryEvent": map[string]any{"resourceChanges": map[string]any{"create": 1}, "PolicyPacks": map[string]string{"lab": "1.0.0"}}},
	}
	call(token, http.MethodPost, path+"/events/batch", map[string]any{"events": events}, nil)
	call(token, http.MethodPost, path+"/complete", map[string]any{"status": "succeeded"}, nil)
	var found struct{ PolicyIssues []struct{ ID string } }
	body := must.Get(json.Marshal(map[string]any{}))(t)
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, "/api/orgs/"+w.org+"/policyresults/issues", json.RawMessage(body), &found))
	if len(found.PolicyIssues) == 0 {
		t.Fatal("the update has left no issue")
	}
	return found.PolicyIssues[0].ID
}

// exception gives an exception for a whole stack, and returns its name.
func (w *world) exception(t *testing.T) string {
	t.Helper()
	var made struct{ ID string }
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, "/api/orgs/"+w.org+"/policy/exceptions", map[string]any{
		"policyPack": "lab", "match": []any{map[string]any{"policies": []string{"no-public"}, "targets": []string{policedURN}}}, "reason": hostile, "wholeStack": true,
	}, &made))
	return made.ID
}

// evaluation lets an audit group evaluate a stack, as the path of its pages, and returns the path of the evaluation.
func (w *world) evaluation(t *testing.T, stack string) string {
	t.Helper()
	part := strings.Split(stack, "/")
	groups := "/api/orgs/" + w.org + "/policygroups"
	must.OK(t, w.Server.Call(t.Context(), http.MethodPost, groups, map[string]any{"name": "audit", "mode": "audit"}, nil))
	must.OK(t, w.Server.Call(t.Context(), http.MethodPatch, groups+"/audit", map[string]any{
		"addStack": map[string]any{"routingProject": part[2], "name": part[3]}, "addPolicyPack": map[string]any{"name": "lab"},
	}, nil))
	var list struct{ Evaluations []struct{ ID string } }
	must.OK(t, w.Server.Call(t.Context(), http.MethodGet, groups+"/audit/evaluations", nil, &list))
	if len(list.Evaluations) == 0 {
		t.Fatalf("no evaluation of %s was queued", stack)
	}
	return stack + "/evaluations/" + list.Evaluations[0].ID
}
