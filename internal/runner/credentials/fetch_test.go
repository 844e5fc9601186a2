package credentials

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/dev/clouds"
	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/workflow"
)

const (
	subject = "pulumi:deploy:org:acme:project:shop:stack:dev:operation:update:scope:write"
	trusted = "pulumi:deploy:org:acme:project:shop:stack:*"
)

func TestMain(m *testing.M) {
	calls.First, calls.Max = 10*time.Millisecond, 20*time.Millisecond
	os.Exit(m.Run())
}

// testIssuer is shared by the tests, because generating its key takes long.
var testIssuer = sync.OnceValues(clouds.NewIssuer)

// fixture is a job whose identity the stand-ins of the clouds trust.
type fixture struct {
	t      *testing.T
	issuer *clouds.Issuer
	clouds *clouds.Clouds
	env    Env
	given  []string
	masks  *redact.Set

	mu      sync.Mutex
	notices []string
	subject string
	refused error // the answer of the server, if it issues no token
	issued  int
	span    time.Duration
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	issuer, err := testIssuer()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clouds.Start(clouds.Trust{Issuer: issuer.URL, Audience: "acme", Subject: trusted, Roots: issuer.Roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, c.CAPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, issuer: issuer, clouds: c, masks: redact.New(), subject: subject, span: 15 * time.Minute}
	f.env = Env{
		Vars:  map[string]string{"https_proxy": c.ProxyURL, "SSL_CERT_FILE": ca, "HOME": t.TempDir()},
		Given: func(name string) bool { return slices.Contains(f.given, name) },
	}
	return f
}

func (f *fixture) IdentityToken(context.Context, string) (protocol.IdentityToken, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return protocol.IdentityToken{}, f.refused
	}
	f.issued++
	text, err := f.issuer.Token(f.subject, "acme", f.span)
	return protocol.IdentityToken{Token: text, ExpiresAt: time.Now().Add(f.span)}, err
}

