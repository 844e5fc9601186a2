package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
)

// person creates a user with a role in an organization, unless the role is "". It returns the
// user's credential.
func (f *fixture) person(login, org, role string) string {
	f.t.Helper()
	n := identity.NewUser{Login: login, Name: strings.ToUpper(login), Email: login + "@example.com"}
	if role != "" {
		n.Org, n.Role = org, role
	}
	text, err := f.identity.CreateUser(f.t.Context(), n)
	if err != nil {
		f.t.Fatal(err)
	}
	return "token " + text
}

type memberEntry struct {
	Role string
	User struct{ GithubLogin, Name, Email string }
}

// members returns an organization's members as login:role, and the number of pages.
func (f *fixture) members(org string) (list []string, pages int) {
	f.t.Helper()
	for next := ""; pages == 0 || next != ""; pages++ {
		var page struct {
			Members           []memberEntry
			ContinuationToken string
		}
		f.do("GET", "/api/orgs/"+org+"/members?continuationToken="+next, nil).want(200, &page)
		for _, m := range page.Members {
			list = append(list, m.User.GithubLogin+":"+m.Role)
		}
		next = page.ContinuationToken
	}
	return list, pages
}

func TestMembers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		ann := f.person("ann", "", "")
		const members = "/api/orgs/acme/members"
		read := func(status int) {
			t.Helper()
			f.send(call{Method: "GET", Path: members, Auth: ann}).want(status, nil)
		}
		read(404)
		f.do("POST", members+"/ann", map[string]any{"role": "king"}).want(400, nil).says("stack-collaborator")
		f.do("POST", members+"/nobody", map[string]any{"role": "member"}).want(404, nil).says("nobody")
		var added memberEntry
		f.do("POST", members+"/ann", map[string]any{"role": "member"}).want(200, &added)
		if added.Role != "member" || added.User.GithubLogin != "ann" || added.User.Email != "ann@example.com" {
			t.Errorf("the added member is %+v", added)
		}
		f.do("POST", members+"/ann", map[string]any{"role": "member"}).want(409, nil)
		read(200)
		f.send(call{Method: "PATCH", Path: members + "/ann", Body: map[string]any{"role": "admin"}, Auth: ann}).want(403, nil)

		f.do("PATCH", members+"/admin", map[string]any{"role": "member"}).want(400, nil).says("last administrator")
		f.do("DELETE", members+"/admin", nil).want(400, nil).says("last administrator")
		f.do("PATCH", members+"/nobody", map[string]any{"role": "admin"}).want(404, nil)
		f.do("PATCH", members+"/ann", map[string]any{"fgaRoleId": "admin"}).want(204, nil)
		if list, _ := f.members("acme"); !slices.Equal(list, []string{"admin:admin", "ann:admin"}) {
			t.Errorf("the members are %q", list)
		}
		f.send(call{Method: "POST", Path: members + "/ann/set-admin", Auth: ann}).want(204, nil)
		if list, _ := f.members("acme"); !slices.Equal(list, []string{"admin:member", "ann:admin"}) {
			t.Errorf("after set-admin, the members are %q", list)
		}
		f.do("DELETE", members+"/nobody", nil).want(404, nil)

		const more = 230
		err := f.db.Write(t.Context(), func(tx *store.Tx) error {
			org, err := tx.OrganizationByName("acme")
			for i := 0; err == nil && i < more; i++ {
				u := store.User{ID: identity.NewID(), Login: fmt.Sprintf("user-%03d", i), CreatedAt: time.Now()}
				if err = tx.InsertUser(u); err == nil {
					err = tx.InsertMember(store.Member{OrgID: org.ID, UserID: u.ID, Role: identity.RoleMember, CreatedAt: time.Now()})
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		list, pages := f.members("acme")
		if len(list) != more+2 || pages != 2 || !slices.IsSorted(list) || list[len(list)-1] != "user-229:member" {
			t.Errorf("%d pages list %d members, the last is %q", pages, len(list), list[len(list)-1])
		}
		f.do("GET", members+"?continuationToken=%25", nil).want(400, nil)
	})
}

// TestMetadata reads the settings of an organization, which every response of PATCH repeats.
func TestMetadata(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.person("ann", "acme", "member")
		f.stack("a")
		f.stack("b")
		type settings struct {
			ID, Kind, UserRole                              string
			DefaultStackPermission, MemberCount, StackCount int
			Features                                        map[string]bool
		}
		var read, patched settings
		f.do("GET", "/api/orgs/acme/metadata", nil).want(200, &read)
		if read.ID == "" || read.UserRole != "admin" || read.DefaultStackPermission != 102 || read.MemberCount != 2 || read.StackCount != 2 {
			t.Errorf("the settings are %+v", read)
		}
		if !read.Features["teamsEnabled"] || read.Features["scimEnabled"] {
			t.Errorf("the features are %v", read.Features)
		}
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}).want(200, &patched)
		read.DefaultStackPermission = 101
		if fmt.Sprint(patched) != fmt.Sprint(read) {
			t.Errorf("PATCH answers %+v, want %+v", patched, read)
		}
	})
}

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
		f.do("POST", teams+"/github", map[string]any{"githubTeamID": 1}).want(400, nil).says("GitHub")
		f.send(call{Method: "POST", Path: teams + "/pulumi", Body: map[string]any{"name": "core"}, Auth: ann}).want(403, nil)
		var made teamEntry
		f.do("POST", teams+"/pulumi", map[string]any{"name": "core", "displayName": "Core", "description": "d"}).want(201, &made)
		if made.Kind != "pulumi" || made.DisplayName != "Core" || made.Description != "d" || made.UserRole != "none" {
			t.Errorf("the new team is %+v", made)
		}
		f.do("POST", teams+"/pulumi", map[string]any{"name": "core"}).want(409, nil)

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

