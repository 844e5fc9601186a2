package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"workflowagent/internal/checkup"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/backup"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
)

func discardLog() *stdlog.Logger { return stdlog.New(io.Discard, "", 0) }

const (
	ok       = checkup.StatusOK
	toReview = checkup.StatusWarn
	failed   = checkup.StatusFail
	skipped  = checkup.StatusSkip
)

func TestAllIsWell(t *testing.T) {
	s := newSite(t)
	s.start()
	report := s.examine()
	for _, name := range []string{"config", "key", "data", "disk", "database", "schema", "key-ring", "server", "dns", "tcp", "console", "clock", "client", "headers", "streams", "bodies", "evaluator"} {
		s.want(report, name, ok)
	}
	for _, name := range []string{"files", "certificate", "rights", "tls", "issuer", "agents"} {
		s.want(report, name, skipped)
	}
	s.want(report, "url", toReview, "leads to this server", "only from this machine")
	s.want(report, "console", ok, "PULUMI_CONSOLE_DOMAIN=127.0.0.1:")
	if !report.OK {
		t.Error("the report is not OK")
	}
}

// TestBeforeTheFirstStart checks that the doctor works without a server, and creates nothing.
func TestBeforeTheFirstStart(t *testing.T) {
	s := newSite(t)
	report := s.examine()
	s.want(report, "server", toReview, "is free")
	s.want(report, "database", ok, "does not exist yet")
	s.want(report, "schema", ok, "empty")
	s.want(report, "key", skipped, "the first start creates it")
	for _, name := range []string{"tcp", "url", "client", "agents", "issuer"} {
		s.want(report, name, skipped)
	}
	if left := must.Get(os.ReadDir(s.data()))(t); len(left) > 0 || !report.OK {
		t.Errorf("the doctor left %v; the report is OK: %t", left, report.OK)
	}
	s.options.Offline = true
	s.want(s.examine(), "dns", skipped, "--offline")
}

// TestBehindTLS puts a well configured proxy with a certificate of the company in front.
func TestBehindTLS(t *testing.T) {
	s := newSite(t)
	s.with(front{from: "127.0.0.2", rewrite: appends, cert: s.certificate(company, x509.Certificate{}, "localhost")})
	s.set("trusted_proxies", "127.0.0.2")
	s.set("client_address", "x-forwarded-for")
	s.start()
	report := s.examine()
	for _, name := range []string{"dns", "tcp", "tls", "clock", "client", "headers", "streams", "bodies", "issuer"} {
		s.want(report, name, ok)
	}
	s.want(report, "issuer", ok, "publishes all keys")
}

// TestIssuer checks that the doctor fetches the issuer's documents with the authorities of clients, and reports a
// failure only if a cloud needs the documents.
func TestIssuer(t *testing.T) {
	private := must.Get(testcert.NewAuthority("Private"))(t)
	s := newSite(t)
	var broken atomic.Bool
	s.with(front{from: "127.0.0.2", rewrite: appends, cert: s.certificate(private, x509.Certificate{}, "localhost"), modify: func(r *http.Response) {
		if broken.Load() && strings.HasSuffix(r.Request.URL.Path, issuer.ConfigurationPath) {
			r.StatusCode = http.StatusForbidden
		}
	}})
	s.set("trusted_proxies", "127.0.0.2")
	s.set("client_address", "x-forwarded-for")
	s.options.CAPEM = private.PEM()
	s.start()
	s.want(s.examine("key", "server", "url", "issuer"), "issuer", ok, "publishes all keys")
	broken.Store(true)
	s.want(s.examine("key", "server", "url", "issuer"), "issuer", skipped, "no deployment settings and no environments request cloud credentials", "403")
	token := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(s.data(), "admin-token")))(t)))
	for _, call := range []struct{ path, body string }{
		{"/api/stacks/organization/hello", `{"stackName":"dev"}`},
		{"/api/stacks/organization/hello/dev/deployments/settings", `{"operationContext":{"oidc":{"aws":{"roleArn":"arn:aws:iam::123456789012:role/deploy","sessionName":"deploy"}}}}`},
	} {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.listen+call.path, strings.NewReader(call.body)))(t)
		req.Header.Set("Authorization", "token "+token)
		res := must.Get(http.DefaultClient.Do(req))(t)
		text := must.Get(io.ReadAll(res.Body))(t)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: status %d: %s", call.path, res.StatusCode, text)
		}
	}
	s.want(s.examine("key", "server", "url", "issuer"), "issuer", toReview, "403")
}

