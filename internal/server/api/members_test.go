package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
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
		f.send(call{Method: "DELETE", Path: members + "/nobody", Auth: ann}).want(404, nil)

		const more = 230
		err := f.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
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
		bob := f.person("bob", "acme", "billing-manager")
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
		for _, want := range []int{0, 1} {
			var counted settings
			f.send(call{Method: "GET", Path: "/api/orgs/acme/metadata", Auth: bob}).want(200, &counted)
			if counted.StackCount != want {
				t.Errorf("a member who sees %d stacks counts %d", want, counted.StackCount)
			}
			f.do("PUT", "/api/stacks/acme/proj/a/collaborators/bob", map[string]any{"permission": 101}).want(204, nil)
		}
	})
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