// TestTokensArePaged lists each kind of tokens in several pages, and by a part of their names.
func TestTokensArePaged(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
		for _, path := range []string{"/api/user/tokens", "/api/orgs/acme/tokens", "/api/orgs/acme/teams/core/tokens"} {
			want := []string{}
			for i := range 5 {
				name := fmt.Sprintf("number_%d", i)
				f.do("POST", path, map[string]any{"name": name, "description": name, "expires": 0}).want(200, nil)
				want = append([]string{name}, want...)
			}
			var got []string
			pages := 0
			for next := ""; pages == 0 || next != ""; pages++ {
				var page struct {
					Tokens            []struct{ Description string }
					ContinuationToken string
				}
				f.do("GET", path+"?maxResults=2&filter=NUMBER_&continuationToken="+next, nil).want(200, &page)
				for _, tok := range page.Tokens {
					got = append(got, tok.Description)
				}
				next = page.ContinuationToken
			}
			if pages != 3 || !slices.Equal(got, want) {
				t.Errorf("%s: %d pages list %q", path, pages, got)
			}
			f.do("GET", path+"?filter=%25", nil).want(200, nil).says(`"tokens":[]`)
			f.do("GET", path+"?maxResults=0", nil).want(400, nil)
			f.do("GET", path+"?continuationToken=%25", nil).want(400, nil)
		}
		f.do("POST", "/api/orgs/acme/tokens", map[string]any{"name": "x", "roleID": "r"}).want(400, nil).says("roleID")
	})
}

// TestRemovedMembersReachNothing removes a member who has tokens, a team, stacks, a permission and
// a running update. None of them may reach the organization afterwards, even once the user returns.
func TestRemovedMembersReachNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := newFixtureOn(t, db, options{})
		ann := f.person("ann", "acme", "member")
		dev, prod := f.stack("dev"), f.stack("prod")
		const own = "/api/stacks/acme/proj/own"
		f.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "own"}, Auth: ann}).want(200, nil)
		f.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
		f.do("PATCH", "/api/orgs/acme/teams/core", map[string]any{"memberAction": "add", "member": "ann"}).want(204, nil)
		f.do("PUT", prod+"/collaborators/ann", map[string]any{"permission": 103}).want(204, nil)
		var created struct{ UpdateID string }
		f.send(call{Method: "POST", Path: dev + "/update", Body: program(), Auth: ann}).want(200, &created)
		var started struct{ Token string }
		run := dev + "/update/" + created.UpdateID
		f.send(call{Method: "POST", Path: run, Body: map[string]any{}, Auth: ann}).want(200, &started)
		lease := func(status int) {
			t.Helper()
			held := "update-token " + started.Token
			f.send(call{Method: "POST", Path: run + "/renew_lease", Body: map[string]any{"duration": 60}, Auth: held}).want(status, nil)
			event := map[string]any{"sequence": 0, "timestamp": 1, "cancelEvent": map[string]any{}}
			f.send(call{Method: "POST", Path: run + "/events/batch", Body: map[string]any{"events": []any{event}}, Auth: held}).want(status, nil)
		}
		lease(200)
		f.do("DELETE", "/api/orgs/acme/members/ann", nil).want(204, nil)
		lease(403)
		for _, path := range []string{dev, prod, own, "/api/orgs/acme/members", "/api/orgs/acme"} {
			f.send(call{Method: "GET", Path: path, Auth: ann}).want(404, nil)
		}
		if got := f.stacksOf(ann); len(got) != 0 {
			t.Errorf("the removed member lists %q", got)
		}
		var me struct{ Organizations []any }
		f.send(call{Method: "GET", Path: "/api/user", Auth: ann}).want(200, &me)
		if len(me.Organizations) != 0 {
			t.Errorf("the removed member belongs to %v", me.Organizations)
		}
		f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}).want(200, nil)
		f.do("POST", "/api/orgs/acme/members/ann", map[string]any{"role": "member"}).want(200, nil)
		f.send(call{Method: "GET", Path: prod, Auth: ann}).want(404, nil)
		f.send(call{Method: "GET", Path: own, Auth: ann}).want(404, nil)
		f.do("GET", "/api/orgs/acme/members/ann/teams", nil).want(200, nil).says(`"teams":[]`)
	})
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
	// The option can also come from the settings.
	l.do("POST", path+"/settings", request("", true)).want(200, nil)
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
				t.Errorf("a member is told of %s, want %s", text, want)
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