// TestSignIn checks that the doctor fetches the configuration of each identity provider with the provider's authority.
func TestSignIn(t *testing.T) {
	private := must.Get(testcert.NewAuthority("Private"))(t)
	s := newSite(t)
	s.file("private-ca.pem", string(private.PEM()))
	var issuer string
	answer := func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer": issuer, "authorization_endpoint": issuer + "/auth", "token_endpoint": issuer + "/token", "jwks_uri": issuer + "/keys",
		})
	}
	issuer = s.front(front{cert: s.certificate(private, x509.Certificate{}), answer: http.HandlerFunc(answer)})
	provider := "  - {id: corp, issuer: " + issuer + ", client_id: x, allow_everyone: true"
	s.set("sign_in_file", s.file("sign-in.yaml", "providers:\n"+provider+", ca_certificate_file: private-ca.pem}\n"))
	s.want(s.examine("sign-in"), "sign-in", ok, issuer)
	s.file("sign-in.yaml", "providers:\n"+provider+"}\n")
	s.want(s.examine("sign-in"), "sign-in", failed, "at 1 of 1 identity provider", "corp: fetching the configuration of "+issuer, "not trusted", "ca_certificate_file")
	s.options.Offline = true
	s.want(s.examine("sign-in"), "sign-in", skipped, "--offline")
}

// TestNotTwice checks that the doctor reports a problem by one check.
func TestNotTwice(t *testing.T) {
	s := newSite(t)
	s.tls(x509.Certificate{}, "deployments.example.com")
	must.OK(t, os.Remove(s.flags["tls_key_file"]))
	report := s.examine("files", "certificate")
	s.want(report, "files", failed)
	s.want(report, "certificate", skipped, "because of: files")

	s = newSite(t)
	s.start()
	s.set("external_url", "https://no-such-host.invalid")
	report = s.examine()
	s.want(report, "dns", failed)
	s.want(report, "issuer", skipped, "because of: URL")
}

type finderCase struct {
	finding finding
	name    string
	brk     func(s *site)
	check   string
	want    checkup.Status
	words   []string
}

// TestIssuerOfEnvironments checks that the doctor knows environments that log in to clouds.
func TestIssuerOfEnvironments(t *testing.T) {
	s := newSite(t)
	s.start()
	s.want(s.examine("key", "server", "url", "issuer"), "issuer", skipped, "does not use https")
	s.execute(`INSERT INTO environments (id, org_id, project, name, created_by, sealed_key, last_number, protected, created_at, modified_at)
		SELECT 'e', id, 'app', 'prod', '', '', 1, 0, 1, 1 FROM organizations ORDER BY created_at DESC LIMIT 1`)
	s.execute(`INSERT INTO environment_revisions (environment_id, number, definition, created_by, created_at, replacement, retracted_by, retracted_at, reason)
		VALUES ('e', 1, 'values: {a: {fn::open::aws-login: {oidc: {}}}}', '', 1, 0, '', 0, '')`)
	s.want(s.examine("key", "server", "url", "issuer"), "issuer", toReview, "environments log in to clouds", "does not use https")
}

// file writes a file and returns its path.
func (s *site) file(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	must.OK(s.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// authority writes a file with the certificate of an authority and returns its path.
func (s *site) authority() string { return s.file("authority.pem", string(company.PEM())) }

// signIn configures an identity provider with two files.
func (s *site) signIn(secret, authority string) {
	s.t.Helper()
	s.set("sign_in_file", s.file("sign-in.yaml", "providers:\n  - id: corp\n    issuer: https://login.example.com\n    client_id: x\n    allow_everyone: true\n"+
		"    client_secret_file: "+secret+"\n    ca_certificate_file: "+authority+"\n"))
}

// tls configures certificate files for the server.
func (s *site) tls(template x509.Certificate, hosts ...string) {
	s.t.Helper()
	cert, key := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	must.OK(s.t, testcert.Write(must.Get(company.Issue(&template, hosts...))(s.t), cert, key))
	s.set("tls_cert_file", cert)
	s.set("tls_key_file", key)
	s.set("external_url", "https://deployments.example.com")
}

// another answers at the address to listen on. Without a handler, it has no certificate for TLS.
func (s *site) another(h http.Handler) {
	s.t.Helper()
	l := must.Get(net.Listen("tcp", s.listen))(s.t)
	other := httptest.NewUnstartedServer(h)
	other.Config.ErrorLog = discardLog()
	other.Listener.Close()
	other.Listener = l
	if h == nil {
		other.Listener = tls.NewListener(l, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none yet") }})
	}
	other.Start()
	s.t.Cleanup(other.Close)
}

func answers(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, text)
	})
}

// execute changes the server's SQLite database.
func (s *site) execute(statement string, args ...any) {
	s.t.Helper()
	db := must.Get(store.Open(s.t.Context(), "sqlite:"+filepath.Join(s.data(), "server.db"), store.Options{Log: storetest.Log(), BlobDir: filepath.Join(s.data(), "blobs")}))(s.t)
	must.OK(s.t, db.Write(s.t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec(statement, args...)
		return err
	}))
	must.OK(s.t, db.Close())
}

