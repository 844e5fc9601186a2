package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
)

// trustIssuer registers an issuer at a server, sets the issuer's policies and returns the issuer's
// path.
func trustIssuer(ctx context.Context, t *testing.T, s *lab.Server, issuer map[string]any, policies ...map[string]any) string {
	t.Helper()
	base := "/api/orgs/" + s.Organization
	var made, policy struct{ ID string }
	must.OK(t, s.Call(ctx, http.MethodPost, base+"/oidc/issuers", issuer, &made))
	must.OK(t, s.Call(ctx, http.MethodGet, base+"/auth/policies/oidcissuers/"+made.ID, nil, &policy))
	must.OK(t, s.Call(ctx, http.MethodPatch, base+"/auth/policies/"+policy.ID, map[string]any{"policies": policies}, nil))
	return base + "/oidc/issuers/" + made.ID
}

// exchange sends a form to the token endpoint of a server and returns the status and the response.
func exchange(ctx context.Context, t *testing.T, s *lab.Server, token, tokenType, scope string) (int, map[string]any) {
	t.Helper()
	form := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {"urn:pulumi:org:" + s.Organization},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}, "subject_token": {token},
		"requested_token_type": {"urn:pulumi:token-type:access_token:" + tokenType}, "scope": {scope},
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/api/oauth/token", strings.NewReader(form.Encode())))(t)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer func() { _ = res.Body.Close() }()
	var answer map[string]any
	must.OK(t, json.NewDecoder(res.Body).Decode(&answer))
	return res.StatusCode, answer
}

