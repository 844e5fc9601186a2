package api_test

import (
	"net/http"
	"strings"
	"testing"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// deletedStacks returns the deleted stacks that a caller sees.
func (l *lab) deletedStacks(auth string) (ids []string) {
	l.t.Helper()
	var list struct {
		DeletedStacks []struct {
			ID, ProgramID, ProjectName, StackName string
			DeletedAt, PurgedAfter                int64
		}
	}
	l.send(call{Method: "GET", Path: "/api/orgs/acme/restore-stack", Auth: auth}).want(200, &list)
	for _, d := range list.DeletedStacks {
		if d.ID != d.ProgramID || d.ProjectName != "proj" || d.DeletedAt == 0 || d.PurgedAfter != d.DeletedAt+30*24*3600 {
			l.t.Errorf("listed as %+v", d)
		}
		ids = append(ids, d.StackName+" "+d.ID)
	}
	return ids
}

// TestRestoreStack deletes and restores a stack with the calls of the public API.
func TestRestoreStack(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		boss, ann := l.person("boss", "acme", "admin"), l.person("ann", "acme", "member")
		rival := l.newOrganization("rival")
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 102}).want(200, nil)
		list := l.deployable("dev")
		const stack = "/api/stacks/acme/proj/dev"
		l.run(stack, "update", "a")
		l.publish(stack)
		secret := l.encryptAll(stack, [][]byte{[]byte("hidden")})
		l.do("POST", stack+"/tags", map[string]any{"name": "color", "value": "red"}).want(204, nil)
		done := l.deploy(list, "update")
		_, jc := l.start("agent")
		l.end(jc, workflow.StatusSucceeded)
		l.becomes(list, done, "succeeded")
		queued := l.deploy(list, "update")
		l.do("POST", list+"/schedules", map[string]any{"scheduleCron": "0 0 1 1 *", "request": map[string]any{"operation": "update", "inheritSettings": true}}).want(200, nil)

		as := func(auth, method, path string, body any) answer {
			t.Helper()
			return l.send(call{Method: method, Path: path, Body: body, Auth: auth})
		}
		as(boss, "DELETE", stack, nil).want(400, nil).says("still contains resources")
		as(ann, "DELETE", stack+"?force=true", nil).want(403, nil)
		as(boss, "DELETE", stack+"?force=true", nil).want(204, nil)
		for _, path := range []string{stack, stack + "/export", list, list + "/" + done, list + "/settings", list + "/schedules", stack + "/updates"} {
			l.do("GET", path, nil).want(404, nil)
		}
		l.nothing("agent")
		l.do("GET", "/api/user/stacks", nil).want(200, nil).says(`"stacks":[]`)
		ids := l.deletedStacks(boss)
		if len(ids) != 1 || !strings.HasPrefix(ids[0], "dev ") {
			t.Fatalf("the deleted stacks are %v", ids)
		}
		one := "/api/orgs/acme/restore-stack/" + strings.TrimPrefix(ids[0], "dev ")
		to := func(name string) map[string]any { return map[string]any{"stackName": name} }

		// Others neither see nor restore it. With another organization in the path, it is not found.
		if seen := l.deletedStacks(ann); len(seen) > 0 {
			t.Errorf("a writer sees %v", seen)
		}
		as(ann, "POST", one, to("dev")).want(404, nil)
		as(ann, "DELETE", one, nil).want(403, nil)
		as(rival, "GET", "/api/orgs/acme/restore-stack", nil).want(404, nil)
		for _, method := range []string{"POST", "DELETE"} {
			as(rival, method, one, to("dev")).want(404, nil)
			as(rival, method, strings.Replace(one, "acme", "rival", 1), to("dev")).want(404, nil)
			as(boss, method, "/api/orgs/acme/restore-stack/00000000000000000000000000000000", to("dev")).want(404, nil)
		}

		// Its name is free at once.
		as(boss, "POST", "/api/stacks/acme/proj", to("dev")).want(200, nil)
		as(boss, "POST", one, to("dev")).want(409, nil).says("already exists: restore the deleted stack with another name")
		as(boss, "DELETE", stack, nil).want(204, nil)
		as(boss, "POST", one, to("dev")).want(204, nil)
		as(boss, "POST", one, to("dev")).want(404, nil)

		if d := l.details(list, queued); d.Status != "skipped" || !strings.Contains(d.Message, "the stack was deleted") {
			t.Errorf("the queued deployment is %s: %s", d.Status, d.Message)
		}
		l.becomes(list, done, "succeeded")
		l.do("GET", list+"/settings", nil).want(200, nil).says("https://example.com/a/b.git")
		l.do("GET", list+"/schedules", nil).want(200, nil).says(`"paused":true`)
		l.do("GET", stack, nil).want(200, nil).says(`"color":"red"`)
		if plain := l.decryptAll(stack, secret); plain[secret[0]] != "aGlkZGVu" {
			t.Errorf("the secret is %v", plain)
		}
		var history struct{ Updates []any }
		l.do("GET", stack+"/updates", nil).want(200, &history)
		if len(history.Updates) < 2 {
			t.Errorf("the history has %d updates", len(history.Updates))
		}
		if next := l.deploy(list, "preview"); l.details(list, next).Version != 3 {
			t.Error("the numbers of deployments do not continue")
		}

		// The other stack of the name is purged.
		ids = l.deletedStacks(boss)
		if len(ids) != 1 {
			t.Fatalf("the deleted stacks are %v", ids)
		}
		other := "/api/orgs/acme/restore-stack/" + strings.TrimPrefix(ids[0], "dev ")
		as(boss, "DELETE", other, nil).want(204, nil)
		as(boss, "DELETE", other, nil).want(404, nil)
		as(boss, "POST", other, to("dev")).want(404, nil)
		for _, action := range []string{"stack.deleted", "stack.restored", "stack.purged"} {
			l.do("GET", "/api/orgs/acme/auditlogs/v2?eventFilter="+action, nil).want(200, nil).says(action)
		}
	})
}

// TestDeletedBeforeTheStart deletes the stack of a deployment that an agent has claimed but not started.
func TestDeletedBeforeTheStart(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		stack := l.deployable("dev")
		l.deploy(stack, "update")
		_, jc := l.claim("agent")
		l.do("DELETE", strings.TrimSuffix(stack, "/deployments")+"?force=true", nil).want(204, nil)
		out, err := jc.Heartbeat(t.Context(), protocol.PhaseStarting)
		if out.Started {
			t.Error("the deployment may start")
		}
		wantCode(t, "asking for leave", err, http.StatusGone)
	})
}
