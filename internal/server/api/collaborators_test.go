package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
)

func TestCollaborators(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann := f.person("ann", "acme", "stack-collaborator")
		f.person("eve", "", "")
		dev, _ := f.stack("dev"), f.stack("prod")
		f.do("PUT", dev+"/collaborators/eve", map[string]any{"permission": 101}).want(404, nil)
		f.do("PUT", dev+"/collaborators/ann", map[string]any{"permission": 5}).want(400, nil)
		f.do("PUT", dev+"/collaborators/ann", map[string]any{}).want(400, nil)
		f.do("DELETE", dev+"/collaborators/ann", nil).want(404, nil)
		f.do("PUT", dev+"/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		f.send(call{Method: "GET", Path: dev, Auth: ann}).want(200, nil)
		f.send(call{Method: "PUT", Path: dev + "/collaborators/ann", Body: map[string]any{"permission": 103}, Auth: ann}).want(403, nil)
		f.do("PUT", dev+"/collaborators/ann", map[string]any{"permission": 102}).want(204, nil)
		var list struct {
			StackCreatorUserName string
			Users                []struct {
				Permission int
				User       struct{ GithubLogin string }
			}
		}
		f.do("GET", dev+"/collaborators", nil).want(200, &list)
		if got := fmt.Sprintf("%+v", list); got != "{StackCreatorUserName:admin Users:[{Permission:102 User:{GithubLogin:ann}}]}" {
			t.Errorf("the collaborators are %s", got)
		}
		// A collaborator sees neither the organization nor other stacks.
		f.send(call{Method: "GET", Path: "/api/orgs/acme/members", Auth: ann}).want(404, nil)
		f.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "new"}, Auth: ann}).want(404, nil)
		if got := f.stacksOf(ann); !slices.Equal(got, []string{"dev"}) {
			t.Errorf("the collaborator lists %q", got)
		}
		f.do("DELETE", dev+"/collaborators/ann", nil).want(204, nil)
		f.send(call{Method: "GET", Path: dev, Auth: ann}).want(404, nil)
	})
}

// stacksOf returns the names of the stacks that a caller lists, in two or more pages.
func (f *fixture) stacksOf(auth string) (names []string) {
	f.t.Helper()
	for next := ""; ; {
		var page struct {
			Stacks            []struct{ StackName string }
			ContinuationToken string
		}
		f.send(call{Method: "GET", Path: "/api/user/stacks?maxResults=1&continuationToken=" + next, Auth: auth}).want(200, &page)
		for _, s := range page.Stacks {
			names = append(names, s.StackName)
		}
		if next = page.ContinuationToken; next == "" {
			return names
		}
	}
}

// TestStacksAndProjectsThatAMemberSees lists stacks, projects and deployments as members with
// different permissions. The lists must not contain stacks that are hidden from the member.
func TestStacksAndProjectsThatAMemberSees(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		ann := f.person("ann", "acme", "member")
		f.stack("a")
		f.stack("b")
		if got := f.stacksOf(ann); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("with the default permission, a member lists %q", got)
		}
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil).says(`"defaultStackPermission":0`)
		if got := f.stacksOf(ann); len(got) != 0 {
			t.Errorf("without a permission, a member lists %q", got)
		}
		f.send(call{Method: "HEAD", Path: "/api/stacks/acme/proj", Auth: ann}).wantStatus(404)
		f.send(call{Method: "POST", Path: "/api/stacks/acme/own", Body: map[string]any{"stackName": "c"}, Auth: ann}).want(200, nil)
		if got := f.stacksOf(ann); !slices.Equal(got, []string{"c"}) {
			t.Errorf("the creator of a stack lists %q", got)
		}
		f.send(call{Method: "HEAD", Path: "/api/stacks/acme/own", Auth: ann}).wantStatus(200)
		f.send(call{Method: "DELETE", Path: "/api/stacks/acme/own/c", Auth: ann}).want(204, nil)
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 9}).want(400, nil)
	})
}

func (a answer) wantStatus(status int) {
	a.t.Helper()
	if a.Status != status {
		a.t.Errorf("%s: status %d, want %d", a.call, a.Status, status)
	}
}

// TestDeploymentsGrantNothing requests deployments that would delete their stack. A requester who
// may not delete the stack must not be able to let a job do it.
func TestDeploymentsGrantNothing(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	path := l.deployable("dev")
	ann := l.person("ann", "acme", "member")
	request := func(operation string, remove bool) map[string]any {
		return map[string]any{"operation": operation, "operationContext": map[string]any{"options": map[string]any{"deleteAfterDestroy": remove}}}
	}
	for _, tt := range []struct {
		auth, operation string
		remove          bool
		status          int
	}{
		{ann, "destroy", true, 403},
		{ann, "destroy", false, 202},
		{ann, "update", true, 202},
		{"", "destroy", true, 202},
	} {
		l.send(call{Method: "POST", Path: path, Body: request(tt.operation, tt.remove), Auth: tt.auth}).want(tt.status, nil)
	}
	// The option can also come from the settings, where it takes effect for every requester.
	for _, method := range []string{"PUT", "POST"} {
		l.send(call{Method: method, Path: path + "/settings", Body: request("", true), Auth: ann}).want(403, nil).says(`permission \"admin\"`)
	}
	l.do("POST", path+"/settings", request("", true)).want(200, nil)
	l.send(call{Method: "POST", Path: path + "/settings", Body: map[string]any{"tag": "v1"}, Auth: ann}).want(200, nil)
	l.send(call{Method: "POST", Path: path, Body: map[string]any{"operation": "destroy"}, Auth: ann}).want(403, nil).says(`permission \"admin\"`)
}

