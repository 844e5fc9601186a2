package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/dev/fakes/evaluator"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/api"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/system"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/environments"
	programs "workflowagent/internal/server/environments/evaluator"
	"workflowagent/internal/server/environments/opening"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/invitations"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/organizations"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/server/policies/exceptions"
	"workflowagent/internal/server/policies/results"
	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/recovery"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/storage/usage"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/triggers"
	"workflowagent/internal/server/vcs/catalog"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/server/webhooks"
)

func TestMain(m *testing.M) {
	code := storetest.Main(m)
	if code == 0 {
		code = checkCoverage()
	}
	os.Exit(code)
}

// loopback permits calls to the fakes of the tests.
var loopback = outbound.Reach{Internal: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

type fixture struct {
	t           testing.TB
	db          *store.DB
	identity    *identity.Service
	stacks      *stacks.Service
	service     *deployments.Service // set by newLab only
	evaluations *evaluations.Service
	triggers    *triggers.Service
	issuer      *issuer.Service // without keys until a test calls Maintain
	webhooks    *webhooks.Service
	policies    *policies.Service
	results     *results.Service
	forges      *integrations.Service
	events      *dispatch.Service
	sources     *sources.Service
	server      *httptest.Server
	admin       string // the administrator's token

	runnerDir string // with the binaries for agents; empty until a test adds one
}

type options struct {
	lease       time.Duration
	limits      request.Limits
	deployments deployments.Options
	releases    string
	quota       int64
	packSize    int64
	restarted   bool // an earlier fixture has set up the database; the fixture has no administrator's token
}

func newFixture(t testing.TB, o options) *fixture {
	t.Helper()
	return newFixtureOn(t, storetest.SQLite(t), o)
}

func newFixtureOn(t testing.TB, db *store.DB, o options) *fixture {
	t.Helper()
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatalf("opening the secrets: %v", err)
	}
	limit := quota.New(db, storetest.Log(), o.quota)
	f := &fixture{
		t: t, db: db, identity: identity.New(db, storetest.Log()), runnerDir: t.TempDir(),
		stacks: stacks.New(db, stacks.Options{Log: storetest.Log(), Secrets: secrets, Lease: o.lease, Quota: limit, ExternalURL: "http://server.test", KeepDeleted: 720 * time.Hour}),
	}
	if !o.restarted {
		err = f.identity.Bootstrap(t.Context(), "acme", func(text string) error { f.admin = text; return nil })
		if err != nil {
			t.Fatalf("setting up the installation: %v", err)
		}
	}
	pool, d := pools.New(db, storetest.Log()), o.deployments
	d.Quota = limit
	d.Log, d.Secrets, d.Updates, d.Pools, d.ExternalURL = storetest.Log(), secrets, f.stacks, pool, "http://server.test"
	f.issuer = issuer.New(db, issuer.Options{Log: storetest.Log(), Secrets: secrets, URL: "https://issuer.test/oidc", Audiences: []string{"vault"}})
	d.Issuer = f.issuer
	f.forges = integrations.New(db, integrations.Options{
		Log: storetest.Log(), Secrets: secrets, ExternalURL: "http://server.test", Forges: catalog.Forges(), Reach: loopback,
	})
	d.Repositories = f.forges
	f.policies = policies.New(db, policies.Options{
		Log: storetest.Log(), Key: []byte("the key of addresses"), ExternalURL: "http://server.test", MaxBytes: o.packSize, Quota: limit,
	})
	f.evaluations = evaluations.New(db, evaluations.Options{Log: storetest.Log(), Locator: f.policies, ExternalURL: "http://server.test"})
	d.Evaluations = f.evaluations
	f.service = deployments.New(db, d)
	envs := environments.New(db, environments.Options{Log: storetest.Log(), Secrets: secrets, Quota: limit})
	f.sources = sources.New(db, sources.Options{Log: storetest.Log(), Integrations: f.forges, Sources: source.New(envs), Interval: 100 * time.Millisecond})
	f.events = dispatch.New(db, dispatch.Options{Log: storetest.Log(), Integrations: f.forges, Queue: f.service, Heard: f.sources.Heard, Interval: 100 * time.Millisecond})
	f.triggers = triggers.New(db, f.service, storetest.Log())
	f.webhooks = webhooks.New(db, webhooks.Options{
		Log: storetest.Log(), Secrets: secrets, Deploy: f.service.CreateIn,
		Receivers: &outbound.Client{Roots: issuerRoots(), Reach: loopback},
	})
	f.policies.Follow(policies.Hooks{Except: exceptions.Apply})
	f.results = results.New(db, results.Options{Log: storetest.Log(), Console: "http://console.test"})
	f.stacks.Follow(stacks.Hooks{Recorded: f.results.Recorded, Ended: f.results.Ended})
	envs.Use(&evaluator.Evaluator{})
	evaluators := programs.New(programs.Options{Log: storetest.Log(), Program: filepath.Join(f.runnerDir, "workflow-esc")}) // which is missing
	t.Cleanup(evaluators.Close)
	opens, err := opening.New(db, opening.Options{
		Log: storetest.Log(), Secrets: secrets, Environments: envs, Stacks: f.stacks, Evaluator: evaluators, Providers: providers.New(providers.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewServer(api.New(api.Deps{
		Grants: grants.New(db), Environments: envs, Opening: opens, Sources: f.sources,
		Log: storetest.Log(), Identity: f.identity, Stacks: f.stacks, Deployments: f.service, Triggers: f.triggers, Pools: pool,
		Drift: drift.New(db), Usage: usage.New(db), Webhooks: f.webhooks, Policies: f.policies, Evaluations: f.evaluations, Results: f.results, Exceptions: exceptions.NewService(db, nil), Forges: f.forges, Events: f.events, Audit: audit.New(db),
		Invitations:   invitations.New(db, storetest.Log()),
		Organizations: organizations.New(db, storetest.Log(), limit, 150),
		OIDC:          oidc.New(db, &outbound.Client{Roots: issuerRoots(), Reach: loopback}, storetest.Log()),
		Recovery:      recovery.New(db, f.service, storetest.Log()),
		RunnerDir:     f.runnerDir, ExternalURL: "http://server.test", Limits: o.limits,
		Issuer: f.issuer,
		Server: system.Server{Metrics: prometheus.NewRegistry(), MetricsToken: func() string { return metricsToken }, Releases: o.releases},
	}))
	t.Cleanup(f.server.Close)
	return f
}

// restored makes the organization acme wait for its release after a restore.
func (f *fixture) restored() {
	f.t.Helper()
	err := f.db.Write(f.t.Context(), scope.Server(), func(tx *store.Tx) error {
		org, err := tx.OrganizationByName("acme")
		if err != nil {
			return err
		}
		value, err := json.Marshal(recovery.Restored{
			Backup: time.Date(2026, 11, 29, 14, 5, 0, 0, time.UTC), Restored: tx.Now(), Prepared: true, Organizations: []recovery.Organization{{ID: org.ID}},
		})
		if err != nil {
			return err
		}
		return tx.SetInstallation(recovery.Name, value)
	})
	if err != nil {
		f.t.Fatalf("restoring the server: %v", err)
	}
}

const metricsToken = "the token of the metrics"

// metrics returns the server's metrics.
func (f *fixture) metrics() string {
	f.t.Helper()
	return string(f.send(call{Method: "GET", Path: "/metrics", Auth: "Bearer " + metricsToken}).want(200, nil).Body)
}

type answer struct {
	t      testing.TB
	call   string
	Status int
	Header http.Header
	Body   []byte
}

// call is a request. Body is nil, a []byte that is sent unchanged, or a value that is sent as JSON.
type call struct {
	Method, Path string
	Body         any
	Auth         string // the whole Authorization header; "" means the administrator's, "none" means no header
	Gzip         bool
	Header       map[string]string
}

// send sends a request. It checks the response against the public API's description if the
// description is available.
func (f *fixture) send(c call) answer {
	f.t.Helper()
	var body []byte
	switch b := c.Body.(type) {
	case nil:
	case []byte:
		body = b
	case string:
		body = []byte(b)
	default:
		var err error
		if body, err = json.Marshal(b); err != nil {
			f.t.Fatalf("encoding a request: %v", err)
		}
	}
	if c.Gzip {
		var buf bytes.Buffer
		z := gzip.NewWriter(&buf)
		if _, err := z.Write(body); err != nil {
			f.t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			f.t.Fatal(err)
		}
		body = buf.Bytes()
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, c.Method, f.server.URL+c.Path, bytes.NewReader(body))
	if err != nil {
		f.t.Fatalf("creating a request: %v", err)
	}
	if c.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	switch c.Auth {
	case "":
		req.Header.Set("Authorization", "token "+f.admin)
	case "none":
	default:
		req.Header.Set("Authorization", c.Auth)
	}
	for k, v := range c.Header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatalf("%s %s: %v", c.Method, c.Path, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatalf("%s %s: reading the response: %v", c.Method, c.Path, err)
	}
	checkContract(f.t, req, res, data)
	return answer{t: f.t, call: c.Method + " " + c.Path, Status: res.StatusCode, Header: res.Header, Body: data}
}

// do calls send with the administrator's token.
func (f *fixture) do(method, path string, body any) answer {
	f.t.Helper()
	return f.send(call{Method: method, Path: path, Body: body})
}

// want fails the test unless the status matches, and decodes the body into v unless v is nil.
func (a answer) want(status int, v any) answer {
	a.t.Helper()
	if a.Status != status {
		a.t.Fatalf("%s: status %d, body %s, want status %d", a.call, a.Status, a.Body, status)
	}
	if status >= 400 && a.Status != 499 {
		var e struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if err := json.Unmarshal(a.Body, &e); err != nil || e.Code != status || e.Message == "" {
			a.t.Errorf("%s: the error body is %s", a.call, a.Body)
		}
	}
	if v != nil {
		if err := json.Unmarshal(a.Body, v); err != nil {
			a.t.Fatalf("%s: decoding %s: %v", a.call, a.Body, err)
		}
	}
	return a
}

func (a answer) says(text string) answer {
	a.t.Helper()
	if !strings.Contains(string(a.Body), text) {
		a.t.Errorf("%s: the body is %s, want a message with %q", a.call, a.Body, text)
	}
	return a
}

func (f *fixture) stack(name string) string {
	f.t.Helper()
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": name}).want(200, nil)
	return "/api/stacks/acme/proj/" + name
}

func program() map[string]any {
	return map[string]any{
		"name": "proj", "runtime": "yaml", "main": "", "description": "", "options": map[string]any{},
		"config": map[string]any{}, "metadata": map[string]any{"message": "hi", "environment": map[string]string{"git.head": "abc"}},
	}
}

type update struct {
	f     *fixture
	path  string
	token string
}

func (f *fixture) start(stack, kind string) update {
	f.t.Helper()
	var created struct{ UpdateID string }
	f.do("POST", stack+"/"+kind, program()).want(200, &created)
	u := update{f: f, path: stack + "/update/" + created.UpdateID}
	var started struct{ Token string }
	f.do("POST", u.path, map[string]any{}).want(200, &started)
	if started.Token == "" {
		f.t.Fatal("starting an update returned no token")
	}
	u.token = started.Token
	return u
}

func (u update) send(method, suffix string, body any) answer {
	u.f.t.Helper()
	return u.f.send(call{Method: method, Path: u.path + suffix, Body: body, Auth: "update-token " + u.token, Gzip: true})
}
