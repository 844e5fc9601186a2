package clients

import (
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/dev/e2e/harness"
	"workflowagent/internal/dev/must"
)

// TestClientsEnvironmentProviders checks that the clouds accept the identity of an environment that a deployment opens, that its
// log does not contain the credentials, and that a trust policy for another environment does not apply.
func TestClientsEnvironmentProviders(t *testing.T) {
	ctx := t.Context()
	roots := x509.NewCertPool()
	stand := must.Get(clouds.Start(clouds.Trust{Roots: roots}))(t)
	t.Cleanup(stand.Close)
	ca := filepath.Join(t.TempDir(), "clouds.pem")
	harness.Write(t, ca, stand.CAPEM, 0o600)
	t.Setenv("HTTPS_PROXY", stand.ProxyURL) // of the server
	t.Setenv("SSL_CERT_FILE", ca)
	w, issuer, certificate := startIssuingSite(t)
	roots.AddCert(certificate)
	org := w.Server.Organization
	stand.Trust(func(trust *clouds.Trust) {
		trust.Issuer, trust.Audience, trust.Subject = issuer, "aws:"+org, "pulumi:environments:org:"+org+":env:app/login"
	})
	environments := "/api/esc/environments/" + org
	for _, e := range []struct {
		name       string
		definition map[string]any
	}{
		{"login", map[string]any{"values": map[string]any{"aws": map[string]any{"fn::open::aws-login": map[string]any{"oidc": map[string]any{
			"roleArn": clouds.RoleARN, "sessionName": "of-${context.pulumi.user.login}", "duration": "1h",
		}}}}}},
		{"prod", map[string]any{"imports": []string{"app/login"}, "values": map[string]any{"key": "${aws.secretAccessKey}"}}},
	} {
		must.OK(t, w.Server.Call(ctx, http.MethodPost, environments, map[string]string{"project": "app", "name": e.name}, nil))
		must.OK(t, w.Server.Call(ctx, http.MethodPatch, environments+"/app/"+e.name, e.definition, nil))
	}
	must.Get(w.StartAgent(ctx, "process", nil))(t)
	repo := w.Repo(ctx, t)
	s := w.NewStack(ctx, t, "box", "dev", "", nil)
	d := s.Finish(ctx, t, s.Deploy(ctx, t, "update", repo.URL, "echo the key is $(pulumi env open "+org+"/app/prod key --format string)"))
	calls, log := stand.Calls(), s.Log(ctx, t, d)
	if d.Status != "succeeded" || len(calls) != 1 || calls[0].Form["RoleSessionName"] != "of-admin" || !strings.Contains(log, "the key is [secret]") {
		t.Fatalf("ended as %+v after %+v:\n%s", d, calls, log)
	}
	for _, secret := range calls[0].Tokens {
		if strings.Contains(log, secret) {
			t.Errorf("the log contains %s", secret)
		}
	}
	stand.Trust(func(trust *clouds.Trust) { trust.Subject = "pulumi:environments:org:" + org + ":env:app/prod" }) // which imports it
	err := w.Server.Call(ctx, http.MethodPost, environments+"/app/prod/open?duration=1h", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "the trust policy of the role does not accept the subject") {
		t.Errorf("with a policy for another environment: %v", err)
	}
}