func (f *fixture) notify(line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices = append(f.notices, line)
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

func (f *fixture) keeper(s workflow.OIDCSettings) *Keeper {
	f.t.Helper()
	k, err := New(Options{Settings: &s, Server: f, JobDir: f.t.TempDir(), Mask: maskIn(f.masks), Notify: f.notify, Log: quiet()})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(k.Close)
	return k
}

func (f *fixture) fetch(s workflow.OIDCSettings) (*Keeper, string, error) {
	f.t.Helper()
	k := f.keeper(s)
	var out strings.Builder
	err := k.Fetch(f.t.Context(), f.env, &out)
	// No output of this package contains a secret.
	text := out.String()
	if err != nil {
		text += err.Error()
	}
	if f.masks.Has([]byte(text)) {
		f.t.Errorf("the output contains a secret: %s", text)
	}
	return k, out.String(), err
}

func awsSettings() workflow.OIDCSettings {
	return workflow.OIDCSettings{AWS: &workflow.OIDCAWS{RoleARN: clouds.RoleARN, SessionName: "acme-shop-dev"}}
}

func azureSettings() workflow.OIDCSettings {
	return workflow.OIDCSettings{Azure: &workflow.OIDCAzure{ClientID: clouds.ClientID, TenantID: clouds.TenantID, SubscriptionID: clouds.SubscriptionID}}
}

func gcpSettings() workflow.OIDCSettings {
	return workflow.OIDCSettings{GCP: &workflow.OIDCGCP{ProjectID: clouds.ProjectID, WorkloadPoolID: clouds.PoolID, ProviderID: clouds.ProviderID, ServiceAccount: clouds.ServiceAccount}}
}

// secrets returns the secrets that the clouds have issued.
func (f *fixture) secrets() (all []string) {
	for _, call := range f.clouds.Calls() {
		all = append(all, call.Tokens...)
	}
	return all
}

func TestFetchAWS(t *testing.T) {
	f := newFixture(t)
	f.env.Vars["AWS_REGION"] = "eu-central-1"
	s := awsSettings()
	s.AWS.Duration, s.AWS.PolicyARNs = "30m", []string{"arn:aws:iam::aws:policy/ReadOnlyAccess", "arn:aws:iam::1:policy/b"}
	k, out, err := f.fetch(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{subject, `audience "acme"`, f.issuer.URL, clouds.RoleARN, `session "acme-shop-dev"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the log lacks %s: %s", want, out)
		}
	}
	calls := f.clouds.Calls()
	if len(calls) != 1 || calls[0].Host != "sts.eu-central-1.amazonaws.com" || calls[0].Form["DurationSeconds"] != "1800" ||
		calls[0].Form["PolicyArns.member.1.arn"] != s.AWS.PolicyARNs[0] || calls[0].Form["PolicyArns.member.2.arn"] != s.AWS.PolicyARNs[1] {
		t.Fatalf("got %+v", calls)
	}
	vars := k.ForStep(t.Context())
	want := calls[0].Tokens
	if vars["AWS_ACCESS_KEY_ID"] != want[0] || vars["AWS_SECRET_ACCESS_KEY"] != want[1] || vars["AWS_SESSION_TOKEN"] != want[2] {
		t.Errorf("got %v, want %v", vars, want)
	}
	data, err := os.ReadFile(vars[envTokenFile])
	if err != nil || string(data) != vars[EnvToken] || vars[EnvToken] == "" {
		t.Errorf("the token file has %q, want %q: %v", data, vars[EnvToken], err)
	}
	for _, secret := range append(f.secrets(), vars[EnvToken]) {
		for _, text := range []string{secret, jsonOf(t, secret)} {
			if got := f.masks.String("x " + text + " y"); strings.Contains(got, secret) {
				t.Errorf("%s is not masked: %s", text, got)
			}
		}
	}
	k.Close()
	if _, err := os.Stat(vars[envTokenFile]); !os.IsNotExist(err) {
		t.Errorf("the token file remains: %v", err)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFetchAWSProfile checks the credentials that AWS's libraries renew.
func TestFetchAWSProfile(t *testing.T) {
	f := newFixture(t)
	own := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(own, []byte("[profile other]\nregion = eu-west-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.env.Vars[envProfile], f.env.Vars[envConfig] = profile, own
	k, _, err := f.fetch(awsSettings())
	if err != nil {
		t.Fatal(err)
	}
	vars := k.ForStep(t.Context())
	for _, name := range awsNames {
		if vars[name] != "" {
			t.Errorf("%s is set, which AWS's libraries prefer to the profile", name)
		}
	}
	config, err := os.ReadFile(vars[envConfig])
	file := k.path(fileAWS)
	if want := "[profile other]\nregion = eu-west-1\n[profile pulumi-oidc]\ncredential_process = cat \"" + file + "\"\n"; err != nil || string(config) != want {
		t.Errorf("the configuration is %q, %v; want %q", config, err, want)
	}
	var got map[string]any
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &got) != nil || got["Version"] != 1.0 || got["AccessKeyId"] != f.secrets()[0] ||
		got["SecretAccessKey"] != f.secrets()[1] || got["SessionToken"] != f.secrets()[2] {
		t.Errorf("got %s, %v", data, err)
	}
	if at, err := time.Parse(time.RFC3339, got["Expiration"].(string)); err != nil || time.Until(at) < 50*time.Minute {
		t.Errorf("the expiry is %v, %v", got["Expiration"], err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

// TestFilesThatCannotBeRead checks that a path in the job's environment does not hold the job.
func TestFilesThatCannotBeRead(t *testing.T) {
	for _, name := range []string{envConfig, "SSL_CERT_FILE", "AWS_CA_BUNDLE"} {
		f := newFixture(t)
		f.env.Vars[envProfile], f.env.Vars[name] = profile, "/dev/zero"
		if _, _, err := f.fetch(awsSettings()); err == nil || !strings.Contains(err.Error(), "/dev/zero is not a regular file") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestFetchAzure(t *testing.T) {
	f := newFixture(t)
	k, _, err := f.fetch(azureSettings())
	if err != nil {
		t.Fatal(err)
	}
	vars := k.ForStep(t.Context())
	for name, want := range map[string]string{
		"ARM_CLIENT_ID": clouds.ClientID, "ARM_TENANT_ID": clouds.TenantID, "ARM_SUBSCRIPTION_ID": clouds.SubscriptionID, "ARM_USE_OIDC": "true",
		"AZURE_CLIENT_ID": clouds.ClientID, "AZURE_TENANT_ID": clouds.TenantID, "AZURE_FEDERATED_TOKEN_FILE": k.path(fileToken),
		// A provider prefers these, and does not renew them.
		"ARM_OIDC_TOKEN": "", "ARM_OIDC_TOKEN_FILE_PATH": "",
	} {
		if vars[name] != want {
			t.Errorf("%s is %q, want %q", name, vars[name], want)
		}
	}
	ask := func(method, address, bearer string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct{ Value string }
		_ = json.NewDecoder(resp.Body).Decode(&answer)
		return resp.StatusCode, answer.Value
	}
	address, bearer := vars["ARM_OIDC_REQUEST_URL"], vars["ARM_OIDC_REQUEST_TOKEN"]
	if code, value := ask("GET", address+"&audience=api://AzureADTokenExchange", bearer); code != 200 || value != vars[EnvToken] {
		t.Errorf("got %d %q", code, value)
	}
	for _, wrong := range []string{"", "x", bearer[1:], bearer + "x"} {
		if code, value := ask("GET", address, wrong); code != 401 || value != "" {
			t.Errorf("with the bearer token %q: %d %q", wrong, code, value)
		}
	}
	if code, value := ask("POST", address, bearer); code != 404 || value != "" {
		t.Errorf("POST: %d %q", code, value)
	}
	if got := f.masks.String(bearer); strings.Contains(got, bearer) {
		t.Error("the bearer token is not masked")
	}
	k.Close()
	if resp, err := http.Get(address); err == nil {
		resp.Body.Close()
		t.Error("the endpoint outlives the keeper")
	}
}

func TestFetchGCP(t *testing.T) {
	f := newFixture(t)
	s := gcpSettings()
	s.GCP.Region, s.GCP.TokenLifetime = "europe-west3", "45m"
	k, _, err := f.fetch(s)
	if err != nil {
		t.Fatal(err)
	}
	vars := k.ForStep(t.Context())
	var got map[string]any
	if err := json.Unmarshal([]byte(vars["GOOGLE_CREDENTIALS"]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type":                              "external_account",
		"audience":                          "//iam.googleapis.com/projects/424242/locations/global/workloadIdentityPools/deployments/providers/pulumi",
		"subject_token_type":                "urn:ietf:params:oauth:token-type:jwt",
		"token_url":                         "https://sts.googleapis.com/v1/token",
		"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + clouds.ServiceAccount + ":generateAccessToken",
		"service_account_impersonation":     map[string]any{"token_lifetime_seconds": 2700.0},
		"credential_source":                 map[string]any{"file": k.path(fileToken)},
	}
	if a, b := jsonOf(t, got), jsonOf(t, want); a != b {
		t.Errorf("got %s, want %s", a, b)
	}
	if data, err := os.ReadFile(vars["GOOGLE_APPLICATION_CREDENTIALS"]); err != nil || string(data) != vars["GOOGLE_CREDENTIALS"] {
		t.Errorf("the file has %q, %v", data, err)
	}
	if vars["GOOGLE_REGION"] != "europe-west3" || vars["GOOGLE_PROJECT"] != "" {
		t.Errorf("got region %q, project %q", vars["GOOGLE_REGION"], vars["GOOGLE_PROJECT"])
	}
	if calls := f.clouds.Calls(); len(calls) != 2 || calls[1].Status != 200 {
		t.Errorf("got %+v", calls)
	}
}

// TestOwnCredentialsWin checks that credentials in the settings are never mixed with ours.
func TestOwnCredentialsWin(t *testing.T) {
	for given, s := range map[string]workflow.OIDCSettings{
		"AWS_SECRET_ACCESS_KEY": awsSettings(), "ARM_CLIENT_SECRET": azureSettings(), "GOOGLE_CREDENTIALS": gcpSettings(),
	} {
		f := newFixture(t)
		f.given = []string{given}
		k, out, err := f.fetch(s)
		if err != nil || !strings.Contains(out, "skipped") || !strings.Contains(out, given) || len(f.clouds.Calls()) != 0 {
			t.Errorf("%s: %v, %s", given, err, out)
		}
		for name := range k.ForStep(t.Context()) {
			if name != EnvToken && name != envTokenFile {
				t.Errorf("with %s in the settings, %s is set", given, name)
			}
		}
	}
}

// TestRefusals checks the sentence for each refusal, and that each says what to do.
func TestRefusals(t *testing.T) {
	type change func(*fixture, *clouds.Trust, *workflow.OIDCSettings)
	issuer := func(_ *fixture, tr *clouds.Trust, _ *workflow.OIDCSettings) { tr.Issuer = "https://other" }
	audience := func(_ *fixture, tr *clouds.Trust, _ *workflow.OIDCSettings) { tr.Audience = "other" }
	wrongSubject := func(_ *fixture, tr *clouds.Trust, _ *workflow.OIDCSettings) { tr.Subject = "other" }
	keys := func(_ *fixture, tr *clouds.Trust, _ *workflow.OIDCSettings) { tr.Roots = nil }
	expired := func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) { f.span = -time.Minute }
	for _, tt := range []struct {
		name string
		s    workflow.OIDCSettings
		do   change
		want []string
	}{
		{"AWS issuer", awsSettings(), issuer, []string{"AWS: assuming the role " + clouds.RoleARN + ": InvalidIdentityToken: No OpenIDConnect provider", "create an identity provider for https://127"}},
		{"AWS audience", awsSettings(), audience, []string{"Incorrect token audience; add the audience \"acme\""}},
		{"AWS subject", awsSettings(), wrongSubject, []string{"AccessDenied: Not authorized", "trust policy allows", `subject "` + subject + `"`, `audience "acme"`}},
		{"AWS keys", awsSettings(), keys, []string{"Couldn't retrieve verification key", "reachable from the internet over https"}},
		{"AWS expired", awsSettings(), expired, []string{"ExpiredTokenException", "check the clock of the server"}},
		{"AWS duration", awsSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.AWS.Duration = "12h" }, []string{"exceeds the MaxSessionDuration", "operationContext.oidc.aws.duration"}},
		{"AWS session name", awsSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.AWS.SessionName = "a b" }, []string{"roleSessionName", "operationContext.oidc.aws.sessionName"}},
		{"AWS ARN", awsSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.AWS.RoleARN = "deployer" }, []string{`"deployer" is not the ARN of a role`}},
		{"AWS address", awsSettings(), func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) {
			f.env.Vars["AWS_ENDPOINT_URL_STS"] = "http://sts.example.com"
		}, []string{"must be an https URL"}},
		{"AWS host", awsSettings(), func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) {
			f.env.Vars["AWS_ENDPOINT_URL_STS"] = "https://127.0.0.1:1"
		}, []string{"cannot reach 127.0.0.1:1", "connection refused", "check the network, the proxy"}},
		{"AWS proxy", awsSettings(), func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) {
			f.env.Vars["AWS_REGION"] = "mars-1"
		}, []string{"cannot reach sts.mars-1.amazonaws.com", "Bad Gateway"}},
		{"AWS authority", awsSettings(), func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) {
			delete(f.env.Vars, "SSL_CERT_FILE")
		}, []string{"certificate", "check the network, the proxy and the certificate authorities"}},
		{"Azure issuer", azureSettings(), issuer, []string{"Azure: signing in as the application " + clouds.ClientID + ": AADSTS700211", "exactly https://127"}},
		{"Azure audience", azureSettings(), audience, []string{"AADSTS700212", `to "acme"`}},
		{"Azure subject", azureSettings(), wrongSubject, []string{"AADSTS700213", `federated credential to "` + subject + `"`}},
		{"Azure keys", azureSettings(), keys, []string{"AADSTS90061", "reachable from the internet"}},
		{"Azure tenant", azureSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.Azure.TenantID = "x/../y" }, []string{"AADSTS90002", "operationContext.oidc.azure.tenantId"}},
		{"Azure client", azureSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.Azure.ClientID = "x" }, []string{"AADSTS700016", "clientId"}},
		{"GCP issuer", gcpSettings(), issuer, []string{"Google Cloud: exchanging the identity", "invalid_grant", "exactly https://127"}},
		{"GCP audience", gcpSettings(), audience, []string{"allowed audiences"}},
		{"GCP subject", gcpSettings(), wrongSubject, []string{"unauthorized_client", "attribute condition must accept the subject"}},
		{"GCP pool", gcpSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.GCP.WorkloadPoolID = "x" }, []string{"invalid_target", "workloadPoolId"}},
		{"GCP account", gcpSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.GCP.ServiceAccount = "x@y" }, []string{"acting as the service account x@y", "PERMISSION_DENIED", "roles/iam.workloadIdentityUser"}},
		{"GCP lifetime", gcpSettings(), func(_ *fixture, _ *clouds.Trust, s *workflow.OIDCSettings) { s.GCP.TokenLifetime = "2h" }, []string{"INVALID_ARGUMENT", "tokenLifetime"}},
		{"no token", awsSettings(), func(f *fixture, _ *clouds.Trust, _ *workflow.OIDCSettings) {
			f.refused = &protocol.APIError{Code: 404, Message: "Not Found: no issuer"}
		}, []string{"the server issued no identity token", "no issuer"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.clouds.Trust(func(tr *clouds.Trust) { tt.do(f, tr, &tt.s) })
			k, _, err := f.fetch(tt.s)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "Trace ID") {
				t.Errorf("not one sentence: %q", err)
			}
			for name := range k.ForStep(t.Context()) {
				if name != EnvToken && name != envTokenFile {
					t.Errorf("%s is set", name)
				}
			}
		})
	}
}

// TestBusyCloud checks that a temporary failure is not an error.
func TestBusyCloud(t *testing.T) {
	f := newFixture(t)
	f.clouds.Fail(2)
	if _, _, err := f.fetch(awsSettings()); err != nil {
		t.Error(err)
	}
}

func TestCancelledFetch(t *testing.T) {
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := f.keeper(awsSettings()).Fetch(ctx, f.env, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEndpoints(t *testing.T) {
	const role = ":iam::1:role/r"
	for _, tt := range []struct {
		arn  string
		vars map[string]string
		want string
	}{
		{"arn:aws" + role, nil, "https://sts.amazonaws.com/"},
		{"arn:aws" + role, map[string]string{"AWS_DEFAULT_REGION": "us-west-2"}, "https://sts.us-west-2.amazonaws.com/"},
		{"arn:aws" + role, map[string]string{"AWS_DEFAULT_REGION": "us-west-2", "AWS_REGION": "eu-west-1"}, "https://sts.eu-west-1.amazonaws.com/"},
		{"arn:aws" + role, map[string]string{"AWS_REGION": "evil.example/?"}, "https://sts.amazonaws.com/"},
		{"arn:aws-cn" + role, nil, "https://sts.cn-north-1.amazonaws.com.cn/"},
		{"arn:aws-us-gov" + role, nil, "https://sts.us-gov-west-1.amazonaws.com/"},
		{"arn:aws-eusc" + role, nil, "https://sts.eusc-de-east-1.amazonaws.eu/"},
		{"arn:aws" + role, map[string]string{"AWS_ENDPOINT_URL": "https://a", "AWS_ENDPOINT_URL_STS": "https://b"}, "https://b"},
		{"arn:aws" + role, map[string]string{"AWS_ENDPOINT_URL": "https://a", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "https://sts.amazonaws.com/"},
	} {
		if got, err := stsEndpoint(tt.vars, tt.arn); err != nil || got != tt.want {
			t.Errorf("%s with %v: %q, %v; want %q", tt.arn, tt.vars, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		vars map[string]string
		want azureCloud
	}{
		{nil, azurePublic},
		{map[string]string{"ARM_ENVIRONMENT": "usgovernment"}, azureClouds["usgovernment"]},
		{map[string]string{"AZURE_ENVIRONMENT": "AzureChinaCloud"}, azureClouds["china"]},
		{map[string]string{"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"}, azureClouds["usgovernment"]},
		{map[string]string{"AZURE_AUTHORITY_HOST": "login.example.com"}, azureCloud{"https://login.example.com", azurePublic.management}},
	} {
		if got := azureCloudOf(tt.vars); got != tt.want {
			t.Errorf("with %v: %v, want %v", tt.vars, got, tt.want)
		}
	}
	settings := gcpSettings()
	k := &Keeper{opts: Options{Settings: &settings}}
	c, err := k.configGCP(map[string]string{"GOOGLE_CLOUD_UNIVERSE_DOMAIN": "example.com"})
	if err != nil || c.TokenURL != "https://sts.example.com/v1/token" || c.UniverseDomain != "example.com" || !strings.HasPrefix(c.Audience, "//iam.example.com/") {
		t.Errorf("got %+v, %v", c, err)
	}
}
