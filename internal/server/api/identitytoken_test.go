package api_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/protocol"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/workflow"
)

// withKey creates the first signing key.
func (l *lab) withKey() {
	l.t.Helper()
	if err := l.issuer.Maintain(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// claims verifies a token as a cloud provider does, with the documents that the server publishes,
// and returns its claims.
func (l *lab) claims(token, audience string) map[string]any {
	l.t.Helper()
	var conf struct {
		Issuer string
		Keys   string `json:"jwks_uri"`
	}
	a := l.send(call{Method: "GET", Path: "/oidc/.well-known/openid-configuration", Auth: "none"}).want(200, &conf)
	path, ok := strings.CutPrefix(conf.Keys, "https://issuer.test")
	if conf.Issuer != "https://issuer.test/oidc" || !ok || a.Header.Get("Cache-Control") != "public, max-age=300" {
		l.t.Fatalf("the configuration is %+v, with the header %v", conf, a.Header)
	}
	var keys jose.JSONWebKeySet
	l.send(call{Method: "GET", Path: path, Auth: "none"}).want(200, &keys)
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		l.t.Fatalf("parsing %q: %v", token, err)
	}
	var c jwt.Claims
	claims := map[string]any{}
	if err := parsed.Claims(keys, &c, &claims); err != nil {
		l.t.Fatalf("verifying a token: %v", err)
	}
	err = c.Validate(jwt.Expected{Issuer: conf.Issuer, AnyAudience: jwt.Audience{audience}})
	if err != nil || c.Expiry.Time().Sub(c.IssuedAt.Time()) != 15*time.Minute || c.ID == "" || len(c.Audience) != 1 {
		l.t.Errorf("the claims are %+v: %v", c, err)
	}
	for _, name := range []string{"iss", "aud", "iat", "nbf", "exp", "jti"} {
		delete(claims, name)
	}
	return claims
}

// TestIdentityToken checks every claim of the token of a claim, and of those that a runner requests.
func TestIdentityToken(t *testing.T) {
	eachLab(t, deployments.Options{}, func(t *testing.T, l *lab) {
		l.withKey()
		path := l.deployable("prod")
		l.deploy(path, "update")
		job, jc := l.claim("a")
		var st struct{ ID string }
		l.do("GET", strings.TrimSuffix(path, "/deployments"), nil).want(200, &st)
		want := map[string]any{
			"sub": "pulumi:deploy:org:acme:project:proj:stack:prod:operation:update:scope:write",
			"org": "acme", "project": "proj", "stack": "prod", "stackId": st.ID, "operation": "update", "deployment": "1", "scope": "write",
			"trigger": "api", "ref": "refs/heads/main", "sha": "", "pull_request": "", "fork": false,
		}
		if diff := cmp.Diff(want, l.claims(job.OIDCToken, "acme")); diff != "" {
			t.Errorf("the first token: %s", diff)
		}
		for _, audience := range []string{"", "acme", "vault"} {
			token, err := jc.IdentityToken(t.Context(), audience)
			if err != nil {
				t.Fatal(err)
			}
			if audience == "" {
				audience = "acme"
			}
			if diff := cmp.Diff(want, l.claims(token.Token, audience)); diff != "" {
				t.Errorf("a token for %s: %s", audience, diff)
			}
			if left := time.Until(token.ExpiresAt); left < 14*time.Minute || left > 15*time.Minute {
				t.Errorf("the token expires at %s", token.ExpiresAt)
			}
		}
		// The body is optional.
		l.send(call{Method: "POST", Path: "/api/workflow/jobs/" + job.JobID + "/oidc-token", Auth: "token " + job.JobToken}).want(200, nil)
	})
}

// TestIdentityTokenSubjects checks the claims that depend on the settings.
func TestIdentityTokenSubjects(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.withKey()
	path := l.deployable("prod")
	const sha = "ABCDEF0123456789abcdef0123456789abcdef01"
	git := func(members map[string]any) map[string]any {
		maps.Copy(members, map[string]any{"repoUrl": "https://example.com/a/b.git"})
		return map[string]any{"sourceContext": map[string]any{"git": members}}
	}
	header := "X-Pulumi-Deployment-Initiator"
	for _, test := range []struct {
		operation string
		body      map[string]any
		initiator string
		want      map[string]any
	}{
		{"preview", git(map[string]any{}), "", map[string]any{"operation": "preview", "ref": "refs/heads/main", "trigger": "api"}},
		{"destroy", git(map[string]any{"branch": "refs/heads/x"}), "automation-api", map[string]any{"operation": "destroy", "ref": "refs/heads/x", "trigger": "automation-api"}},
		{"refresh", git(map[string]any{"commit": sha}), "schedule", map[string]any{"operation": "refresh", "ref": "", "sha": strings.ToLower(sha), "trigger": "api"}},
		{"update", git(map[string]any{"tag": "v1"}), "cli", map[string]any{"ref": "refs/tags/v1", "sha": "", "trigger": "cli"}},
		// The job checks out the commit or the branch, and not the tag.
		{"update", git(map[string]any{"tag": "v1", "commit": sha}), "", map[string]any{"ref": "", "sha": strings.ToLower(sha)}},
		{"update", git(map[string]any{"tag": "v1", "branch": "x"}), "", map[string]any{"ref": "refs/heads/x"}},
		{"preview", git(map[string]any{"tag": "v1", "branch": "refs/pull/12/head"}), "", map[string]any{"ref": "refs/pull/12/head", "pull_request": "12", "fork": true}},
		{"preview", git(map[string]any{"branch": "refs/pull/12/head"}), "", map[string]any{"ref": "refs/pull/12/head", "pull_request": "12", "fork": true}},
		{"preview", git(map[string]any{"branch": "refs/merge-requests/7/merge"}), "", map[string]any{"pull_request": "7", "fork": true}},
		{"preview", git(map[string]any{"branch": "pull/12/head"}), "", map[string]any{"ref": "refs/heads/pull/12/head", "pull_request": "", "fork": false}},
		{"detect-drift", git(map[string]any{}), "", map[string]any{"operation": "refresh"}},
		{"remediate-drift", git(map[string]any{}), "", map[string]any{"operation": "update"}},
		{
			"detect-drift",
			map[string]any{"operationContext": map[string]any{"options": map[string]any{"remediateIfDriftDetected": true}}},
			"",
			map[string]any{"operation": "update"},
		},
		{"update", map[string]any{"inheritSettings": false, "agentPoolID": l.pool}, "", map[string]any{"ref": "", "sha": "", "trigger": "api"}},
	} {
		test.body["operation"] = test.operation
		l.send(call{Method: "POST", Path: path, Body: test.body, Header: map[string]string{header: test.initiator}}).want(202, nil)
		job, jc := l.start("a")
		claims := l.claims(job.OIDCToken, "acme")
		got := map[string]any{}
		for name := range test.want {
			got[name] = claims[name]
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v by %q: %s", test.body, test.initiator, diff)
		}
		if all := len(claims); all != 13 {
			t.Errorf("%v: %d claims, want 13: %v", test.body, all, slices.Sorted(maps.Keys(claims)))
		}
		l.end(jc, workflow.StatusSucceeded)
	}
}

// TestIdentityTokenRefusals tries to obtain tokens to which a caller has no right.
func TestIdentityTokenRefusals(t *testing.T) {
	eachLab(t, deployments.Options{Lease: 300 * time.Millisecond, Sweep: leaseSweep}, func(t *testing.T, l *lab) {
		l.withKey()
		path, other := l.deployable("prod"), l.deployable("dev")
		l.deploy(other, "update")
		job, jc := l.start("b") // a started job is never requeued
		for audience, want := range map[string]string{"sts.amazonaws.com": "oidc_audiences", "ACME": "not permitted", "rival": "not permitted"} {
			_, err := jc.IdentityToken(t.Context(), audience)
			wantCode(t, "the audience "+audience, err, 400)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the audience %s: got %v", audience, err)
			}
		}
		l.deploy(path, "update")
		first, stale := l.claim("a")
		for what, auth := range map[string]struct {
			token string
			code  int
		}{
			"another job's token": {job.JobToken, 401}, "a pool token": {l.poolToken, 403}, "a user's token": {l.admin, 403}, "no token": {"", 401},
		} {
			_, err := l.client.Job(first.JobID, auth.token).IdentityToken(t.Context(), "")
			wantCode(t, what, err, auth.code)
		}
		for deadline := time.Now().Add(time.Minute); ; <-time.After(leaseSweep) { // until the first claim is superseded; the job may request 30 tokens in a minute
			_, err := stale.IdentityToken(t.Context(), "")
			if protocol.StatusCode(err) == http.StatusGone {
				break
			}
			if _, limited := errors.AsType[*protocol.APIError](err); time.Now().After(deadline) || err != nil && !limited {
				t.Fatalf("the claim is not superseded: %v", err)
			}
		}
		if _, err := jc.IdentityToken(t.Context(), ""); err != nil {
			t.Errorf("a running job: %v", err)
		}
		l.end(jc, workflow.StatusSucceeded)
		_, err := jc.IdentityToken(t.Context(), "")
		wantCode(t, "a finished job", err, 410)
	})
}

