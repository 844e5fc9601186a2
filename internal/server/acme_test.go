package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/postgres"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/store"
)

// The name of the certificates, and the account at the authority.
const (
	acmeName  = "deployments.example.com"
	acmeKeyID = "kid-1"
)

// acmeAddresses are the addresses of a server to which challenges lead.
type acmeAddresses struct {
	secure, plain int // ports
}

func newACMEAddresses(t *testing.T) acmeAddresses {
	t.Helper()
	return acmeAddresses{must.Get(child.FreePort("127.0.0.1"))(t), must.Get(child.FreePort("127.0.0.1"))(t)}
}

func (a acmeAddresses) listen() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(a.secure)) }

// acmeServer is a running server with certificates of an authority.
type acmeServer struct {
	*Server
	logged *logtest.Hook
	stop   func() error
	addr   string
}

// startACME starts a server. Unless it has subsystems, it only serves.
func startACME(t *testing.T, p *lab.Pebble, a acmeAddresses, settings map[string]string, subsystems ...string) *acmeServer {
	t.Helper()
	all := map[string]string{
		"listen": a.listen(), "external_url": "https://" + acmeName, "acme_agree_to_terms": "true", "acme_directory": p.Directory, "acme_ca_file": p.CAFile,
	}
	maps.Copy(all, settings)
	c := must.Get(config.Load(config.LoadOptions{Cwd: "/", Environ: environ(all)}))(t)
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.TraceLevel)
	s := must.Get(New(t.Context(), c, "v1", logrus.NewEntry(logger), io.Discard))(t)
	s.Only(subsystems...)
	return &acmeServer{s, hook, run(t, s), a.listen()}
}

func environ(settings map[string]string) []string {
	var out []string
	for key, value := range settings {
		out = append(out, "WORKFLOW_SERVER_"+string(bytes.ToUpper([]byte(key)))+"="+value)
	}
	return out
}

// await waits until a condition holds.
func await(t *testing.T, what string, met func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := child.Poll(ctx, 20*time.Millisecond, func() (bool, error) { return met(ctx), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// leaf returns the certificate with which a server serves, or nil.
func (s *acmeServer) leaf(ctx context.Context) *x509.Certificate {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: acmeName, InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// awaitLeaf waits until a server serves with another certificate than one, which can be nil.
func (s *acmeServer) awaitLeaf(t *testing.T, before *x509.Certificate) (leaf *x509.Certificate) {
	t.Helper()
	await(t, "waiting for a certificate", func(ctx context.Context) bool {
		leaf = s.leaf(ctx)
		return leaf != nil && !leaf.Equal(before)
	})
	return leaf
}

func (s *acmeServer) has(message string) func(context.Context) bool {
	return func(context.Context) bool { return s.count(message) > 0 }
}

// count returns how often the server has logged a message.
func (s *acmeServer) count(message string) (n int) {
	for _, e := range s.logged.AllEntries() {
		if e.Message == message {
			n++
		}
	}
	return n
}

// failures returns what a server has logged as a warning or an error about its certificate.
func (s *acmeServer) failures() []string {
	var out []string
	for _, e := range s.logged.AllEntries() {
		if e.Level <= logrus.WarnLevel && e.Data["subsystem"] == "tls" {
			out = append(out, must1(e.String()))
		}
	}
	return out
}

func must1(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}

func issued(t *testing.T, p *lab.Pebble, want int) {
	t.Helper()
	if n := must.Get(p.Issued())(t); n != want {
		t.Errorf("the authority has issued %d certificates, want %d", n, want)
	}
}

const checked = "checked the TLS certificates"

// TestACME obtains a certificate from an authority that refuses many nonces and knows its operators by an external
// account. After a restart, the server has the certificate although the authority is gone.
func TestACME(t *testing.T) {
	storetest.OnSQLite(t)
	for _, challenge := range []string{"HTTP-01", "TLS-ALPN-01"} {
		t.Run(challenge, func(t *testing.T) {
			a, dir := newACMEAddresses(t), t.TempDir()
			key := base64.RawURLEncoding.EncodeToString(bytes.Repeat([]byte("secret"), 6))
			options := lab.PebbleOptions{HTTPPort: a.plain, TLSPort: a.secure, Validity: 90 * 24 * time.Hour, BadNonces: 30, KeyID: acmeKeyID, Key: key}
			settings := map[string]string{"data_dir": dir, "acme_email": "operator@example.com", "acme_eab_key_id": acmeKeyID, "acme_eab_key": key}
			if challenge == "HTTP-01" {
				options.TLSPort = must.Get(child.FreePort("127.0.0.1"))(t)
				settings["redirect_listen"] = net.JoinHostPort("127.0.0.1", strconv.Itoa(a.plain))
			}
			p := must.Get(lab.StartPebble(t.Context(), t.TempDir(), options, os.Stderr))(t)
			defer p.Close()
			roots := must.Get(p.Roots(t.Context()))(t)
			before := goleak.IgnoreCurrent()
			s := startACME(t, p, a, settings, "acme")
			leaf := s.awaitLeaf(t, nil)
			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots},
				DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, a.listen())
				},
			}}
			if res := fetch(t, client, http.MethodGet, "https://"+acmeName+"/healthz", nil); res.StatusCode != http.StatusOK || res.ProtoMajor != 2 || res.Header.Get("Strict-Transport-Security") == "" {
				t.Errorf("%s %s, header %v", res.Proto, res.Status, res.Header)
			}
			await(t, "waiting for the end of the attempt", s.has(checked))
			keys := s.privateKeys(t)
			must.OK(t, s.stop())
			goleak.VerifyNone(t, before)
			if failed := s.failures(); len(failed) > 0 {
				t.Errorf("the server logged %q", failed)
			}
			append(keys, []byte(key)).absentFrom(t, s)

			p.Stop()
			s = startACME(t, p, a, settings, "acme")
			if again := s.leaf(t.Context()); again == nil || !again.Equal(leaf) {
				t.Error("a restarted server does not serve at once with the certificate that it had")
			}
			await(t, "waiting for the check", s.has(checked))
			must.OK(t, s.stop())
			if failed := s.failures(); len(failed) > 0 {
				t.Errorf("after the restart, the server logged %q", failed)
			}
			issued(t, p, 1)
		})
	}
}