func poll(ctx context.Context, t *testing.T, s *lab.Server, token string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/deployments/poll", nil))(t)
	req.Header.Set("Authorization", "token "+token)
	res := must.Get(http.DefaultClient.Do(req))(t)
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// thumbprintOf returns the SHA-256 of a server's certificate, as openssl shows it to an
// administrator.
func thumbprintOf(t *testing.T, address string) string {
	t.Helper()
	u := must.Get(url.Parse(address))(t)
	conn := must.Get((&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", u.Host))(t)
	defer func() { _ = conn.Close() }()
	sum := sha256.Sum256(conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}

// TestClientsLogInByOIDC exchanges identity tokens for access tokens of the stock CLI and of an
// agent pool. The OpenID provider is real, and its certificate authority is unknown.
func TestClientsLogInByOIDC(t *testing.T) {
	ctx := t.Context()
	w := harness.StartSite(t, "")
	must.OK(t, w.MakePool(ctx))
	issuer := must.Get(lab.StartIssuer(ctx, t.TempDir(), os.Stderr))(t)
	t.Cleanup(issuer.Close)
	registration := map[string]any{"name": "lab", "url": issuer.URL}
	err := w.Server.Call(ctx, http.MethodPost, "/api/orgs/"+w.Server.Organization+"/oidc/issuers", registration, nil)
	if err == nil || !strings.Contains(err.Error(), "is not trusted") {
		t.Fatalf("registering an issuer with an unknown authority: %v", err)
	}
	registration["thumbprints"] = []string{thumbprintOf(t, issuer.URL)}
	path := trustIssuer(
		ctx, t, w.Server, registration,
		map[string]any{"decision": "allow", "tokenType": "personal", "userLogin": "admin", "rules": map[string]string{"sub": "repo:acme/*", "claims.branch": "main"}},
		map[string]any{"decision": "allow", "tokenType": "runner", "runnerID": w.Pool.ID, "rules": map[string]string{"sub": "host:*", "groups": "agents"}},
		map[string]any{"decision": "deny", "tokenType": "runner", "runnerID": w.Pool.ID, "rules": map[string]string{"sub": "host:old"}},
	)
	audience := "urn:pulumi:org:" + w.Server.Organization
	idToken := func(who lab.Identity) string {
		t.Helper()
		who.Audience = audience
		token := must.Get(issuer.IDToken(ctx, who))(t)
		return token
	}
	ci := idToken(lab.Identity{Subject: "repo:acme/app", Claims: map[string]any{"claims": map[string]any{"branch": "main"}}})

	cli := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, w.Tools.Pulumi(), append(args, "--non-interactive", "--color=never")...)
		cmd.Dir, cmd.Env = w.Dir, w.Tools.Env(w.Home, "", "")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	file := filepath.Join(w.Dir, "id-token")
	harness.Write(t, file, []byte(ci), 0o600)
	login := []string{"login", w.Server.URL, "--oidc-token", "file://" + file, "--oidc-org", w.Server.Organization}
	if out, err := cli(append(login, "--oidc-user", "admin", "--oidc-expiration", "10m")...); err != nil {
		t.Fatalf("pulumi login: %v\n%s", err, out)
	}
	if out, err := cli("whoami"); err != nil || strings.TrimSpace(out) != "admin" {
		t.Errorf("pulumi whoami: %v\n%s", err, out)
	}
	if out, err := cli("stack", "ls", "--all"); err != nil {
		t.Errorf("pulumi stack ls: %v\n%s", err, out)
	}
	if out, err := cli(login...); err == nil || !strings.Contains(out, "unauthorized_client") {
		t.Errorf("logging in as the organization, which no policy allows: %v\n%s", err, out)
	}

	agents := map[string]any{"groups": []string{"other", "agents"}}
	host := idToken(lab.Identity{Subject: "host:7", Claims: agents, MoreAudiences: []string{"else"}})
	status, answer := exchange(ctx, t, w.Server, host, "runner", "runner:"+w.Pool.ID)
	runner, _ := answer["access_token"].(string)
	if status != http.StatusOK || answer["token_type"] != "token" || answer["expires_in"] != 7200.0 {
		t.Fatalf("exchanging for a runner token answered %d %v", status, answer)
	}
	if got := poll(ctx, t, w.Server, runner); got != http.StatusNoContent {
		t.Errorf("polling with the runner token answered %d", got)
	}
	for name, who := range map[string]lab.Identity{
		"denied":       {Subject: "host:old", Claims: agents},
		"not a member": {Subject: "host:8"},
		"expired":      {Subject: "host:7", Claims: agents, Lifetime: -time.Minute},
	} {
		if status, answer := exchange(ctx, t, w.Server, idToken(who), "runner", "runner:default"); status != http.StatusBadRequest {
			t.Errorf("a token that is %s got %d %v", name, status, answer)
		}
	}

	must.OK(t, issuer.Rotate(ctx))
	rotated := idToken(lab.Identity{Subject: "host:7", Claims: agents})
	if status, answer = exchange(ctx, t, w.Server, rotated, "runner", "runner:default"); status != http.StatusServiceUnavailable && status != http.StatusOK {
		t.Errorf("right after a rotation: %d %v", status, answer)
	}
	if harness.FullScale { // the server fetches the keys at most every 30 s
		waiting, cancel := context.WithTimeout(ctx, harness.Patience)
		defer cancel()
		err := child.Poll(waiting, time.Second, func() (bool, error) {
			status, answer := exchange(ctx, t, w.Server, rotated, "runner", "runner:default")
			if status != http.StatusOK && status != http.StatusServiceUnavailable {
				return false, fmt.Errorf("after a rotation: %d %v", status, answer)
			}
			return status == http.StatusOK, nil
		})
		if err != nil {
			t.Error(err)
		}
	}

	must.OK(t, w.Server.Call(ctx, http.MethodDelete, path, nil, nil))
	if got := poll(ctx, t, w.Server, runner); got != http.StatusUnauthorized {
		t.Errorf("polling after the issuer was deleted answered %d", got)
	}
	if out, err := cli("stack", "ls", "--all"); err == nil || !strings.Contains(out, "requires logging in") {
		t.Errorf("the CLI is still logged in: %v\n%s", err, out)
	}
	log := harness.Read(t, w.Server.LogFile)
	for name, secret := range map[string]string{"identity": ci, "host's identity": host, "runner": runner} {
		if bytes.Contains(log, []byte(secret)) {
			t.Errorf("the server's log holds the %s token", name)
		}
	}
	if !bytes.Contains(log, []byte("a policy denies it")) {
		t.Error("the server's log does not give the reason for a refused exchange")
	}
}