// TestIdentityTokenOfLostJob checks that a lost job, which still runs, gets tokens until the stack's
// next deployment starts.
func TestIdentityTokenOfLostJob(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{Lost: 200 * time.Millisecond, Sweep: leaseSweep})
	l.withKey()
	path := l.deployable("prod")
	id := l.deploy(path, "update")
	_, jc := l.start("a")
	if d := l.becomes(path, id, "failed"); d.Reason != "lost" {
		t.Fatalf("the deployment failed as %q", d.Reason)
	}
	if _, err := jc.IdentityToken(t.Context(), ""); err != nil {
		t.Errorf("a lost job: %v", err)
	}
	l.deploy(path, "update")
	l.claim("b")
	_, err := jc.IdentityToken(t.Context(), "")
	wantCode(t, "an overtaken job", err, 410)
}

func TestIdentityTokenRate(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.withKey()
	l.deploy(l.deployable("prod"), "update")
	job, _ := l.start("a")
	request := call{Method: "POST", Path: "/api/workflow/jobs/" + job.JobID + "/oidc-token", Auth: "token " + job.JobToken}
	for range 30 {
		l.send(request).want(200, nil)
	}
	if a := l.send(request).want(503, nil).says("30 identity tokens within a minute"); a.Header.Get("Retry-After") == "" {
		t.Error("the refusal has no Retry-After")
	}
}