// privateKeys are texts that must not be readable anywhere.
type privateKeys [][]byte

// privateKeys returns the private keys of a server's account and certificates, in several forms.
func (s *acmeServer) privateKeys(t *testing.T) (keys privateKeys) {
	t.Helper()
	secrets := must.Get(OpenSecrets(t.Context(), s.cfg, s.db))(t)
	for _, dir := range []string{"acme", "certificates"} {
		before := len(keys)
		for _, v := range must.Get(store.Read(t.Context(), s.db, func(tx *store.Tx) ([]store.ACMEValue, error) { return tx.ACMEValues(dir) }))(t) {
			value := must.Get(secrets.Decrypt(t.Context(), "acme/"+v.Name, v.Sealed))(t)
			var account struct{ Key string }
			if json.Unmarshal(value, &account) == nil {
				value = []byte(account.Key)
			}
			if block, _ := pem.Decode(value); block != nil && block.Type != "CERTIFICATE" {
				scalar := must.Get(must.Get(x509.ParseECPrivateKey(block.Bytes))(t).Bytes())(t)
				body := base64.StdEncoding.EncodeToString(block.Bytes)
				keys = append(keys, scalar, []byte(hex.EncodeToString(scalar)), []byte(body[:64]), []byte(hex.EncodeToString([]byte(body[:64]))))
			}
		}
		if len(keys) == before {
			t.Errorf("the database contains no private key below %s", dir)
		}
	}
	return keys
}

// absent fails the test if a text contains a private key.
func (keys privateKeys) absent(t *testing.T, what string, text []byte) {
	t.Helper()
	for _, key := range append(keys, []byte("PRIVATE KEY"), []byte(hex.EncodeToString([]byte("PRIVATE KEY")))) {
		if bytes.Contains(text, key) {
			t.Errorf("a private key is readable in %s", what)
		}
	}
}

// absentFrom is absent for the files of a server, from which backups are made, and for its log.
func (keys privateKeys) absentFrom(t *testing.T, s *acmeServer) {
	t.Helper()
	files := 0
	must.OK(t, filepath.WalkDir(s.cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		keys.absent(t, path, text)
		return err
	}))
	if files == 0 {
		t.Error("the server has no files")
	}
	entries := s.logged.AllEntries()
	for _, e := range entries {
		keys.absent(t, "the log", must.Get(e.Bytes())(t))
	}
	if len(entries) == 0 {
		t.Error("the log is empty")
	}
}

