package api_test

import (
	"net/http"
	"testing"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestRunnerTokens(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		id := l.trust(issuer, map[string]any{"maxExpiration": 3600}, l.runnerPolicy("allow", "agent-*"), l.runnerPolicy("deny", "agent-bad"))
		token := issuer.token(key, nil)

		form := grant(token, "runner", "runner:"+l.pool)
		form.Set("expiration", "600")
		got := l.granted(form)
		if got.ExpiresIn != 600 || got.Scope != "runner:"+l.pool || got.IssuedTokenType != typePrefix+"runner" {
			t.Errorf("granted %+v", got)
		}
		if byName := l.granted(grant(token, "runner", "runner:p1")); byName.ExpiresIn != 3600 || byName.AccessToken == got.AccessToken {
			t.Errorf("granted by name %+v", byName)
		}
		want := l.deploy(l.deployable("dev"), "update")
		res, err := l.client.Poll(t.Context(), got.AccessToken, l.request("a", 0))
		if err != nil || res.Job == nil || res.Job.TypeSpecificID != want {
			t.Fatalf("polling: %+v, %v", res, err)
		}
		auth := "token " + got.AccessToken
		l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: auth}).want(200, nil)
		for _, path := range []string{"/api/user", "/api/orgs/acme/agent-pools", "/api/stacks/acme/proj/dev", "/api/orgs/acme/oidc/issuers", "/api/workflow/jobs/" + res.Job.JobID} {
			if a := l.send(call{Method: "GET", Path: path, Auth: auth}); a.Status != http.StatusForbidden {
				t.Errorf("%s: status %d for a runner token", path, a.Status)
			}
		}
		var shown struct{ LastUsed string }
		l.do("GET", "/api/orgs/acme/oidc/issuers/"+id, nil).want(200, &shown)
		if shown.LastUsed == "" {
			t.Error("the issuer's last use was not recorded")
		}

		other, _ := l.newPool("p2")
		const told = "see the server's log"
		l.exchange(grant(issuer.token(key, map[string]any{"sub": "agent-bad"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		l.exchange(grant(issuer.token(key, map[string]any{"sub": "stranger"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		l.exchange(grant(issuer.token(key, map[string]any{"aud": "else"}), "runner", "runner:p1")).refused(400, "unauthorized_client", told, token)
		for _, scope := range []string{"runner:" + other, "runner:p2", "runner:nope"} {
			l.exchange(grant(token, "runner", scope)).refused(400, "unauthorized_client", told, token)
		}
		for _, scope := range []string{"", "p1", "runner:", "user:admin", "admin"} {
			l.exchange(grant(token, "runner", scope)).refused(400, "invalid_scope", "runner:POOL", token)
		}

		// The token expires on time, before any cleanup runs.
		form.Set("expiration", "1")
		brief := l.granted(form)
		deadline := time.Now().Add(30 * time.Second)
		for l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: "token " + brief.AccessToken}).Status != http.StatusUnauthorized {
			if time.Now().After(deadline) {
				t.Fatal("a token with a lifetime of one second is still valid")
			}
			<-time.After(20 * time.Millisecond)
		}
		l.send(call{Method: "GET", Path: "/api/deployments/" + want + "/status", Auth: auth}).want(200, nil)
		// Deleting the pool or the issuer revokes the tokens.
		l.do("DELETE", "/api/orgs/acme/agent-pools/"+l.pool+"?force=true", nil).want(204, nil)
		l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: auth}).want(401, nil)
		l.exchange(grant(token, "runner", "runner:"+l.pool)).refused(400, "unauthorized_client", told, token)
	})
}

func TestDeletedIssuerTakesItsTokensAlong(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer, second := newTestIssuer(t), newTestIssuer(t)
		key, key2 := issuer.newKey("k"), second.newKey("k")
		id := l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
		l.trust(second, nil, l.runnerPolicy("allow", "*"))
		first := l.granted(grant(issuer.token(key, nil), "runner", "runner:p1"))
		kept := l.granted(grant(second.token(key2, nil), "runner", "runner:p1"))
		l.do("DELETE", "/api/orgs/acme/oidc/issuers/"+id, nil).want(204, nil)
		for token, want := range map[string]int{first.AccessToken: 401, kept.AccessToken: 204, l.poolToken: 204} {
			if a := l.send(call{Method: "GET", Path: "/api/deployments/poll", Auth: "token " + token}); a.Status != want {
				t.Errorf("polling: status %d, want %d", a.Status, want)
			}
		}
		l.exchange(grant(issuer.token(key, nil), "runner", "runner:p1")).refused(400, "invalid_grant", "does not trust", "")
	})
}