// TestNoSigningKey checks that jobs run on a server that has no signing key.
func TestNoSigningKey(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	l.deploy(l.deployable("prod"), "update")
	job, jc := l.start("a")
	if job.OIDCToken != "" {
		t.Errorf("the first token is %q", job.OIDCToken)
	}
	_, err := jc.IdentityToken(t.Context(), "")
	wantCode(t, "a request without a key", err, 503)
	var set struct{ Keys []json.RawMessage }
	l.send(call{Method: "GET", Path: "/oidc/.well-known/jwks", Auth: "none"}).want(200, &set)
	if set.Keys == nil || len(set.Keys) != 0 {
		t.Errorf("the key set is %+v", set)
	}
}

// TestCloudCredentials checks that a definition names the session, and that the settings are
// refused where a cloud provider would refuse them.
func TestCloudCredentials(t *testing.T) {
	l := newLab(t, storetest.SQLite(t), deployments.Options{})
	path := l.deployable("prod")
	aws := func(name string) map[string]any {
		return map[string]any{"operation": "update", "operationContext": map[string]any{"oidc": map[string]any{
			"aws": map[string]any{"roleArn": "arn:aws:iam::123456789012:role/r", "sessionName": name},
		}}}
	}
	l.do("POST", path, aws("a b")).want(400, nil).says("sessionName: contains ' '")
	l.do("POST", path, aws("${stack}")).want(400, nil).says("unknown placeholder ${stack}")
	l.do("POST", path, aws("${organization.name}-${stack.name}-${operation}-${deployment.version}")).want(202, nil)
	_, jc := l.claim("a")
	def, err := jc.Definition(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := def.Deployment.OIDC.AWS.SessionName; got != "acme-prod-update-1" {
		t.Errorf("the session name is %q", got)
	}
}
