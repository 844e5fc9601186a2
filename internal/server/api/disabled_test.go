package api_test

import (
	"testing"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
)

// TestDisabledUsersReachNothing disables a user with a token, an exchanged token, a running update, a running job and
// a queued one.
func TestDisabledUsersReachNothing(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ann := l.person("ann", "acme", "member")
		dev, own, queued, other := l.stack("dev"), l.stack("own"), l.stack("queued"), l.stack("other")
		l.publish(other)
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		l.trust(issuer, nil, map[string]any{"decision": "allow", "tokenType": "personal", "userLogin": "ann", "rules": map[string]string{"sub": "agent-1"}})
		exchange := func() answer { return l.exchange(grant(issuer.token(key, nil), "personal", "user:ann")) }
		var exchanged granted
		exchange().want(200, &exchanged)

		var created struct{ UpdateID string }
		l.send(call{Method: "POST", Path: dev + "/update", Body: program(), Auth: ann}).want(200, &created)
		var started struct{ Token string }
		run := dev + "/update/" + created.UpdateID
		l.send(call{Method: "POST", Path: run, Body: map[string]any{}, Auth: ann}).want(200, &started)
		lease := func(status int) {
			t.Helper()
			l.send(call{Method: "POST", Path: run + "/renew_lease", Body: map[string]any{"duration": 60}, Auth: "update-token " + started.Token}).want(status, nil)
		}
		silent := l.stack("silent") // the client of its update makes no call while the user is disabled
		l.send(call{Method: "POST", Path: silent + "/update", Body: program(), Auth: ann}).want(200, &created)
		var waiting struct{ Token string }
		unheard := silent + "/update/" + created.UpdateID
		l.send(call{Method: "POST", Path: unheard, Body: map[string]any{}, Auth: ann}).want(200, &waiting)
		job := l.job(own, "update", ann)
		reads := func(token, stack string, status int) {
			t.Helper()
			l.send(call{Method: "GET", Path: stack + "/export", Auth: token}).want(status, nil)
		}
		l.send(call{Method: "POST", Path: queued + "/deployments", Auth: ann, Body: map[string]any{
			"operation": "update", "agentPoolID": l.pool,
			"sourceContext": map[string]any{"git": map[string]any{"repoUrl": "https://example.com/a/b.git", "branch": "main"}},
		}}).want(202, nil)

		lease(200)
		reads(job, own, 200)
		reads(job, other, 200)
		reads("token "+exchanged.AccessToken, dev, 200)
		must.Get(l.identity.DisableUser(t.Context(), identity.Operator(), "ann", ""))(t)
		l.send(call{Method: "POST", Path: run + "/renew_lease", Body: map[string]any{"duration": 60}, Auth: "update-token " + started.Token}).want(403, nil).says("was disabled or removed")
		lease(403)
		// The update still holds the stack, until another user cancels it.
		l.do("POST", dev+"/update", program()).want(200, &created)
		second := dev + "/update/" + created.UpdateID
		l.do("POST", second, map[string]any{}).want(409, nil)
		l.do("POST", run+"/cancel", nil).want(204, nil)
		l.do("POST", second, map[string]any{}).want(200, nil)
		lease(403)
		for _, token := range []string{ann, "token " + exchanged.AccessToken} {
			for _, path := range []string{dev, "/api/user", "/api/orgs/acme/members"} {
				l.send(call{Method: "GET", Path: path, Auth: token}).want(401, nil)
			}
		}
		exchange().refused(400, "unauthorized_client", "", "")
		for _, stack := range []string{own, queued} { // both continue, and name the user
			l.do("GET", stack+"/deployments", nil).want(200, nil).says(`"requestedBy":{"name":"ANN","githubLogin":"ann"`)
		}
		reads(job, own, 200)
		reads(job, other, 403)
		_, jc := l.start("agent of the queued one")
		late := "token " + must.Get(jc.Definition(t.Context()))(t).Env["PULUMI_ACCESS_TOKEN"]
		reads(late, queued, 200)
		reads(late, other, 403)

		// With user enable, the user returns, but not what has ended. Running jobs have the rights again.
		must.OK(t, l.identity.EnableUser(t.Context(), "ann"))
		l.send(call{Method: "POST", Path: unheard + "/renew_lease", Body: map[string]any{"duration": 60}, Auth: "update-token " + waiting.Token}).want(403, nil).says("is no longer valid")
		l.send(call{Method: "GET", Path: dev, Auth: ann}).want(401, nil)
		reads("token "+exchanged.AccessToken, dev, 401)
		reads(job, other, 200)
		must.Get(l.identity.DeleteUser(t.Context(), identity.Operator(), "ann", ""))(t)
		reads(job, own, 200)
		reads(job, other, 403)
	})
}

