package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
)

type teamEntry struct {
	Kind, Name, DisplayName, Description, UserRole string
	Members                                        []struct{ GithubLogin, Role string }
	Stacks                                         []struct {
		ProjectName, StackName string
		Permission             int
	}
}

// String returns the team as "name: login role …, stack permission …".
func (e teamEntry) String() string {
	out := e.Name + ":"
	for _, m := range e.Members {
		out += " " + m.GithubLogin + " " + m.Role
	}
	out += ","
	for _, s := range e.Stacks {
		out += fmt.Sprintf(" %s/%s %d", s.ProjectName, s.StackName, s.Permission)
	}
	return out
}

func TestTeams(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		ann, bob := f.person("ann", "acme", "member"), f.person("bob", "acme", "member")
		f.person("eve", "", "")
		dev, _ := f.stack("dev"), f.stack("prod")
		const teams, core = "/api/orgs/acme/teams", "/api/orgs/acme/teams/core"
		is := func(auth, want string) {
			t.Helper()
			var got teamEntry
			f.send(call{Method: "GET", Path: core, Auth: auth}).want(200, &got)
			if got.String() != want {
				t.Errorf("the team is %q, want %q", got, want)
			}
		}
		f.do("GET", core, nil).want(404, nil)
		f.do("POST", teams+"/pulumi", map[string]any{"name": "a b"}).want(400, nil)
		f.do("POST", teams+"/github", map[string]any{"githubTeamID": 1}).want(404, nil).says("does not offer teams of GitHub")
		f.send(call{Method: "POST", Path: teams + "/pulumi", Body: map[string]any{"name": "core"}, Auth: ann}).want(403, nil)
		var made teamEntry
		f.do("POST", teams+"/pulumi", map[string]any{"name": "core", "displayName": "Core", "description": "d"}).want(201, &made)
		if made.Kind != "pulumi" || made.DisplayName != "Core" || made.Description != "d" || made.UserRole != "none" {
			t.Errorf("the new team is %+v", made)
		}
		f.do("POST", teams+"/pulumi", map[string]any{"name": "core"}).want(409, nil)
		var assigned struct{ Roles []any }
		if f.do("GET", core+"/roles", nil).want(200, &assigned); len(assigned.Roles) != 0 {
			t.Errorf("the roles of a team are %v", assigned.Roles)
		}

		change := func(auth string, body map[string]any, status int) {
			t.Helper()
			f.send(call{Method: "PATCH", Path: core, Body: body, Auth: auth}).want(status, nil)
		}
		act := func(auth, action, login string, status int) {
			t.Helper()
			change(auth, map[string]any{"memberAction": action, "member": login}, status)
		}
		act("", "add", "ann", 204)
		act("", "add", "ann", 409)
		act("", "add", "eve", 404)
		act("", "crown", "ann", 400)
		act("", "promote", "bob", 400)
		act(ann, "add", "bob", 403)
		act("", "promote", "ann", 204)
		act(ann, "add", "bob", 204)
		is("", "core: ann admin bob member,")
		act(ann, "remove", "bob", 204)
		act(ann, "remove", "bob", 204)

		grant := map[string]any{"projectName": "proj", "stackName": "dev", "permission": 101}
		f.send(call{Method: "GET", Path: dev, Auth: ann}).want(404, nil)
		change(ann, map[string]any{"addStackPermission": grant}, 404)
		change("", map[string]any{"addStackPermission": map[string]any{"projectName": "proj", "stackName": "none", "permission": 101}}, 404)
		change("", map[string]any{"addStackPermission": map[string]any{"projectName": "proj", "stackName": "dev", "permission": 7}}, 400)
		change("", map[string]any{"addEnvironmentPermission": map[string]any{"envName": "e"}}, 400)
		change("", map[string]any{"addStackPermission": grant}, 204)
		f.send(call{Method: "GET", Path: dev, Auth: ann}).want(200, nil)
		f.send(call{Method: "GET", Path: dev, Auth: bob}).want(404, nil)
		change(ann, map[string]any{"editStackPermission": map[string]any{"projectName": "proj", "stackName": "dev", "permission": 103}}, 403)
		is(ann, "core: ann admin, proj/dev 101")
		is(bob, "core: ann admin,") // bob does not see the stack
		console := "/api/console" + strings.TrimPrefix(dev, "/api") + "/teams/"
		f.do("PATCH", console+"core", map[string]any{"permissions": 102}).want(204, nil)
		f.do("PATCH", console+"none", map[string]any{"permissions": 102}).want(404, nil)
		var onStack struct {
			ProjectName string
			Teams       []struct {
				Name       string
				IsMember   bool
				Permission int
			}
		}
		f.send(call{Method: "GET", Path: dev + "/teams", Auth: ann}).want(200, &onStack)
		if got := fmt.Sprintf("%+v", onStack); got != "{ProjectName:proj Teams:[{Name:core IsMember:true Permission:102}]}" {
			t.Errorf("the stack's teams are %s", got)
		}
		change("", map[string]any{"newDisplayName": "Kernel", "removeStack": map[string]any{"projectName": "proj", "stackName": "dev"}}, 204)
		f.send(call{Method: "GET", Path: dev, Auth: ann}).want(404, nil)

		var list struct{ Teams []teamEntry }
		f.do("GET", teams, nil).want(200, &list)
		if len(list.Teams) != 1 || list.Teams[0].DisplayName != "Kernel" || list.Teams[0].Description != "d" {
			t.Errorf("the teams are %+v", list.Teams)
		}
		var mine struct{ Teams []string }
		f.do("GET", "/api/orgs/acme/members/ann/teams", nil).want(200, &mine)
		if !slices.Equal(mine.Teams, []string{"core"}) {
			t.Errorf("ann's teams are %q", mine.Teams)
		}
		f.do("DELETE", core, nil).want(204, nil)
		f.do("DELETE", core, nil).want(404, nil)
	})
}

// TestTeamsOfANewStack creates stacks as pulumi stack init --teams does.
func TestTeamsOfANewStack(t *testing.T) {
	f := newFixture(t, options{})
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
	ann := f.person("ann", "acme", "member")
	f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
	f.do("PATCH", "/api/orgs/acme/teams/core", map[string]any{"memberAction": "add", "member": "ann"}).want(204, nil)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "x", "teams": []string{"core", "none"}}).want(400, nil).says(`no team \"none\"`)
	f.do("GET", "/api/stacks/acme/proj/x", nil).want(404, nil)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "x", "teams": []string{"core"}}).want(200, nil)
	f.send(call{Method: "POST", Path: "/api/stacks/acme/proj/x/update", Body: program(), Auth: ann}).want(200, nil)
	f.send(call{Method: "DELETE", Path: "/api/stacks/acme/proj/x", Auth: ann}).want(403, nil)
}
