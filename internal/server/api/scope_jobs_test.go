package api_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

// secretSig marks a secret in a state, as pulumi writes it.
const secretSig = `"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270"`

// publish sets a stack's state to a state with a plain output, a secret output, and a resource with
// another secret. It returns the two ciphertexts.
func (f *fixture) publish(stack string) (output, hidden string) {
	f.t.Helper()
	encrypt := func(text string) string {
		var out struct{ Ciphertext string }
		f.do("POST", stack+"/encrypt", map[string][]byte{"plaintext": []byte(text)}).want(200, &out)
		return out.Ciphertext
	}
	output, hidden = encrypt(`"published"`), encrypt(`"hidden"`)
	f.do("POST", stack+"/import", []byte(`{"version":3,"deployment":{
		"manifest":{"time":"2026-01-01T00:00:00Z","magic":"m","version":"v3"},
		"secrets_providers":{"type":"service","state":{"url":"http://server.test"}},
		"resources":[
			{"urn":"urn:pulumi:x::proj::pulumi:pulumi:Stack::proj-x","custom":false,"type":"pulumi:pulumi:Stack",
			 "outputs":{"word":"hello","nested":[{"secret":{`+secretSig+`,"ciphertext":"`+output+`"}}]},
			 "sourcePosition":"project:///main.go#1"},
			{"urn":"urn:pulumi:x::proj::lab:index:Random::r","custom":true,"type":"lab:index:Random","id":"innerID",
			 "parent":"urn:pulumi:x::proj::pulumi:pulumi:Stack::proj-x",
			 "outputs":{"p":{`+secretSig+`,"ciphertext":"`+hidden+`"}}}]}}`)).want(200, nil)
	return output, hidden
}