// TestHistoriesOfDeletedUsers reads what names a user who was deleted.
func TestHistoriesOfDeletedUsers(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		ann, _ := l.person("ann", "acme", "member"), l.person("bob", "acme", "member")
		l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "own"}, Auth: ann}).want(200, nil)
		const own = "/api/stacks/acme/proj/own"
		l.send(call{Method: "POST", Path: own + "/import", Body: state(1), Auth: ann}).want(200, nil)
		ended := must.Get(l.identity.DeleteUser(t.Context(), identity.Operator(), "ann", "bob"))(t)
		l.do("GET", own+"/updates?output-type=service", nil).want(200, nil).says(ended.Login)
		l.do("GET", own, nil).want(200, nil)
		l.do("DELETE", own+"?force=true", nil).want(204, nil)
	})
}

// TestRenamedOrganization uses an organization by its former name: as a client that has begun before, and by a state, a
// program and a policy that name it.
func TestRenamedOrganization(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		base, app := l.stack("base"), l.stack("app")
		var enc struct{ Ciphertext []byte }
		l.do("POST", base+"/encrypt", map[string][]byte{"plaintext": []byte("hidden")}).want(200, &enc)
		l.do("POST", app+"/import", referring("acme/proj/base")).want(200, nil)
		job := l.job(base, "update", "")
		running := l.fixture.start(app, "update")

		must.Get(l.identity.RenameOrganization(t.Context(), identity.Operator(), must.Get(l.identity.Named(t.Context(), "acme"))(t).ID, "umbrella"))(t)
		running.send("POST", "/renew_lease", map[string]any{"duration": 60}).want(200, nil)
		running.send("POST", "/complete", map[string]any{"status": "succeeded"}).want(204, nil)
		l.send(call{Method: "GET", Path: base + "/export", Auth: job}).want(200, nil)
		for _, path := range []string{base, "/api/stacks/umbrella/proj/base"} {
			var dec struct{ Plaintext []byte }
			l.do("POST", path+"/decrypt", map[string][]byte{"ciphertext": enc.Ciphertext}).want(200, &dec)
			if string(dec.Plaintext) != "hidden" {
				t.Errorf("%s decrypts %q", path, dec.Plaintext)
			}
			l.do("GET", path, nil).want(200, nil).says(`"orgName":"umbrella"`)
		}
		must.OK(t, l.stacks.ReadReferences(t.Context()))
		for _, path := range []string{app + "/upstreamreferences", "/api/stacks/umbrella/proj/app/upstreamreferences"} {
			if got := l.references("", path); len(got) != 1 || got[0] != "umbrella/proj/base@0" {
				t.Errorf("%s: %v", path, got)
			}
		}
		if got := l.references("", base+"/downstreamreferences"); len(got) != 1 || got[0] != "umbrella/proj/app@2" {
			t.Errorf("downstream: %v", got)
		}
		l.do("GET", "/api/orgs/acme/members", nil).want(200, nil)
		l.do("GET", "/api/user", nil).want(200, nil).says(`"umbrella"`)
		l.do("POST", "/api/orgs", map[string]any{"name": "Acme"}).want(409, nil)
		// A stranger learns no more than before.
		rival := l.newOrganization("rival")
		for _, name := range []string{"acme", "umbrella"} {
			l.send(call{Method: "GET", Path: "/api/stacks/" + name + "/proj/base", Auth: rival}).want(404, nil)
			l.send(call{Method: "GET", Path: "/api/orgs/" + name + "/members", Auth: rival}).want(404, nil)
		}
	})
}
