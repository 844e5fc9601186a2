package clients

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// startIssuingSite starts a site whose server's issuer has an https URL, and returns the issuer and its
// certificate.
func startIssuingSite(t *testing.T) (w *harness.Site, issuer string, certificate *x509.Certificate) {
	t.Helper()
	var target *url.URL
	front := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		httputil.NewSingleHostReverseProxy(target).ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	issuer = front.URL + "/oidc"
	w = harness.StartSite(t, "", "--oidc-issuer-url", issuer)
	target = must.Get(url.Parse(w.Server.URL))(t)
	return w, issuer, front.Certificate()
}

// TestClientsCloudCredentials checks that the clouds accept the identity of a deployment, that its
// steps have the credentials, and that a trust policy for another stack does not apply.
func TestClientsCloudCredentials(t *testing.T) {
	ctx := t.Context()
	w, issuer, certificate := startIssuingSite(t)
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	org := w.Server.Organization
	stand := must.Get(clouds.Start(clouds.Trust{
		Issuer: issuer, Audience: org, Roots: roots,
		Subject: "pulumi:deploy:org:" + org + ":project:box:stack:dev:operation:update:scope:write",
	}))(t)
	t.Cleanup(stand.Close)
	ca := filepath.Join(w.Dir, "clouds.pem")
	harness.Write(t, ca, stand.CAPEM, 0o600)
	must.Get(w.StartAgent(ctx, "process", map[string]string{"ca_certificate_file": ca}, "HTTPS_PROXY="+stand.ProxyURL))(t)
	repo := w.Repo(ctx, t)
	oidc := map[string]any{"operationContext": map[string]any{"oidc": map[string]any{
		"aws":   map[string]any{"roleArn": clouds.RoleARN, "sessionName": "${organization.name}-${project.name}-${deployment.version}", "duration": "20m"},
		"azure": map[string]any{"clientId": clouds.ClientID, "tenantId": clouds.TenantID, "subscriptionId": clouds.SubscriptionID},
		"gcp":   map[string]any{"projectId": clouds.ProjectID, "workloadPoolId": clouds.PoolID, "providerId": clouds.ProviderID, "serviceAccount": clouds.ServiceAccount},
	}}}
	deploy := func(stack string) (harness.Deployment, string) {
		s := w.NewStack(ctx, t, "box", stack, "", nil)
		must.OK(t, w.Server.Call(ctx, http.MethodPost, s.Path("settings"), oidc, nil))
		d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL,
			`echo "AWS has $AWS_ACCESS_KEY_ID and $AWS_SESSION_TOKEN"`,
			`test "$(cat "$PULUMI_OIDC_TOKEN_FILE")" = "$PULUMI_OIDC_TOKEN" && echo "the token is $PULUMI_OIDC_TOKEN"`,
			`test -n "$ARM_OIDC_REQUEST_URL" && test -s "$GOOGLE_APPLICATION_CREDENTIALS" && echo "Azure and Google too"`,
		))
		return d, s.Log(ctx, t, d)
	}
	d, log := deploy("dev")
	if d.Status != "succeeded" {
		t.Fatalf("ended as %+v:\n%s", d, log)
	}
	for _, want := range []string{
		"AWS: assumed the role " + clouds.RoleARN + ` as session "` + org + `-box-1" until `, "Azure: signed in", "Google Cloud: can act",
		"AWS has [secret] and [secret]", "the token is [secret]", "Azure and Google too",
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if calls := stand.Calls(); len(calls) != 4 || calls[0].Form["DurationSeconds"] != "1200" {
		t.Errorf("the clouds received %+v", calls)
	}
	d, log = deploy("other")
	if d.Status != "failed" || !strings.Contains(d.Message, "AccessDenied") || !strings.Contains(log, `:stack:other:operation:update:scope:write"`) || strings.Contains(log, "AWS has") {
		t.Errorf("with a policy for another stack, the deployment ended as %+v:\n%s", d, log)
	}
}

// TestClientsLogInAsDeployment logs the stock CLI in with the identity token of the deployment in
// which it runs. The server is both the issuer of the token and the service that trusts it.
func TestClientsLogInAsDeployment(t *testing.T) {
	ctx := t.Context()
	w, issuer, _ := startIssuingSite(t)
	org := w.Server.Organization
	trustIssuer(
		ctx, t, w.Server, map[string]any{"name": "deployments", "url": issuer, "thumbprints": []string{thumbprintOf(t, issuer)}},
		map[string]any{
			"decision": "allow", "tokenType": "personal", "userLogin": "admin",
			"rules": map[string]string{"aud": org, "sub": "pulumi:deploy:org:" + org + ":project:box:stack:dev:*"},
		},
	)
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	repo := w.Repo(ctx, t)
	deploy := func(stack string) (harness.Deployment, string) {
		t.Helper()
		s := w.NewStack(ctx, t, "box", stack, "", nil)
		d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, `
unset PULUMI_ACCESS_TOKEN
export PULUMI_CREDENTIALS_PATH=$PWD/.own
pulumi login "$PULUMI_BACKEND_URL" --oidc-token "file://$PULUMI_OIDC_TOKEN_FILE" --oidc-org `+org+` --oidc-user admin &&
	pulumi whoami --verbose && pulumi stack ls --all`))
		return d, s.Log(ctx, t, d)
	}
	d, log := deploy("dev")
	if d.Status != "succeeded" {
		t.Fatalf("ended as %+v:\n%s", d, log)
	}
	for _, want := range []string{"User: admin", org + "/box/dev"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if d, log = deploy("other"); d.Status != "failed" || !strings.Contains(log, "unauthorized_client") {
		t.Errorf("with a policy for another stack, the deployment ended as %+v:\n%s", d, log)
	}
}