// job starts a deployment of a stack as the given caller, and returns the credential of the job's
// pulumi process.
func (l *lab) job(stack, operation, as string, options ...string) string {
	l.t.Helper()
	context := map[string]any{}
	for _, name := range options {
		context[name] = true
	}
	l.send(call{Method: "POST", Path: stack + "/deployments", Auth: as, Body: map[string]any{
		"operation": operation, "agentPoolID": l.pool,
		"sourceContext":    map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
		"operationContext": map[string]any{"options": context},
	}}).want(202, nil)
	_, jc := l.start("agent of " + stack + operation + as + strings.Join(options, ""))
	definition, err := jc.Definition(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return "token " + definition.Env["PULUMI_ACCESS_TOKEN"]
}

// TestJobsReadOnlyOutputsOfOtherStacks sends the requests of a StackReference, which must succeed,
// and other requests that a job could try.
func TestJobsReadOnlyOutputsOfOtherStacks(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	mine, other := l.stack("mine"), l.stack("other")
	output, hidden := l.publish(other)
	job := l.job(mine, "preview", "")
	as := func(method, path string, body any) answer {
		t.Helper()
		return l.send(call{Method: method, Path: path, Body: body, Auth: job})
	}
	if body := string(as("GET", other, nil).want(200, nil).Body); strings.Contains(body, "pulumi:project") {
		t.Errorf("the job sees the tags of another stack: %s", body)
	}
	var exported struct {
		Deployment struct {
			Manifest  struct{ Magic string }
			Providers struct{ Type string } `json:"secrets_providers"`
			Resources []map[string]json.RawMessage
		}
	}
	a := as("GET", other+"/export", nil).want(200, &exported)
	root := exported.Deployment.Resources
	if len(root) != 1 || len(root[0]) != 4 || string(root[0]["type"]) != `"pulumi:pulumi:Stack"` || !strings.Contains(string(root[0]["outputs"]), output) {
		t.Errorf("the job exports %s", a.Body)
	}
	if exported.Deployment.Manifest.Magic != "m" || exported.Deployment.Providers.Type != "service" {
		t.Errorf("the job exports no secrets provider or manifest: %s", a.Body)
	}
	for _, leak := range []string{hidden, "innerID", "lab:index"} {
		if strings.Contains(string(a.Body), leak) {
			t.Errorf("the job exports %q of another stack: %s", leak, a.Body)
		}
	}
	var one struct{ Plaintext []byte }
	as("POST", other+"/decrypt", map[string]string{"ciphertext": output}).want(200, &one)
	if string(one.Plaintext) != `"published"` {
		t.Errorf("the secret output is %q", one.Plaintext)
	}
	var batch struct{ Plaintexts map[string][]byte }
	as("POST", other+"/batch-decrypt", map[string]any{"ciphertexts": []string{output, output}}).want(200, &batch)
	if string(batch.Plaintexts[output]) != `"published"` {
		t.Errorf("the secret outputs are %q", batch.Plaintexts)
	}
	as("POST", other+"/decrypt", map[string]string{"ciphertext": hidden}).want(404, nil)
	as("POST", other+"/batch-decrypt", map[string]any{"ciphertexts": []string{output, hidden}}).want(404, nil)
	as("POST", other+"/batch-decrypt", map[string]any{"ciphertexts": []string{base64.StdEncoding.EncodeToString([]byte("ciphertext"))}}).want(404, nil)
	for _, path := range []string{"/export/1", "/updates", "/updates/latest", "/config", "/metadata", "/deployments", "/deployments/settings", "/policypacks"} {
		as("GET", other+path, nil).want(404, nil)
	}
	as("POST", other+"/encrypt", map[string][]byte{"plaintext": {1}}).want(404, nil)
	as("POST", other+"/preview", program()).want(404, nil)
	as("POST", other+"/import", state(0)).want(404, nil)
	as("DELETE", other, nil).want(404, nil)
	for _, path := range []string{"/api/orgs/acme/deployments", "/api/orgs/acme/members", "/api/orgs/acme/agent-pools"} {
		as("GET", path, nil).want(403, nil)
	}
	if list := string(as("GET", "/api/user/stacks", nil).want(200, nil).Body); !strings.Contains(list, `"mine"`) || strings.Contains(list, `"other"`) {
		t.Errorf("the job lists %s", list)
	}
}

// TestJobsWithoutAUserReadNoOtherStack starts deployments with an organization's token, and as a
// user who is not a member of the organization. The jobs must not be able to read another stack.
func TestJobsWithoutAUserReadNoOtherStack(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	other := l.stack("other")
	l.do("PATCH", "/api/orgs/acme", map[string]any{"setProjectReads": false}).want(200, nil)
	output, _ := l.publish(other)
	check := func(mine, job string) {
		t.Helper()
		as := func(method, path string, body any) answer {
			t.Helper()
			return l.send(call{Method: method, Path: path, Body: body, Auth: job})
		}
		as("GET", mine, nil).want(200, nil)
		as("GET", mine+"/export", nil).want(200, nil)
		as("GET", other, nil).want(403, nil)
		as("GET", other+"/export", nil).want(403, nil)
		as("POST", other+"/decrypt", map[string]string{"ciphertext": output}).want(404, nil)
		as("POST", other+"/batch-decrypt", map[string]any{"ciphertexts": []string{output}}).want(404, nil)
		as("GET", "/api/orgs/acme/deployments", nil).want(403, nil)
	}
	mine := l.stack("mine")
	org, _, _ := l.ids("mine")
	robot := "token " + l.issue(store.Token{Kind: store.OrgToken, OrgID: org, Name: "robot"})
	check(mine, l.job(mine, "update", robot))

	leaver := store.User{ID: "u2", Login: "leaver", CreatedAt: time.Now()}
	if err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error { return tx.InsertUser(leaver) }); err != nil {
		t.Fatal(err)
	}
	third := l.deployable("third")
	var st store.Stack
	err := l.db.Read(t.Context(), func(tx *store.Tx) (err error) {
		st, err = tx.StackByName("acme", "proj", "third")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p := identity.Principal{Kind: identity.KindUser, User: leaver, Roles: map[string]string{st.OrgID: identity.RoleAdmin}}
	d, err := l.service.Create(t.Context(), p, st, workflow.Request{Operation: workflow.OperationUpdate, Inherit: true}, "api")
	if err != nil {
		t.Fatal(err)
	}
	_, jc := l.start("late")
	for range 2 { // an agent can request a definition again
		definition, err := jc.Definition(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check("/api/stacks/acme/proj/third", "token "+definition.Env["PULUMI_ACCESS_TOKEN"])
	}
	if notes := l.details(third, d.ID).Notes; len(notes) != 1 || !strings.Contains(notes[0], "leaver") {
		t.Errorf("the log contains %q", notes)
	}
}

// TestPreviewsChangeNothing checks that the credentials of read-only jobs cannot change a stack.
func TestPreviewsChangeNothing(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	for _, operation := range []string{"preview", "detect-drift"} {
		t.Run(operation, func(t *testing.T) {
			mine := l.stack(operation)
			_, hidden := l.publish(mine)
			var foreign struct{ UpdateID string }
			l.do("POST", mine+"/update", program()).want(200, &foreign)
			l.do("PUT", mine+"/config", map[string]string{"secretsProvider": "p"}).want(200, nil)
			job := l.job(mine, operation, "")
			as := func(method, path string, body any) answer {
				t.Helper()
				return l.send(call{Method: method, Path: path, Body: body, Auth: job})
			}
			before := string(l.do("GET", mine, nil).Body) + string(l.do("GET", mine+"/export", nil).Body)
			for _, c := range []struct {
				method, path string
				body         any
			}{
				{"POST", "/import", state(0)},
				{"POST", "/update", program()},
				{"POST", "/refresh", program()},
				{"POST", "/destroy", program()},
				{"POST", "/update/" + foreign.UpdateID, map[string]any{}},
				{"POST", "/update/" + foreign.UpdateID + "/cancel", nil},
				{"PATCH", "/tags", map[string]string{"a": "b"}},
				{"POST", "/tags", map[string]string{"name": "a", "value": "b"}},
				{"PATCH", "/tags/pulumi:project", map[string]string{"value": "b"}},
				{"DELETE", "/tags/pulumi:project", nil},
				{"GET", "/config", nil},
				{"PUT", "/config", map[string]string{"secretsProvider": "x"}},
				{"DELETE", "/config", nil},
				{"POST", "/rename", map[string]string{"newName": "x"}},
				{"DELETE", "", nil},
				{"PUT", "/deployments/settings", map[string]any{}},
			} {
				if a := as(c.method, mine+c.path, c.body); a.Status != 403 {
					t.Errorf("%s %s: status %d, body %s, want 403", c.method, c.path, a.Status, a.Body)
				}
			}
			// The error must not suggest that another deployment's token would permit the request.
			if a := as("POST", mine+"/rename", map[string]string{"newName": "x"}); !strings.Contains(string(a.Body), "only users and organization tokens") {
				t.Errorf("rename: the body is %s", a.Body)
			}
			as("GET", mine, nil).want(200, nil)
			as("GET", mine+"/export", nil).want(200, nil)
			as("POST", mine+"/encrypt", map[string][]byte{"plaintext": {1}}).want(200, nil)
			as("POST", mine+"/decrypt", map[string]string{"ciphertext": hidden}).want(200, nil)
			dry := program()
			dry["options"] = map[string]any{"dryRun": true}
			for _, u := range []struct {
				kind string
				body any
			}{{"preview", program()}, {"refresh", dry}} {
				var created struct{ UpdateID string }
				as("POST", mine+"/"+u.kind, u.body).want(200, &created)
				path := mine + "/update/" + created.UpdateID
				var started struct{ Token string }
				as("POST", path, map[string]any{"tags": map[string]string{"new": "tag"}}).want(200, &started)
				held := "update-token " + started.Token
				l.send(call{Method: "PATCH", Path: path + "/checkpoint", Body: state(0), Auth: held}).want(403, nil)
				l.send(call{Method: "POST", Path: path + "/complete", Body: map[string]string{"status": "succeeded"}, Auth: held}).want(204, nil)
			}
			if after := string(l.do("GET", mine, nil).Body) + string(l.do("GET", mine+"/export", nil).Body); after != before {
				t.Errorf("the stack was\n%s\nand now is\n%s", before, after)
			}
		})
	}
	t.Run("remediation", func(t *testing.T) {
		mine := l.stack("remediated")
		job := l.job(mine, "detect-drift", "", "remediateIfDriftDetected")
		l.send(call{Method: "POST", Path: mine + "/update", Body: program(), Auth: job}).want(200, nil)
		l.send(call{Method: "DELETE", Path: mine, Auth: job}).want(403, nil)
	})
	t.Run("removal", func(t *testing.T) {
		mine := l.stack("removed")
		keep := l.job(mine, "destroy", "")
		l.send(call{Method: "DELETE", Path: mine, Auth: keep}).want(403, nil).says("delete-stack")
		l.send(call{Method: "DELETE", Path: mine + "?force=true", Auth: keep}).want(403, nil).says("only users")
		other := l.stack("removed-too")
		job := l.job(other, "destroy", "", "deleteAfterDestroy")
		l.send(call{Method: "DELETE", Path: mine, Auth: job}).want(404, nil)
		l.send(call{Method: "DELETE", Path: other + "?force=true", Auth: job}).want(403, nil).says("only users")
		l.send(call{Method: "DELETE", Path: other, Auth: job}).want(204, nil)
	})
}