// TestDeploymentsThatAMemberSees lists an organization's deployments in pages, as a member who may
// read one of two stacks. Neither the pages nor the total may include the other stack.
func TestDeploymentsThatAMemberSees(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ann := l.person("ann", "acme", "member")
		mine, other := l.deployable("mine"), l.deployable("other")
		for range 3 {
			l.deploy(mine, "preview")
			l.deploy(other, "preview")
		}
		l.do("PUT", "/api/stacks/acme/proj/mine/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		list := func(auth string, page int) (stacks []string, total int) {
			t.Helper()
			var body struct {
				Deployments []struct{ StackName string }
				Total       int
			}
			path := fmt.Sprintf("/api/orgs/acme/deployments?pageSize=2&page=%d", page)
			l.send(call{Method: "GET", Path: path, Auth: auth}).want(200, &body)
			for _, d := range body.Deployments {
				stacks = append(stacks, d.StackName)
			}
			return stacks, body.Total
		}
		first, total := list(ann, 1)
		second, _ := list(ann, 2)
		if got := append(first, second...); total != 3 || !slices.Equal(got, []string{"mine", "mine", "mine"}) {
			t.Errorf("the member lists deployments of %q, in total %d", got, total)
		}
		if _, total := list("", 1); total != 6 {
			t.Errorf("the administrator lists %d deployments, want 6", total)
		}
	})
}

// TestCountsAndPausesOfHiddenStacks reads the state of the organization's queues as members who see
// none, one or all of the stacks.
func TestCountsAndPausesOfHiddenStacks(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ann, bob := l.person("ann", "acme", "member"), l.person("bob", "acme", "billing-manager")
		for _, name := range []string{"dev", "secret"} {
			path := l.deployable(name)
			l.do("POST", path+"/pause", nil).want(200, nil)
			l.deploy(path, "update")
		}
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		l.do("PUT", "/api/stacks/acme/proj/dev/collaborators/ann", map[string]any{"permission": 101}).want(204, nil)
		for auth, want := range map[string]string{"": "2 [proj/dev proj/secret]", ann: "1 [proj/dev]", bob: "0 []"} {
			var got struct {
				DeploymentCounts struct{ Total int }
				PausedStacks     []string
			}
			l.send(call{Method: "GET", Path: "/api/orgs/acme/deployments/metadata", Auth: auth}).want(200, &got)
			if text := fmt.Sprint(got.DeploymentCounts.Total, " ", got.PausedStacks); text != want {
				t.Errorf("the caller %q sees deployments and paused stacks %s, want %s", auth, text, want)
			}
		}
	})
}

// TestUpdatesLinkedToDeployments starts updates that name a running deployment of the stack. A
// reader must not link an update, and a link must not preserve a removed member's lease.
func TestUpdatesLinkedToDeployments(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ann := l.person("ann", "acme", "member")
		path := l.deployable("dev")
		id := l.deploy(path, "preview")
		_, job := l.start("a")
		if _, err := job.Heartbeat(t.Context(), protocol.PhaseRunning); err != nil {
			t.Fatal(err)
		}
		stack := strings.TrimSuffix(path, "/deployments")
		prog := program()
		prog["metadata"] = map[string]any{"environment": map[string]string{"ci.build.id": id}}
		start := func(kind string) (run, lease string) {
			t.Helper()
			var created struct{ UpdateID string }
			l.send(call{Method: "POST", Path: stack + "/" + kind, Body: prog, Auth: ann}).want(200, &created)
			var started struct{ Token string }
			run = stack + "/update/" + created.UpdateID
			l.send(call{Method: "POST", Path: run, Body: map[string]any{}, Auth: ann}).want(200, &started)
			return run, "update-token " + started.Token
		}
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}).want(200, nil)
		start("preview")
		if got := l.details(path, id).Updates; len(got) != 0 {
			t.Errorf("a reader linked %+v to the deployment", got)
		}
		l.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 102}).want(200, nil)
		run, lease := start("update")
		if got := l.details(path, id).Updates; len(got) != 1 {
			t.Fatalf("the deployment shows the updates %+v, want one", got)
		}
		l.do("DELETE", "/api/orgs/acme/members/ann", nil).want(204, nil)
		l.send(call{Method: "PATCH", Path: run + "/checkpoint", Body: state(1), Auth: lease}).want(403, nil)
	})
}