var hostCases = []finderCase{
	{configInvalid, "no configuration", func(s *site) { s.options.ConfigErr = errors.New("FILE:1: a: b\nFILE:2: c: d") }, "config", failed, []string{"FILE:1: a: b", "FILE:2: c: d"}},
	{configInvalid, "a bad sign-in file", func(s *site) { s.set("sign_in_file", s.file("sign-in.yaml", "x: y\n")) }, "files", failed, []string{"sign_in_file"}},
	{configInvalid, "an empty secret of a provider", func(s *site) { s.signIn(s.file("secret", " \n"), s.authority()) }, "files", failed, []string{"client_secret_file", "is empty"}},
	{configInvalid, "no certificate of a provider's authority", func(s *site) { s.signIn(s.file("secret", "x"), s.file("ca.pem", "x")) }, "files", failed, []string{"ca_certificate_file"}},
	{fileUnreadable, "no secret of a provider", func(s *site) { s.signIn("/absent", s.authority()) }, "files", failed, []string{"client_secret_file of corp: /absent: no such file"}},
	{fileUnreadable, "files of a provider that the server's user cannot read", func(s *site) {
		asRoot(s.t)
		must.OK(s.t, os.Chown(s.data(), 12345, 12345))
		s.signIn(s.file("secret", "x"), s.authority())
	}, "files", failed, []string{"client_secret_file of corp: ", "ca_certificate_file of corp: ", "user 12345"}},
	{fileUnreadable, "no authority of the database", func(s *site) {
		s.environ = []string{"WORKFLOW_SERVER_DATABASE=postgres://u@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=/absent"}
	}, "files", failed, []string{"sslrootcert in database: /absent: no such file"}},
	{databaseTLS, "no authority of the database", func(s *site) {
		s.environ = []string{"WORKFLOW_SERVER_DATABASE=postgres://u@127.0.0.1:1/d?sslmode=verify-full&sslrootcert=/absent"}
	}, "database", failed, []string{"open /absent: no such file", "let the server's user read these files"}},
	{databaseTLS, "a file that is no authority", func(s *site) {
		s.environ = []string{"WORKFLOW_SERVER_DATABASE=postgres://u@127.0.0.1:1/d?sslrootcert=" + s.file("ca.pem", "x")}
	}, "database", failed, []string{"add CA", "sslrootcert"}},
	{configInvalid, "an address that cannot be parsed", func(s *site) {
		s.environ = []string{"WORKFLOW_SERVER_DATABASE=postgres://u@127.0.0.1:1/d?target_session_attrs=x"}
	}, "database", failed, []string{"target_session_attrs", "correct the setting database"}},
	{configWarnings, "an unknown variable", func(s *site) { s.environ = []string{"WORKFLOW_SERVER_LISEN=x"} }, "config", toReview, []string{"WORKFLOW_SERVER_LISEN"}},
	{urlMissing, "all addresses", func(s *site) { s.set("listen", "0.0.0.0:8800") }, "config", failed, []string{"external_url"}},
	{fileUnreadable, "no key file", func(s *site) {
		s.tls(x509.Certificate{}, "deployments.example.com")
		must.OK(s.t, os.Remove(s.flags["tls_key_file"]))
	}, "files", failed, []string{"tls_key_file", "no such file"}},
	{certificateInvalid, "no certificate", func(s *site) {
		s.tls(x509.Certificate{}, "deployments.example.com")
		must.OK(s.t, os.WriteFile(s.flags["tls_cert_file"], []byte("x"), 0o600))
	}, "certificate", failed, []string{"cert.pem", "PEM"}},
	{certificateExpired, "an old certificate", func(s *site) {
		s.tls(x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}, "deployments.example.com")
	}, "certificate", failed, []string{"renew"}},
	{certificateExpires, "a certificate near its end", func(s *site) {
		s.tls(x509.Certificate{NotBefore: time.Now().Add(-2000 * time.Hour), NotAfter: time.Now().Add(50 * time.Hour)}, "deployments.example.com")
	}, "certificate", toReview, []string{"in 49 hours"}},
	{certificateNames, "a certificate for another host", func(s *site) { s.tls(x509.Certificate{}, "other.example.com") }, "certificate", failed, []string{"other.example.com", "not for deployments.example.com"}},
	{certificateKeyOpen, "a key for everyone", func(s *site) {
		s.tls(x509.Certificate{}, "deployments.example.com")
		must.OK(s.t, os.Chmod(s.flags["tls_key_file"], 0o644))
	}, "certificate", toReview, []string{"chmod o="}},
	{dataInvalid, "a file for the data", func(s *site) { s.set("data_dir", "/dev/null") }, "data", failed, []string{"not a directory"}},
	{dataOpen, "data for everyone", func(s *site) { must.OK(s.t, os.Chmod(s.data(), 0o777)) }, "data", failed, []string{"chmod 700"}},
	{dataForeign, "files of another user", func(s *site) {
		asRoot(s.t)
		s.file("data/server.db", "")
		must.OK(s.t, os.Chown(s.data(), 12345, 12345))
	}, "data", failed, []string{"server.db belongs to user 0", "chown -R 12345"}},
	{fileUnreadable, "a file that the server's user cannot read", func(s *site) {
		asRoot(s.t)
		must.OK(s.t, os.Chown(s.data(), 12345, 12345))
		s.set("metrics_token_file", s.file("token", "secret"))
	}, "files", failed, []string{"metrics_token_file", "user 12345"}},
	{diskFull, "a full disk", func(s *site) {
		s.options.Disk = func(string) (int64, int64, error) { return 100 << 30, 1 << 20, nil }
	}, "disk", failed, []string{"1.0 MiB of 100 GiB"}},
	{keyMissing, "no master key", func(s *site) { s.set("master_key_file", "/does/not/exist") }, "key", failed, []string{"openssl rand"}},
	{keyInvalid, "a master key that is none", func(s *site) { s.set("master_key_file", s.file("key", "x")) }, "key", failed, []string{"32 bytes"}},
	{keyWrong, "another master key", func(s *site) {
		s.start()
		s.set("master_key_file", s.file("key", strings.Repeat("A", 43)+"="))
	}, "key-ring", failed, []string{"use the master key"}},
	{keyMissing, "a lost master key", func(s *site) {
		s.start()
		must.OK(s.t, os.Remove(filepath.Join(s.data(), "master-key")))
	}, "key-ring", failed, []string{"does not exist", "secrets discard"}},
	{databaseFailed, "no SQLite database", func(s *site) { s.file("data/server.db", strings.Repeat("no database\n", 100)) }, "database", failed, []string{"not a database"}},
	{schemaOlder, "an older schema", func(s *site) {
		s.start()
		s.execute("DELETE FROM goose_db_version WHERE version_id = (SELECT MAX(version_id) FROM goose_db_version)")
	}, "schema", toReview, []string{"back up"}},
	{schemaNewer, "a newer schema", func(s *site) {
		s.start()()
		s.execute("INSERT INTO oldest_programs (migration, release) VALUES (9999, 'v9.1.0')")
	}, "schema", failed, []string{"v9.1.0"}},
	{schemaNewer, "a schema of another program", func(s *site) {
		s.start()()
		s.execute("UPDATE goose_db_version SET version_id = 99999 WHERE version_id = (SELECT MAX(version_id) FROM goose_db_version)")
	}, "schema", failed, []string{"99999"}},
	{restorePaused, "a restored database", func(s *site) {
		s.start()
		s.execute("INSERT INTO installation (name, value) VALUES ('restored', $1)", []byte(`{"backup": "2026-11-29T14:05:00Z"}`))
	}, "restore", toReview, []string{"backup of 2026-11-29T14:05:00Z", "has not started since"}},
	{evaluatorMissing, "no evaluator", func(s *site) { s.options.Evaluator = filepath.Join(s.dir, "absent") }, "evaluator", toReview, []string{"absent does not exist", "install workflow-esc of version v1"}},
	{evaluatorFails, "an evaluator of another version", func(s *site) { s.evaluator(outdated) }, "evaluator", toReview, []string{"does not start", `version "v0", which does not fit`}},
	{agentsOld, "an old agent", func(s *site) {
		s.start()
		now := time.Now().UnixMicro()
		s.execute("INSERT INTO agent_pools (id, org_id, name, description, created_at, last_seen_at, last_job_at) SELECT 'p', id, 'p', '', 0, 0, 0 FROM organizations WHERE id <> 'deleted-stacks'")
		s.execute(`INSERT INTO pool_agents (pool_id, agent_id, session_id, hostname, ip, pid, platform, version, slots, every_us, live_until, last_seen_at)
			VALUES ('p', 'a', '', '', '', '', '', 'v0.9.1', 1, 0, 0, $1), ('p', 'b', '', '', '', '', '', 'v1.0.0', 1, 0, 0, $1)`, now)
	}, "agents", toReview, []string{"1 of 2 agents", "v0.9.1"}},
	{backupMissing, "no backup", func(s *site) {
		s.start()
		s.set("external_url", "https://deployments.example.com")
	}, "backup", toReview, []string{"no backup was written yet", "backup_schedule"}},
	{backupMissing, "an old backup", func(s *site) {
		s.start()
		s.set("external_url", "https://deployments.example.com")
		s.backups(backup.Status{Last: &backup.Written{Time: time.Now().Add(-9 * 24 * time.Hour), Path: "/b/1"}})
	}, "backup", toReview, []string{"9 d old", "/b/1"}},
	{backupOverdue, "no first backup", func(s *site) {
		s.start()
		s.set("backup_schedule", "0 3 * * *")
	}, "backup", toReview, []string{"no backup was written yet"}},
	{backupOverdue, "a late backup", func(s *site) {
		s.set("backup_schedule", "0 * * * *")
		s.start()
		s.backups(backup.Status{Last: &backup.Written{Time: time.Now().Add(-121 * time.Minute), Path: "/b/1"}})
	}, "backup", toReview, []string{"2 h 1 min old", "0 * * * *"}},
	{backupFailed, "a failed backup", func(s *site) {
		s.set("backup_schedule", "0 * * * *")
		s.start()
		now := time.Now()
		s.backups(backup.Status{Last: &backup.Written{Time: now.Add(-2 * time.Minute), Path: "/b/1"}, Failure: &backup.Failure{Time: now.Add(-time.Minute), Error: "no space"}})
	}, "backup", toReview, []string{"no space", "/b/1"}},
	{backupUnsealed, "a backup without the master key", func(s *site) {
		s.set("backup_schedule", "0 * * * *")
		s.start()
		s.set("backup_passphrase_file", s.file("passphrase", "correct horse battery staple"))
		s.backups(backup.Status{Last: &backup.Written{Time: time.Now().Add(-time.Minute), Path: "/b/2", Key: true}, Unsealed: "/b/1"})
	}, "backup", toReview, []string{"/b/1", "backup_passphrase_file", "restart"}},
}