func TestOrganizationTokensByExchange(t *testing.T) {
	l := newLab(t, sqlite(t), deployments.Options{})
	issuer := newTestIssuer(t)
	key := issuer.newKey("k")
	policy := func(sub string, permissions ...string) map[string]any {
		return map[string]any{"decision": "allow", "tokenType": "organization", "authorizedPermissions": permissions, "rules": map[string]string{"sub": sub}}
	}
	l.trust(issuer, nil, policy("ci", "standard"), policy("boss", "admin"))
	ci, boss := issuer.token(key, map[string]any{"sub": "ci"}), issuer.token(key, map[string]any{"sub": "boss"})

	plain := l.granted(grant(ci, "organization", ""))
	if plain.ExpiresIn != 7200 || plain.Scope != "" {
		t.Errorf("granted %+v", plain)
	}
	auth := "token " + plain.AccessToken
	l.send(call{Method: "POST", Path: "/api/stacks/acme/proj", Body: map[string]any{"stackName": "by-ci"}, Auth: auth}).want(200, nil)
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(403, nil)
	var who struct {
		GithubLogin string
		TokenInfo   struct{ Name, Organization string }
	}
	l.send(call{Method: "GET", Path: "/api/user", Auth: auth}).want(200, &who)
	if who.GithubLogin != "acme" || who.TokenInfo.Name != "oidc:test issuer" {
		t.Errorf("the token belongs to %+v", who)
	}
	l.exchange(grant(ci, "organization", "admin")).refused(400, "unauthorized_client", "", ci)

	quiet := l.granted(grant(boss, "organization", ""))
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: "token " + quiet.AccessToken}).want(403, nil)
	admin := l.granted(grant(boss, "organization", "admin"))
	auth = "token " + admin.AccessToken
	l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(200, nil)
	// An exchanged token cannot create tokens that outlive it.
	l.send(call{Method: "POST", Path: "/api/orgs/acme/tokens", Body: map[string]any{"name": "x"}, Auth: auth}).want(403, nil).says("exchange")
	l.send(call{Method: "DELETE", Path: "/api/orgs/acme/tokens/x", Auth: auth}).want(403, nil)
	l.exchange(grant(boss, "organization", "runner:p1")).refused(400, "invalid_scope", `empty or "admin"`, boss)

	var list struct{ Tokens []struct{ Name string } }
	l.do("GET", "/api/orgs/acme/tokens", nil).want(200, &list)
	if len(list.Tokens) != 0 {
		t.Errorf("exchanged tokens are listed: %+v", list)
	}
}

// TestTeamTokensByExchange requests tokens for a team. They must reach only the team's stacks, and
// must not survive the team.
func TestTeamTokensByExchange(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		mine, other := l.stack("mine"), l.stack("other")
		policy := map[string]any{"decision": "allow", "tokenType": "team", "teamName": "core", "rules": map[string]string{"sub": "agent-1"}}
		id := l.trust(issuer, nil)
		var set struct{ ID string }
		l.do("GET", "/api/orgs/acme/auth/policies/oidcissuers/"+id, nil).want(200, &set)
		policies := map[string]any{"policies": []any{policy}}
		l.do("PATCH", "/api/orgs/acme/auth/policies/"+set.ID, policies).want(400, nil).says("teamName")
		for _, name := range []string{"core", "others"} {
			l.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": name}).want(201, nil)
		}
		l.do("PATCH", "/api/orgs/acme/auth/policies/"+set.ID, policies).want(200, nil)
		l.do("PATCH", "/api/orgs/acme/teams/core", map[string]any{"addStackPermission": map[string]any{"projectName": "proj", "stackName": "mine", "permission": 103}}).want(204, nil)
		token := issuer.token(key, nil)
		auth := "token " + l.granted(grant(token, "team", "team:core")).AccessToken
		l.send(call{Method: "GET", Path: mine, Auth: auth}).want(200, nil)
		l.send(call{Method: "GET", Path: other, Auth: auth}).want(404, nil)
		// An exchanged token cannot grant permissions that outlive it.
		l.send(call{Method: "PUT", Path: mine + "/collaborators/admin", Body: map[string]any{"permission": 101}, Auth: auth}).want(403, nil).says("exchange")
		l.send(call{Method: "PATCH", Path: "/api/orgs/acme/teams/core", Body: map[string]any{}, Auth: auth}).want(403, nil).says("exchange")
		for _, scope := range []string{"team:others", "team:none"} {
			l.exchange(grant(token, "team", scope)).refused(400, "unauthorized_client", "", token)
		}
		l.do("DELETE", "/api/orgs/acme/teams/core", nil).want(204, nil)
		l.send(call{Method: "GET", Path: mine, Auth: auth}).want(401, nil)
		// A new team does not inherit the policies of a team that had its name.
		l.do("POST", "/api/orgs/acme/teams/pulumi", map[string]any{"name": "core"}).want(201, nil)
		l.exchange(grant(token, "team", "team:core")).refused(400, "unauthorized_client", "", token)
		l.do("PATCH", "/api/orgs/acme/auth/policies/"+set.ID, policies).want(200, nil)
		l.granted(grant(token, "team", "team:core"))
	})
}

