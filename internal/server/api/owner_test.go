package api_test

import "testing"

func TestOwner(t *testing.T) {
	f := newFixture(t, options{})
	ann, bob := f.person("ann", "acme", "member"), f.person("bob", "acme", "member")
	f.do("PATCH", "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 101}).want(200, nil)
	f.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "dev"}, Auth: ann}).want(200, nil)
	const path = "/api/stacks/acme/proj/dev"
	set := func(auth, login string) answer {
		t.Helper()
		return f.send(call{Method: "POST", Path: path + "/ownership", Body: map[string]any{"githubLogin": login, "name": "", "avatarUrl": ""}, Auth: auth})
	}
	set(bob, "bob").want(403, nil)
	set(ann, "nobody").want(404, nil)
	set(ann, "").want(400, nil)
	var previous struct{ GithubLogin string }
	set(ann, "bob").want(200, &previous)
	if previous.GithubLogin != "ann" {
		t.Errorf("the previous owner is %q, want ann", previous.GithubLogin)
	}
	var m struct{ OwnedBy struct{ GithubLogin string } }
	f.do("GET", path+"/metadata", nil).want(200, &m)
	if m.OwnedBy.GithubLogin != "bob" {
		t.Errorf("the owner is %q, want bob", m.OwnedBy.GithubLogin)
	}
	set(ann, "ann").want(403, nil) // ann no longer administers the stack
	set(bob, "ann").want(200, nil)
}

func TestReadsOfUsers(t *testing.T) {
	f := newFixture(t, options{})
	f.do("GET", "/api/user/pending-invites", nil).want(200, nil).says(`{"invites":[]}`)
	f.do("GET", "/api/user/pending-emails", nil).want(204, nil)
	f.do("DELETE", "/api/user/pending-emails", nil).want(404, nil)
	f.do("GET", "/api/user/verified-email", nil).want(200, nil).says("false")
}
