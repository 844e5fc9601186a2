package api_test

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// TestReportOfAnEvaluation claims an evaluation as an agent does, and reports its results with the job's token: once, and
// only for the version and claim that it evaluates.
func TestReportOfAnEvaluation(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	stack, other := l.stack("dev"), l.stack("other")
	secret, _ := l.publish(stack)
	err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		if err := tx.InsertPolicyGroup(store.PolicyGroup{ID: "g", OrgID: o.ID, Name: "audits", EntityType: policies.Stacks, Mode: policies.Audit, AllStacks: true, PoolID: l.pool}); err != nil {
			return err
		}
		if err := tx.InsertPolicyPack(store.PolicyPack{ID: "k", OrgID: o.ID, Name: "lab"}); err != nil {
			return err
		}
		v := store.PolicyPackVersion{ID: "v", PackID: "k", Number: 1, Tag: "1.0.0", Status: store.PackComplete, Blob: "policy-packs/v", SHA256: "ab"}
		if err := tx.InsertPackVersion(v); err != nil {
			return err
		}
		return tx.SaveEnabledPack(store.EnabledPack{GroupID: "g", PackID: "k", VersionID: "v"})
	})
	if err != nil {
		t.Fatal(err)
	}
	l.do("POST", stack+"/policyevaluations", map[string]any{}).want(200, nil).says(`"queued":1`)
	poll := l.request("vm", 0)
	poll.Types = []workflow.Type{workflow.TypePolicyEvaluation}
	res, err := l.client.Poll(t.Context(), l.poolToken, poll)
	if err != nil || res.Job == nil {
		t.Fatalf("the poll got %+v, %v", res, err)
	}
	jc := l.client.Job(res.Job.JobID, res.Job.JobToken)
	if _, err := jc.Heartbeat(t.Context(), protocol.PhaseStarting); err != nil {
		t.Fatal(err)
	}
	def, err := jc.Definition(t.Context())
	if err != nil || def.PolicyEvaluation == nil {
		t.Fatalf("the definition is %+v, %v", def, err)
	}
	e := def.PolicyEvaluation
	path := "/api/preview/insights/acme/policy/stacks/proj/dev/updates/"
	report := workflow.PolicyReport{ClaimID: e.ClaimID, Results: workflow.PolicyResults{Succeeded: true, Violations: []workflow.PolicyViolation{}}}
	put := func(version, auth string, r workflow.PolicyReport) answer {
		t.Helper()
		return l.send(call{Method: http.MethodPut, Path: path + version, Body: r, Auth: "token " + auth})
	}
	put("1/results", e.AccessToken, workflow.PolicyReport{ClaimID: "another"}).want(409, nil)
	put("2/results", e.AccessToken, report).want(409, nil)
	put("1/results", l.admin, report).want(403, nil)
	_, deployment, _ := strings.Cut(l.job(other, "preview", ""), " ") // whose client claims to have evaluated
	put("1/results", deployment, report).want(404, nil)

	// A pack that has got the token reads the states of this stack, with ciphertexts, and nothing else.
	as := func(method, path string, body any) answer {
		t.Helper()
		return l.send(call{Method: method, Path: path, Body: body, Auth: "token " + e.AccessToken})
	}
	if body := string(as("GET", stack+"/export/1", nil).want(200, nil).Body); !strings.Contains(body, secret) || strings.Contains(body, "published") {
		t.Errorf("the job reads the state %s", body)
	}
	if list := string(as("GET", "/api/user/stacks?organization=acme", nil).want(200, nil).Body); !strings.Contains(list, `"dev"`) || strings.Contains(list, `"other"`) {
		t.Errorf("the job lists %s", list)
	}
	for _, try := range []struct {
		method, path string
		body         any
	}{
		{"POST", stack + "/decrypt", map[string]string{"ciphertext": secret}},
		{"POST", stack + "/batch-decrypt", map[string]any{"ciphertexts": []string{secret}}},
		{"POST", stack + "/encrypt", map[string][]byte{"plaintext": {1}}},
		{"POST", stack + "/import", state(0)},
		{"POST", stack + "/update", program()},
		{"POST", stack + "/preview", program()},
		{"POST", stack + "/deployments", map[string]any{"operation": "preview"}},
		{"POST", stack + "/policyevaluations", map[string]any{}},
		{"DELETE", stack, nil},
		{"GET", other, nil},
		{"GET", other + "/export", nil},
		{"GET", packsPath, nil},
		{"GET", groupsPath, nil},
		{"GET", "/api/orgs/acme/policy/exceptions", nil},
		{"GET", "/api/orgs/acme/members", nil},
		{"GET", "/api/orgs/acme/agent-pools", nil},
	} {
		if a := as(try.method, try.path, try.body); a.Status != 401 && a.Status != 403 && a.Status != 404 {
			t.Errorf("%s %s with the token of an evaluation: status %d: %s", try.method, try.path, a.Status, a.Body)
		}
	}
	put("1/results", e.AccessToken, report).want(204, nil)
	put("1/results", e.AccessToken, report).want(204, nil)
}