// TestPersonalTokensByExchange requests tokens for a user who has rights in another organization.
// The tokens must not include those rights.
func TestPersonalTokensByExchange(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		now := time.Now()
		err := l.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			admin, err := tx.UserByLogin("admin")
			if err != nil {
				return err
			}
			for _, err := range []error{
				tx.InsertOrganization(store.Organization{ID: "o2", Name: "globex", CreatedAt: now}),
				tx.InsertMember(store.Member{OrgID: "o2", UserID: admin.ID, Role: identity.RoleAdmin, CreatedAt: now}),
				tx.InsertUser(store.User{ID: "u2", Login: "outsider", CreatedAt: now}),
				tx.InsertMember(store.Member{OrgID: "o2", UserID: "u2", Role: identity.RoleAdmin, CreatedAt: now}),
			} {
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		l.trust(issuer, nil, map[string]any{"decision": "allow", "tokenType": "personal", "userLogin": "admin", "rules": map[string]string{"sub": "agent-1"}})
		token := issuer.token(key, nil)
		got := l.granted(grant(token, "personal", "user:admin"))
		auth := "token " + got.AccessToken
		var who struct {
			GithubLogin   string
			SiteAdmin     bool
			Organizations []struct{ GithubLogin, Role string }
		}
		l.send(call{Method: "GET", Path: "/api/user", Auth: auth}).want(200, &who)
		if who.GithubLogin != "admin" || who.SiteAdmin || len(who.Organizations) != 1 || who.Organizations[0].GithubLogin != "acme" || who.Organizations[0].Role != "admin" {
			t.Errorf("the token belongs to %+v", who)
		}
		l.send(call{Method: "GET", Path: "/api/orgs/acme/oidc/issuers", Auth: auth}).want(200, nil)
		l.send(call{Method: "GET", Path: "/api/orgs/globex", Auth: auth}).want(404, nil)
		l.send(call{Method: "POST", Path: "/api/stacks/globex/proj", Body: map[string]any{"stackName": "x"}, Auth: auth}).want(404, nil)
		l.send(call{Method: "POST", Path: "/api/user/tokens", Body: map[string]any{"description": "for ever"}, Auth: auth}).want(403, nil).says("exchange")
		l.send(call{Method: "DELETE", Path: "/api/user/tokens/x", Auth: auth}).want(403, nil)
		l.send(call{Method: "POST", Path: "/api/user/organizations/acme/default", Auth: auth}).want(403, nil)
		for _, scope := range []string{"user:outsider", "user:nobody", "user:Admin"} {
			l.exchange(grant(token, "personal", scope)).refused(400, "unauthorized_client", "", token)
		}
		l.exchange(grant(token, "personal", "")).refused(400, "invalid_scope", "user:LOGIN", token)
		form := grant(token, "personal", "user:admin")
		form.Set("audience", "urn:pulumi:org:globex")
		l.exchange(form).refused(400, "invalid_grant", "does not trust", token)
		// A member who is added again does not inherit the policies of the earlier membership.
		l.do("POST", "/api/orgs/acme/members/outsider", map[string]any{"role": "admin"}).want(200, nil)
		l.do("DELETE", "/api/orgs/acme/members/admin", nil).want(204, nil)
		acme, err := store.Read(t.Context(), l.db, func(tx *store.Tx) (store.Organization, error) { return tx.OrganizationByName("acme") })
		if err == nil {
			err = l.identity.Appoint(t.Context(), acme, "admin")
		}
		if err != nil {
			t.Fatal(err)
		}
		l.exchange(grant(token, "personal", "user:admin")).refused(400, "unauthorized_client", "", token)
	})
}

// TestHeldPollOfARevokedTokenGetsNoJob revokes the token of a held poll. The server must give the
// job to another agent.
func TestHeldPollOfARevokedTokenGetsNoJob(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		issuer := newTestIssuer(t)
		key := issuer.newKey("k")
		id := l.trust(issuer, nil, l.runnerPolicy("allow", "*"))
		path := l.deployable("dev")
		got := l.granted(grant(issuer.token(key, nil), "runner", "runner:p1"))
		held := make(chan error, 1)
		go func() {
			res, err := l.client.Poll(t.Context(), got.AccessToken, l.request("revoked", 40*time.Second))
			if res.Job != nil {
				t.Errorf("a revoked agent got the job %s", res.Job.JobID)
			}
			held <- err
		}()
		deadline := time.Now().Add(time.Minute)
		for {
			var pool struct{ Agents []struct{ ID string } }
			l.do("GET", "/api/orgs/acme/agent-pools/"+l.pool, nil).want(200, &pool)
			if len(pool.Agents) == 1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the agent never appeared in the pool")
			}
			<-time.After(5 * time.Millisecond)
		}
		l.do("DELETE", "/api/orgs/acme/oidc/issuers/"+id, nil).want(204, nil)
		want := l.deploy(path, "update")
		wantCode(t, "the held poll", <-held, http.StatusUnauthorized)
		res, err := l.client.Poll(t.Context(), l.poolToken, l.request("trusted", 20*time.Second))
		if err != nil || res.Job == nil || res.Job.TypeSpecificID != want {
			t.Errorf("the trusted agent got %+v, %v", res.Job, err)
		}
	})
}