// acmeSettings returns the settings of servers that share a new database.
func acmeSettings(t *testing.T) func() map[string]string {
	t.Helper()
	dsn, key := storetest.PostgresDSN(t), filepath.Join(t.TempDir(), "master-key")
	master := make([]byte, 32)
	_, _ = rand.Read(master)
	must.OK(t, os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(master)), 0o600))
	return func() map[string]string {
		return map[string]string{"database": dsn, "master_key_file": key, "data_dir": t.TempDir()}
	}
}

// TestACMEChallengeOfAnotherServer obtains a certificate with a server that the authority cannot reach. The other
// server answers its challenge.
func TestACMEChallengeOfAnotherServer(t *testing.T) {
	settings, first, second := acmeSettings(t), newACMEAddresses(t), newACMEAddresses(t)
	p := must.Get(lab.StartPebble(t.Context(), t.TempDir(), lab.PebbleOptions{HTTPPort: second.plain, TLSPort: second.secure, Validity: 90 * 24 * time.Hour}, os.Stderr))(t)
	defer p.Close()
	answers := startACME(t, p, second, settings())
	defer func() { must.OK(t, answers.stop()) }()
	all := settings()
	orders := startACME(t, p, first, all, "acme")
	defer func() { must.OK(t, orders.stop()) }()
	orders.awaitLeaf(t, nil)
	if leaf := answers.leaf(t.Context()); leaf != nil {
		t.Error("the server that only answers has a certificate")
	}
	keys := orders.privateKeys(t)
	keys.absentFrom(t, orders)
	keys.absentFrom(t, answers)
	backup := must.Get(postgres.Dump(t.Context(), all["database"]))(t)
	keys.absent(t, "a backup", backup)
	if !bytes.Contains(backup, []byte("acme_values")) {
		t.Error("the backup is not complete")
	}
	issued(t, p, 1)
}

// TestACMEServersOrderOnce starts two servers without a certificate at the same time.
func TestACMEServersOrderOnce(t *testing.T) {
	settings, first, second := acmeSettings(t), newACMEAddresses(t), newACMEAddresses(t)
	p := must.Get(lab.StartPebble(t.Context(), t.TempDir(), lab.PebbleOptions{HTTPPort: first.plain, TLSPort: first.secure, Validity: 90 * 24 * time.Hour}, os.Stderr))(t)
	defer p.Close()
	var leaves []*x509.Certificate
	one := startACME(t, p, first, settings(), "acme")
	two := startACME(t, p, second, settings(), "acme")
	for _, s := range []*acmeServer{one, two} {
		leaves = append(leaves, s.awaitLeaf(t, nil))
	}
	if !leaves[0].Equal(leaves[1]) {
		t.Error("the servers have different certificates")
	}
	for _, s := range []*acmeServer{one, two} {
		must.OK(t, s.stop())
		if failed := s.failures(); len(failed) > 0 {
			t.Errorf("a server logged %q", failed)
		}
	}
	issued(t, p, 1)
}

// TestACMERenewal renews a certificate with a short lifetime, loses the authority, and gets it back without its memory.
func TestACMERenewal(t *testing.T) {
	storetest.OnSQLite(t)
	a := newACMEAddresses(t)
	p := must.Get(lab.StartPebble(t.Context(), t.TempDir(), lab.PebbleOptions{HTTPPort: a.plain, TLSPort: a.secure, Validity: 10 * time.Second}, os.Stderr))(t)
	defer p.Close()
	s := startACME(t, p, a, map[string]string{"data_dir": t.TempDir()}, "acme")
	defer func() { must.OK(t, s.stop()) }()
	leaf := s.awaitLeaf(t, nil)
	leaf = s.awaitLeaf(t, leaf)
	const failed = "obtaining or renewing the TLS certificate failed; the server serves with the one that it has, if any, and tries again"
	before := s.count(failed)
	p.Stop()
	await(t, "waiting for a failed renewal", func(context.Context) bool { return s.count(failed) > before })
	if now := s.leaf(t.Context()); now == nil {
		t.Error("the server stopped serving because the authority is gone")
	} else {
		leaf = now
	}
	for _, e := range s.logged.AllEntries() {
		if again, err := time.ParseDuration(text(e.Data["again_in"])); e.Message == failed && (err != nil || again <= 0 || again > unreachable) {
			t.Errorf("the server tries again in %v", e.Data["again_in"])
		}
	}
	must.OK(t, p.Start(t.Context())) // has forgotten the account
	s.awaitLeaf(t, leaf)
}

// unreachable is the longest pause while the authority cannot be reached.
const unreachable = 5 * time.Minute

func text(v any) string {
	s, _ := v.(string)
	return s
}
