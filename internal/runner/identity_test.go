package runner_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

const identity = "pulumi:deploy:org:acme:project:shop:stack:dev:operation:update:scope:write"

func credentialsStep() workflow.Step {
	return workflow.Step{Name: "Fetch cloud provider credentials via OIDC", Run: workflow.RunCredentials}
}

// cloudJob is a job with credentials for all clouds. Its tokens have the given lifetime.
func cloudJob(t *testing.T, lifetime time.Duration, commands ...string) (*harness, *clouds.Clouds, *clouds.Issuer) {
	t.Helper()
	issuer, err := clouds.NewIssuer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	stand, err := clouds.Start(clouds.Trust{Issuer: issuer.URL, Audience: "acme", Subject: identity, Roots: issuer.Roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stand.Close)
	d := deployment(shellSteps(commands...), workflow.OperationUpdate)
	d.Steps = append([]workflow.Step{d.Steps[0], credentialsStep()}, d.Steps[1:]...)
	d.Deployment.OIDC = &workflow.OIDCSettings{
		AWS:   &workflow.OIDCAWS{RoleARN: clouds.RoleARN, SessionName: "acme-shop-dev"},
		Azure: &workflow.OIDCAzure{ClientID: clouds.ClientID, TenantID: clouds.TenantID, SubscriptionID: clouds.SubscriptionID},
		GCP:   &workflow.OIDCGCP{ProjectID: clouds.ProjectID, WorkloadPoolID: clouds.PoolID, ProviderID: clouds.ProviderID, ServiceAccount: clouds.ServiceAccount},
	}
	d.Env = map[string]string{"HTTPS_PROXY": stand.ProxyURL, "ARM_SUBSCRIPTION_ID": "of the settings"}
	h := newHarness(t, d)
	h.launch.CACertPEM = string(stand.CAPEM)
	issue := func() string {
		text, err := issuer.Token(identity, "acme", lifetime)
		if err != nil {
			t.Error(err)
		}
		return text
	}
	h.launch.OIDCToken = issue()
	h.job.IdentityToken = func() protocol.IdentityToken {
		return protocol.IdentityToken{Token: issue(), ExpiresAt: time.Now().Add(lifetime)}
	}
	return h, stand, issuer
}

// TestCloudCredentials checks what the steps see, that the token is renewed while a step runs, and
// that no credentials are in the log.
func TestCloudCredentials(t *testing.T) {
	kept := t.TempDir()
	h, stand, _ := cloudJob(t, 12*time.Second,
		`env >"$KEPT/first"
		echo "AWS: $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $AWS_SESSION_TOKEN; Azure: $ARM_OIDC_REQUEST_TOKEN; Google: $GOOGLE_CREDENTIALS"
		until [ "$(cat "$PULUMI_OIDC_TOKEN_FILE")" != "$PULUMI_OIDC_TOKEN" ]; do :; done
		cat "$PULUMI_OIDC_TOKEN_FILE"; cp "$PULUMI_OIDC_TOKEN_FILE" "$KEPT/renewed"; ls -l "$PULUMI_OIDC_TOKEN_FILE" | cut -c1-10`,
		`env >"$KEPT/second"`,
	)
	h.environ = append(h.environ, "KEPT="+kept)
	if code, _ := h.run(); code != 0 {
		t.Fatalf("exit code %d: %s%s%s", code, h.text(1), h.text(2), h.log.String())
	}
	read := func(name string) map[string]string {
		data, err := os.ReadFile(filepath.Join(kept, name))
		if err != nil {
			t.Fatal(err)
		}
		vars := map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			vars[name] = value
		}
		return vars
	}
	first, second := read("first"), read("second")
	for name, want := range map[string]string{
		"AWS_ACCESS_KEY_ID": "ASIA", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "ARM_CLIENT_ID": clouds.ClientID,
		"ARM_USE_OIDC": "true", "ARM_SUBSCRIPTION_ID": "of the settings", "GOOGLE_CREDENTIALS": `{"type":"external_account"`,
		"GOOGLE_APPLICATION_CREDENTIALS": h.dir, "AZURE_FEDERATED_TOKEN_FILE": h.dir, "PULUMI_OIDC_TOKEN": "ey",
	} {
		if got := first[name]; got == "" || !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	renewed, err := os.ReadFile(filepath.Join(kept, "renewed"))
	if err != nil || string(renewed) == first["PULUMI_OIDC_TOKEN"] || second["PULUMI_OIDC_TOKEN"] == first["PULUMI_OIDC_TOKEN"] {
		t.Errorf("the token was not renewed: %v", err)
	}
	h.wantLog(1, identity, "AWS: assumed the role "+clouds.RoleARN, "Azure: signed in", "Google Cloud: can act")
	h.wantLog(2, "AWS: [secret] [secret] [secret]; Azure: [secret]; Google: {", "[secret]-rw-------")
	secrets := []string{string(renewed), first["PULUMI_OIDC_TOKEN"], first["ARM_OIDC_REQUEST_TOKEN"]}
	for _, call := range stand.Calls() {
		secrets = append(secrets, call.Tokens...)
	}
	for _, secret := range secrets {
		if strings.Contains(h.text(1)+h.text(2)+h.text(3)+h.log.String(), secret) {
			t.Errorf("a log contains the secret %s", secret)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(h.dir, "pulumi.oidc*")); len(left) > 0 {
		t.Errorf("the job leaves %v", left)
	}
}

// TestRefusedCredentials checks that a refusal ends the job with one sentence, before its other
// steps.
func TestRefusedCredentials(t *testing.T) {
	h, stand, _ := cloudJob(t, 15*time.Minute, "echo must not run")
	stand.Trust(func(tr *clouds.Trust) { tr.Subject = "other" })
	code, left := h.run()
	if code != 1 || left.Reason != workflow.ReasonExitCode || h.text(2) != "" {
		t.Errorf("exit code %d, %+v, %q", code, left, h.text(2))
	}
	h.wantLog(1, "error: AWS: assuming the role "+clouds.RoleARN+": AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity; check that the role exists")
	if got := h.oneResult(); !strings.Contains(got.Message, "AccessDenied") || !strings.Contains(got.Message, "Fetch cloud provider credentials") {
		t.Errorf("the result is %+v", got)
	}
}

// TestCancelWhileFetching checks that a cancellation does not wait for a cloud.
func TestCancelWhileFetching(t *testing.T) {
	h, _, _ := cloudJob(t, 15*time.Minute, "echo must not run")
	h.launch.OIDCToken = "" // the runner asks the server for one
	h.server.OnFault(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/oidc-token") {
			h.server.Update(func() { h.job.Cancel = true })
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	code, left := h.run()
	if code == 0 || left.Reason != workflow.ReasonCancelled || h.text(2) != "" {
		t.Errorf("exit code %d, %+v, %q", code, left, h.text(2))
	}
}

// TestCredentialsWithoutIssuer checks the error for a server that issues no tokens.
func TestCredentialsWithoutIssuer(t *testing.T) {
	h, _, _ := cloudJob(t, 15*time.Minute, "echo must not run")
	h.launch.OIDCToken, h.job.IdentityToken = "", nil
	if code, left := h.run(); code != 1 || left.Status != workflow.StatusFailed {
		t.Errorf("exit code %d, %+v", code, left)
	}
	h.wantLog(1, "error: the server issued no identity token for this deployment")
}