// TestBackups checks when the doctor has nothing to say against the backups.
func TestBackups(t *testing.T) {
	s := newSite(t)
	s.start()
	s.want(s.examine("backup"), "backup", skipped, "only for this machine")
	s.backups(backup.Status{Last: &backup.Written{Time: time.Now().Add(-7 * 24 * time.Hour), Path: "/b/1"}})
	s.want(s.examine("backup"), "backup", ok, "/b/1")
	s.set("backup_schedule", "0 * * * *")
	s.backups(backup.Status{Last: &backup.Written{Time: time.Now().Add(-55 * time.Minute), Path: "/b/1"}, Failure: &backup.Failure{Time: time.Now().Add(-time.Hour)}})
	s.want(s.examine("backup"), "backup", ok, "/b/1")
}

// backups stores what the installation knows of its backups.
func (s *site) backups(status backup.Status) {
	s.t.Helper()
	s.execute("INSERT INTO installation (name, value) VALUES ('backups', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value", must.Get(json.Marshal(status))(s.t))
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
}

var networkCases = []finderCase{
	{addressTaken, "another program", func(s *site) { s.another(answers(http.StatusOK, "hello")) }, "server", failed, []string{"another program"}},
	{addressInvalid, "another machine's address", func(s *site) { s.set("listen", "192.0.2.1:8800") }, "server", failed, []string{"192.0.2.1"}},
	{serverStopped, "no server", func(s *site) {}, "server", toReview, []string{"is free", "start the server"}},
	{serverStopped, "no server on a unix socket", func(s *site) {
		s.set("listen", "unix:"+filepath.Join(s.dir, "http.sock"))
		s.set("external_url", "https://deployments.example.com")
	}, "server", toReview, []string{"http.sock"}},
	{serverNotReady, "a server without its database", func(s *site) {
		s.another(answers(http.StatusServiceUnavailable, `{"message":"the server is not ready"}`))
	}, "server", failed, []string{"not ready", "log"}},
	{certificateMissing, "no certificate by ACME yet", func(s *site) {
		s.another(nil)
		s.set("external_url", "https://deployments.example.com")
		s.set("acme_agree_to_terms", "true")
	}, "server", failed, []string{"no TLS certificate yet", "log"}},
	{serverForeign, "another server", func(s *site) {
		s.start()
		s.set("master_key_file", s.file("key", strings.Repeat("A", 43)+"="))
	}, "server", failed, []string{"status 404"}},
	{serverSettings, "a server from before TLS", func(s *site) {
		s.start()
		s.tls(x509.Certificate{}, "deployments.example.com")
	}, "server", toReview, []string{"other settings", "restart"}},
	{serverSettings, "a server from before the PROXY protocol", func(s *site) {
		s.start()
		s.set("trusted_proxies", "192.0.2.1")
		s.set("client_address", "proxy-protocol")
	}, "server", toReview, []string{"other settings", "restart"}},
	{serverSettings, "a server from before another address", func(s *site) {
		s.start()
		s.set("listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(must.Get(child.FreePort("127.0.0.1"))(s.t))))
	}, "server", toReview, []string{"a server runs (process " + strconv.Itoa(os.Getpid()) + ")", "restart"}},
	{serverSettings, "a server from before other settings", func(s *site) {
		s.startReloading(s.load)
		s.set("job_lost", "7m")
		s.set("log_level", "debug") // a reload applies it
	}, "server", toReview, []string{"runs with earlier values of job_lost", "restart"}},
	{serverSettings, "a server whose configuration became invalid", func(s *site) {
		s.startReloading(func() (config.Config, error) { return config.Config{}, errors.New("FILE:1: is wrong") })
	}, "server", toReview, []string{"cannot read its configuration: FILE:1: is wrong", "correct"}},
	{serverVersion, "an upgraded program", func(s *site) {
		s.start()
		s.options.Version = "v2"
	}, "server", toReview, []string{"v1", "v2"}},
	{clockDiffers, "a wrong clock", func(s *site) {
		s.with(front{modify: func(r *http.Response) {
			r.Header.Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		}})
		s.start()
	}, "clock", failed, []string{"ahead of that of the URL"}},
	{urlDNS, "an unknown host", func(s *site) { s.set("external_url", "https://no-such-host.invalid") }, "dns", failed, []string{"no-such-host.invalid"}},
	{urlConnect, "a closed port", func(s *site) {
		s.start()
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(s.t)
		s.set("external_url", "https://"+l.Addr().String())
		l.Close()
	}, "tcp", failed, []string{"refused"}},
	{urlTLS, "a certificate for another host", func(s *site) {
		c := must.Get(company.Issue(&x509.Certificate{}, "other.example.com"))(s.t)
		s.with(front{cert: &c})
		s.start()
	}, "tls", failed, []string{"other.example.com"}},
	{urlAuthority, "a self-signed certificate", func(s *site) {
		s.with(front{cert: s.certificate(nil, x509.Certificate{Subject: pkix.Name{CommonName: "self"}})})
		s.start()
	}, "tls", failed, []string{"self-signed", "--ca-certificate-file", "SSL_CERT_FILE"}},
	{urlChain, "a missing intermediate authority", func(s *site) {
		unknown := must.Get(testcert.NewAuthority("Intermediate"))(s.t)
		c := s.certificate(unknown, x509.Certificate{Subject: pkix.Name{CommonName: "server"}})
		c.Certificate = c.Certificate[:1]
		s.with(front{cert: c})
		s.start()
	}, "tls", failed, []string{"CN=Intermediate", "fullchain.pem"}},
	{urlExpires, "a certificate near its end", func(s *site) {
		s.with(front{cert: s.certificate(company, x509.Certificate{NotBefore: time.Now().Add(-2000 * time.Hour), NotAfter: time.Now().Add(50 * time.Hour)})})
		s.start()
	}, "tls", toReview, []string{"renew"}},
	{urlPlain, "plain http", func(s *site) {
		forward := must.Get(url.Parse(s.front(front{})))(s.t)
		s.options.Proxy = func(*http.Request) (*url.URL, error) { return forward, nil }
		s.set("external_url", "http://deployments.example.com")
		s.start()
	}, "tls", toReview, []string{"plain text"}},
	{urlLoopback, "loopback", func(s *site) { s.start() }, "url", toReview, []string{"only from this machine", "external_url"}},
	{urlFails, "a proxy without its server", func(s *site) {
		s.with(front{to: "127.0.0.1:1"})
		s.start()
	}, "url", failed, []string{"502", "the server answers at"}},
	{urlRedirects, "a redirect", func(s *site) {
		s.with(front{answer: http.RedirectHandler("https://login.example.com/", http.StatusFound)})
		s.start()
	}, "url", failed, []string{"login.example.com"}},
	{urlForeign, "another site", func(s *site) {
		s.with(front{answer: answers(http.StatusOK, "welcome")})
		s.start()
	}, "url", failed, []string{"another program"}},
	{urlOther, "a copy of the installation", func(s *site) {
		s.start()
		copied := newSite(s.t)
		must.OK(s.t, os.WriteFile(filepath.Join(copied.data(), "master-key"), must.Get(os.ReadFile(filepath.Join(s.data(), "master-key")))(s.t), 0o600))
		copied.start()
		s.with(front{to: copied.listen})
	}, "url", failed, []string{"not to the one at", "copy"}},
	{urlUnverified, "without the master key", func(s *site) {
		s.start()
		must.OK(s.t, os.Remove(filepath.Join(s.data(), "master-key")))
	}, "url", toReview, []string{"perhaps to another one"}},
	{consoleFails, "a console without its server", func(s *site) {
		s.set("console_url", s.front(front{to: "127.0.0.1:1"}))
		s.start()
	}, "console", failed, []string{"502"}},
	{consoleForeign, "another site as the console", func(s *site) {
		s.set("console_url", s.front(front{answer: answers(http.StatusOK, "welcome")}))
		s.start()
	}, "console", failed, []string{"another program"}},
}

// behind configures a proxy whose address is trusted to state the addresses of clients.
func behind(source string, f front) func(s *site) {
	return func(s *site) {
		f.from = "127.0.0.2"
		s.with(f)
		if source != "" {
			s.set("trusted_proxies", "127.0.0.2")
			s.set("client_address", source)
		}
		s.start()
	}
}

var proxyCases = []finderCase{
	{clientProxy, "no trusted proxy", behind("", front{rewrite: appends}), "client", toReview, []string{"127.0.0.2", "trusted_proxies", "(x-forwarded-for)"}},
	{clientUntrusted, "another proxy", func(s *site) {
		s.with(front{from: "127.0.0.3", rewrite: appends})
		s.set("trusted_proxies", "127.0.0.2")
		s.set("client_address", "x-forwarded-for")
		s.start()
	}, "client", toReview, []string{"127.0.0.3, which is not in trusted_proxies"}},
	{clientNoHeader, "no header", behind("x-forwarded-for", front{rewrite: func(r *http.Request) { r.Header.Del("X-Forwarded-For") }}), "client", failed, []string{"does not send x-forwarded-for", "forwarded"}},
	{clientNoHeader, "a header that states the proxy", behind("x-forwarded-for", front{rewrite: func(r *http.Request) {
		r.Header.Set("X-Forwarded-For", "unknown")
	}}), "client", toReview, []string{"127.0.0.2 of the proxy"}},
	{clientForged, "a header that clients send", behind("x-forwarded-for", front{}), "client", failed, []string{"forge"}},
	{clientForged, "another header that clients send", behind("forwarded", front{rewrite: appends}), "client", failed, []string{"forge", "append the client's address to forwarded"}},
	{clientBypass, "a way past the proxy", func(s *site) {
		s.set("trusted_proxies", "127.0.0.2")
		s.set("client_address", "x-forwarded-for")
		s.start()
	}, "client", toReview, []string{"straight to the server"}},
	{headerHost, "another host", behind("x-forwarded-for", front{rewrite: func(r *http.Request) {
		appends(r)
		r.Host = "backend:8800"
	}}), "headers", toReview, []string{"backend:8800"}},
	{headersRemoved, "headers of requests", behind("x-forwarded-for", front{rewrite: func(r *http.Request) {
		appends(r)
		r.Header.Del("X-Workflow-Doctor")
	}}), "headers", failed, []string{"X-Workflow-"}},
	{headersRemoved, "headers of answers", behind("x-forwarded-for", front{rewrite: appends, modify: func(r *http.Response) { r.Header.Del("X-Workflow-Doctor") }}), "headers", failed, []string{"X-Workflow-"}},
	{streamsBuffered, "a buffer", behind("x-forwarded-for", front{
		rewrite: appends, paths: "/workflow/doctor/stream", answer: answers(http.StatusOK, "event: first\ndata: {}\n\nevent: last\ndata: {}\n\n"),
	}), "streams", toReview, []string{"proxy_buffering off"}},
	{streamsBuffered, "no streams", behind("x-forwarded-for", front{rewrite: appends, paths: "/workflow/doctor/stream", answer: answers(http.StatusGatewayTimeout, "")}), "streams", failed, []string{"504"}},
	{bodiesRefused, "a limit", behind("x-forwarded-for", front{
		rewrite: appends, paths: "/workflow/doctor/body", answer: answers(http.StatusRequestEntityTooLarge, ""),
	}), "bodies", failed, []string{"64 MiB", "client_max_body_size"}},
	{issuerFails, "an unknown issuer", func(s *site) {
		s.set("oidc_issuer_url", "https://no-such-host.invalid")
		s.start()
	}, "issuer", toReview, []string{"no-such-host.invalid"}},
	{signInFails, "an unknown identity provider", func(s *site) {
		s.set("sign_in_file", s.file("sign-in.yaml", "providers: [{id: corp, issuer: 'https://no-such-host.invalid', client_id: x, allow_everyone: true}]\n"))
	}, "sign-in", failed, []string{"no-such-host.invalid"}},
	{issuerDiffers, "another issuer", func(s *site) {
		s.set("oidc_issuer_url", s.front(front{cert: s.certificate(company, x509.Certificate{}), answer: answers(http.StatusOK, `{"issuer":"https://other.example.com"}`)}))
		s.start()
	}, "issuer", failed, []string{"other.example.com", "oidc export"}},
}

func postgresCases(t *testing.T) []finderCase {
	t.Helper()
	admin := must.Get(url.Parse(storetest.PostgresURL(t)))(t)
	query := func(statement string) {
		t.Helper()
		must.OK(t, storetest.Execute(t.Context(), admin.String(), statement))
	}
	role := "doctor_" + strings.ToLower(strings.TrimPrefix(admin.Path, "/"))
	query("CREATE ROLE " + role + " LOGIN PASSWORD '" + password + "'")
	t.Cleanup(func() {
		_ = storetest.Execute(context.WithoutCancel(t.Context()), admin.String(), "DROP OWNED BY "+role)
		_ = storetest.Execute(context.WithoutCancel(t.Context()), admin.String(), "DROP ROLE "+role)
	})
	address := func(change func(u *url.URL)) func(s *site) {
		u := *admin
		u.User = url.UserPassword(role, password)
		if change != nil {
			change(&u)
		}
		return func(s *site) { s.environ = []string{"WORKFLOW_SERVER_DATABASE=" + u.String()} }
	}
	with := func(key, value string) func(u *url.URL) {
		return func(u *url.URL) {
			q := u.Query()
			q.Set(key, value)
			u.RawQuery = q.Encode()
		}
	}
	return []finderCase{
		{databaseUnreachable, "a closed port", address(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "database", failed, []string{"refused", "listen_addresses"}},
		{databaseRefused, "a wrong password", address(func(u *url.URL) { u.User = url.UserPassword(role, password+"x") }), "database", failed, []string{"password authentication failed", "correct database_password"}},
		{databaseMissing, "no database", address(func(u *url.URL) { u.Path = "/missing" }), "database", failed, []string{`"missing" does not exist`, "CREATE DATABASE"}},
		{databaseTLS, "no TLS", address(with("sslmode", "require")), "database", failed, []string{"TLS", "sslmode"}},
		{databaseFull, "too many connections", func(s *site) {
			query("ALTER ROLE " + role + " CONNECTION LIMIT 0")
			s.t.Cleanup(func() { query("ALTER ROLE " + role + " CONNECTION LIMIT -1") })
			address(nil)(s)
		}, "database", failed, []string{"too many connections", "max_connections"}},
		{rightsMissing, "no right to create tables", address(nil), "rights", failed, []string{"permission denied for schema public", "GRANT CREATE ON SCHEMA public TO " + role}},
		{rightsMissing, "no schema", address(with("search_path", "missing")), "rights", failed, []string{"CREATE SCHEMA AUTHORIZATION " + role}},
		{rightsOwner, "tables of another role", func(s *site) {
			query("GRANT CREATE ON SCHEMA public TO " + role)
			s.t.Cleanup(func() { query("REVOKE CREATE ON SCHEMA public FROM " + role) })
			db := must.Get(store.Open(s.t.Context(), admin.String(), store.Options{Log: storetest.Log()}))(s.t)
			must.OK(s.t, db.Close())
			address(nil)(s)
		}, "rights", failed, []string{"REASSIGN OWNED BY"}},
	}
}

func TestFindings(t *testing.T) {
	seen := map[finding]bool{}
	run := func(t *testing.T, c finderCase) {
		s := newSite(t)
		c.brk(s)
		report := s.examine("key", "database", "server", "tls", c.check) // others run after these
		s.want(report, c.check, c.want, c.words...)
		for _, r := range report.Checks {
			if r.Name == c.check && r.Finding != string(c.finding) {
				t.Errorf("%s: the finding is %q, want %q", r.Name, r.Finding, c.finding)
			}
		}
		if report.OK && c.want == failed {
			t.Error("the report is OK")
		}
		seen[c.finding] = true
	}
	for _, c := range slices.Concat(hostCases, networkCases, proxyCases) {
		t.Run(string(c.finding)+"/"+c.name, func(t *testing.T) { run(t, c) })
	}
	t.Run("postgres", func(t *testing.T) {
		for _, c := range postgresCases(t) {
			t.Run(string(c.finding)+"/"+c.name, func(t *testing.T) { run(t, c) })
		}
	})
	for _, f := range judged(t) {
		seen[f] = true
	}
	if t.Failed() || testing.Short() || os.Geteuid() != 0 {
		return // some cases did not run
	}
	for name := range findings(t) {
		if f := finding(name); !seen[f] && f != dataUser { // no case runs as another user
			t.Errorf("no test has the finding %s", name)
		}
	}
}

// judged tests what the doctor says about facts of databases that a test cannot have.
func judged(t *testing.T) (all []finding) {
	t.Helper()
	good := store.Facts{Engine: "PostgreSQL", Version: "17.2", Major: 17, Connections: 97}
	e := &examination{cfg: config.Config{Database: "postgres://u@h/d", DatabaseConns: 25}}
	for _, tt := range []struct {
		finding finding
		change  func(f *store.Facts)
		want    checkup.Status
		word    string
	}{
		{"", func(*store.Facts) {}, ok, ""},
		{databaseOld, func(f *store.Facts) { f.Major, f.Version = 12, "12.18" }, failed, "version 13"},
		{databasePooler, func(f *store.Facts) { f.Pooled = true }, failed, "session mode"},
		{databasePlain, func(f *store.Facts) { f.Plain = true }, toReview, "sslmode=verify-full"},
		{databaseConnections, func(f *store.Facts) { f.Connections = 20 }, toReview, "max_connections"},
		{databaseSlow, func(f *store.Facts) { f.Latency = time.Second }, toReview, "closer"},
	} {
		f := good
		tt.change(&f)
		r := e.judge(f)
		if r.Status != tt.want || r.Finding != string(tt.finding) || !strings.Contains(r.Advice, tt.word) {
			t.Errorf("%+v: %+v", f, r)
		}
		all = append(all, tt.finding)
	}
	standby := e.connectResult(&store.ConnectError{Problem: database.ConnectStandby, Advice: "name the primary", Err: errors.New("read only connection")})
	if standby.Finding != string(databaseStandby) || !strings.Contains(standby.Advice, "primary") {
		t.Errorf("a standby: %+v", standby)
	}
	return append(all, databaseStandby)
}

// findings returns the names of all findings, from the source.
func findings(t *testing.T) map[string]bool {
	t.Helper()
	file := must.Get(parser.ParseFile(token.NewFileSet(), "findings.go", nil, 0))(t)
	all := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, isValue := n.(*ast.ValueSpec); isValue && fmt.Sprint(spec.Type) == "finding" {
			name := must.Get(strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value))(t)
			all[name] = true
		}
		return true
	})
	if len(all) < 50 {
		t.Fatalf("found only %d findings", len(all))
	}
	return all
}

// TestDocumentation compares the findings with the rows of the page.
func TestDocumentation(t *testing.T) {
	page := string(must.Get(os.ReadFile("../../../docs/server-troubleshooting.md"))(t))
	rows := map[string]bool{}
	for line := range strings.Lines(page) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !isRow || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cell, -1) {
			if rows[name[1]] {
				t.Errorf("the page has two rows for %s", name[1])
			}
			rows[name[1]] = true
		}
	}
	all := findings(t)
	for name := range all {
		if !rows[name] {
			t.Errorf("docs/server-troubleshooting.md has no row for %s", name)
		}
	}
	for name := range rows {
		if !all[name] {
			t.Errorf("docs/server-troubleshooting.md has a row for %s, which is no finding", name)
		}
	}
}
