package acme

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
	"go.uber.org/goleak"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/dev/testcert"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const host = "deployments.example.com"

func newValues(t *testing.T, db *store.DB) *values {
	t.Helper()
	return &values{db, must.Get(keyring.Open(t.Context(), db, bytes.Repeat([]byte{1}, 32)))(t)}
}

// TestValues keeps values under names like those of files.
func TestValues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx, v := t.Context(), newValues(t, db)
		names := []string{"a/b/c", "a/b/d", "a/e", "ab/c"}
		for _, name := range names {
			must.OK(t, v.Store(ctx, name, []byte("first")))
			must.OK(t, v.Store(ctx, name, []byte("of "+name)))
		}
		for _, name := range names {
			if got := string(must.Get(v.Load(ctx, name))(t)); got != "of "+name {
				t.Errorf("%s contains %q", name, got)
			}
		}
		for dir, want := range map[string][2]string{
			"a":   {"a/b a/e", "a/b/c a/b/d a/e"},
			"a/b": {"a/b/c a/b/d", "a/b/c a/b/d"},
		} {
			for i, recursive := range []bool{false, true} {
				if got := strings.Join(must.Get(v.List(ctx, dir, recursive))(t), " "); got != want[i] {
					t.Errorf("%s, recursive %t: %s, want %s", dir, recursive, got, want[i])
				}
			}
		}
		for name, terminal := range map[string]bool{"a/b/c": true, "a/b": false} {
			info := must.Get(v.Stat(ctx, name))(t)
			if info.Key != name || info.IsTerminal != terminal || terminal == info.Modified.IsZero() || !v.Exists(ctx, name) {
				t.Errorf("%s is %+v", name, info)
			}
		}
		must.OK(t, v.Delete(ctx, "a/b"))
		must.OK(t, v.Delete(ctx, "a/b"))
		for _, name := range []string{"a/b", "a/b/c", "a/b/d", "b", "a%"} {
			_, loaded := v.Load(ctx, name)
			_, listed := v.List(ctx, name, true)
			if !errors.Is(loaded, fs.ErrNotExist) || !errors.Is(listed, fs.ErrNotExist) || v.Exists(ctx, name) {
				t.Errorf("%s exists: %v, %v", name, loaded, listed)
			}
		}
		if got := must.Get(v.List(ctx, "a", true))(t); !slices.Equal(got, []string{"a/e"}) || !v.Exists(ctx, "ab/c") {
			t.Errorf("after the removal of a/b: %s", got)
		}
	})
}

// TestSealed checks that the database does not reveal a value, and that a row works only under its own name and with
// the master key.
func TestSealed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		ctx, v := t.Context(), newValues(t, db)
		secret := []byte("-----BEGIN PRIVATE KEY-----")
		must.OK(t, v.Store(ctx, "keys/a", secret))
		row := must.Get(store.ReadOne(ctx, db, func(tx *store.Tx) (store.ACMEValue, error) { return tx.ACMEValue("keys/a") }))(t)
		if bytes.Contains(row.Sealed, secret[:10]) {
			t.Error("the value is readable in the database")
		}
		row.Name = "keys/b"
		must.OK(t, db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.SaveACMEValue(row) }))
		if text, err := v.Load(ctx, "keys/b"); err == nil || !strings.Contains(err.Error(), "decrypting keys/b failed") || text != nil {
			t.Errorf("under another name: %q, %v", text, err)
		}
		if text, err := v.secrets.Decrypt(ctx, "keys/a", row.Sealed); err == nil {
			t.Errorf("a stack with the name of the value decrypts it: %q", text)
		}
	})
}

// authority is an ACME authority that knows accounts and issues no certificate.
type authority struct {
	*httptest.Server
	forgotten int      // the number of accounts that it no longer knows
	accounts  int      // registrations
	orders    []string // the accounts that have ordered
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, body any) {
		w.Header().Set("Replay-Nonce", rand.Text())
		w.Header().Set("Content-Type", "application/json")
		if status >= http.StatusBadRequest {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("/directory", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"newNonce": a.URL + "/nonce", "newAccount": a.URL + "/accounts", "newOrder": a.URL + "/orders"})
	})
	mux.HandleFunc("/nonce", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, nil) })
	mux.HandleFunc("/accounts", func(w http.ResponseWriter, _ *http.Request) {
		a.accounts++
		w.Header().Set("Location", fmt.Sprintf("%s/accounts/%d", a.URL, a.accounts))
		answer(w, http.StatusCreated, map[string]string{"status": "valid"})
	})
	mux.HandleFunc("/orders", func(w http.ResponseWriter, r *http.Request) {
		var message struct{ Protected string }
		must.OK(t, json.NewDecoder(r.Body).Decode(&message))
		var header struct{ Kid string }
		must.OK(t, json.Unmarshal(must.Get(base64.RawURLEncoding.DecodeString(message.Protected))(t), &header))
		account := strings.TrimPrefix(header.Kid, a.URL+"/accounts/")
		a.orders = append(a.orders, account)
		problem := protocol.Problem{Type: protocol.ProblemTypeRejectedIdentifier, Status: http.StatusForbidden}
		for n := range a.forgotten {
			if account == fmt.Sprint(n+1) {
				problem = protocol.Problem{Type: protocol.ProblemTypeAccountDoesNotExist, Status: http.StatusBadRequest}
			}
		}
		answer(w, problem.Status, problem)
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

func (a *authority) options(t *testing.T, v *values) Options {
	t.Helper()
	return Options{
		Log: storetest.Log(), Secrets: v.secrets, Names: []string{host}, Directory: a.URL + "/directory", Client: must.Get(outbound.Trusting(""))(t), HTTP: true,
	}
}

// TestAccounts orders certificates from an authority that forgets accounts. The servers register once, and again only
// if the authority no longer knows the account.
func TestAccounts(t *testing.T) {
	v := newValues(t, storetest.SQLite(t))
	a := newAuthority(t)
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	der := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{host}}, key))(t)
	request := must.Get(x509.ParseCertificateRequest(der))(t)
	order := func(o Options, problem string, accounts int, orders ...string) {
		t.Helper()
		a.orders = nil
		_, err := newIssuer(o, v).Issue(t.Context(), request)
		if p, ok := errors.AsType[protocol.Problem](err); !ok || p.Type != problem {
			t.Errorf("the error is %v, want %s", err, problem)
		}
		if a.accounts != accounts || !slices.Equal(a.orders, orders) {
			t.Errorf("%d registrations and orders of %v, want %d and %v", a.accounts, a.orders, accounts, orders)
		}
	}
	o := a.options(t, v)
	const rejected = protocol.ProblemTypeRejectedIdentifier
	order(o, rejected, 1, "1")
	order(o, rejected, 1, "1") // as another server, or after a restart
	a.forgotten = 1
	order(o, rejected, 2, "1", "2")
	order(o, rejected, 2, "2")
	a.forgotten = 3 // the next one too
	order(o, protocol.ProblemTypeAccountDoesNotExist, 3, "2", "3")
	o.Email = "operator@example.com"
	order(o, rejected, 4, "4")
}

// TestDue stores certificates, and checks which of them the server renews.
func TestDue(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	at := func(d time.Duration) *protocol.RenewalInfo {
		info := &protocol.RenewalInfo{SelectedTime: now.Add(d), RetryAfter: new(now.Add(day))}
		info.SuggestedWindow.Start, info.SuggestedWindow.End = now.Add(d-day), now.Add(d+day)
		return info
	}
	for name, test := range map[string]struct {
		age, left time.Duration
		info      *protocol.RenewalInfo // of the authority
		due       bool
	}{
		"fresh":                                 {0, 90 * day, nil, false},
		"fresh, with advice":                    {0, 90 * day, at(60 * day), false},
		"short, fresh":                          {0, day, nil, false},
		"two thirds over":                       {61 * day, 29 * day, nil, true},
		"two thirds not quite over":             {59 * day, 31 * day, nil, false},
		"expired":                               {91 * day, -day, nil, true},
		"fresh, but the authority wants it now": {day, 89 * day, at(-time.Hour), true},
		"the authority wants it later":          {61 * day, 29 * day, at(day), true},
	} {
		t.Run(name, func(t *testing.T) {
			v, a := newValues(t, storetest.SQLite(t)), newAuthority(t)
			o := a.options(t, v)
			leaf := keep(t, v, newIssuer(o, v).IssuerKey(), now.Add(-test.age), now.Add(test.left), test.info)
			before := goleak.IgnoreCurrent()
			s := must.Get(New(t.Context(), v.db, o))(t)
			err := s.maintain(t.Context())
			if due := len(a.orders) > 0; due != test.due || due != (err != nil) {
				t.Errorf("the server renews it: %t, want %t; %v", due, test.due, err)
			}
			c, err := s.Get(&tls.ClientHelloInfo{ServerName: strings.ToUpper(host)})
			if err != nil || !c.Leaf.Equal(leaf) || len(s.Leaves()) != 1 {
				t.Errorf("the server serves with %v, %v", c, err)
			}
			if again := s.untilRenewal(now); again < time.Second || again > checkEvery {
				t.Errorf("the next check is after %v", again)
			}
			// What the library does by itself every now and then must renew nothing.
			orders := len(a.orders)
			must.OK(t, s.cache.RenewManagedCertificates(t.Context()))
			s.Close()
			a.CloseClientConnections()
			goleak.VerifyNone(t, before)
			if len(a.orders) != orders {
				t.Error("the library renews certificates in the background")
			}
		})
	}
}

// keep stores a certificate as the library does.
func keep(t *testing.T, v *values, issuer string, from, to time.Time, info *protocol.RenewalInfo) *x509.Certificate {
	t.Helper()
	c := must.Get((*testcert.Authority)(nil).Issue(&x509.Certificate{NotBefore: from, NotAfter: to}, host))(t)
	key := must.Get(certmagic.PEMEncodePrivateKey(c.PrivateKey))(t)
	data := must.Get(json.Marshal(protocol.Certificate{RenewalInfo: info}))(t)
	meta := must.Get(json.Marshal(certmagic.CertificateResource{SANs: []string{host}, IssuerData: data}))(t)
	for name, value := range map[string][]byte{
		certmagic.StorageKeys.SiteCert(issuer, host):       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		certmagic.StorageKeys.SitePrivateKey(issuer, host): key,
		certmagic.StorageKeys.SiteMeta(issuer, host):       meta,
	} {
		must.OK(t, v.Store(t.Context(), name, value))
	}
	return c.Leaf
}

func TestPauses(t *testing.T) {
	problem := func(status int, kind string) error {
		return fmt.Errorf("ordering: %w", protocol.Problem{Status: status, Type: kind})
	}
	for name, test := range map[string]struct {
		err    error
		longer bool
	}{
		"no connection":          {context.DeadlineExceeded, false},
		"a fault of the server":  {problem(503, protocol.ProblemTypeServerInternal), false},
		"a nonce":                {problem(400, protocol.ProblemTypeBadNonce), false},
		"a refusal":              {problem(403, protocol.ProblemTypeUnauthorized), true},
		"too many certificates":  {problem(429, protocol.ProblemTypeRateLimited), true},
		"one of several refused": {errors.Join(nil, problem(403, protocol.ProblemTypeCAA)), true},
	} {
		if got := policy(test.err); got != refused && test.longer || got != unavailable && !test.longer {
			t.Errorf("%s: the pauses are %+v", name, got)
		}
	}
}

// TestChallenges answers challenges that another server has requested, and no other request.
func TestChallenges(t *testing.T) {
	v, a := newValues(t, storetest.SQLite(t)), newAuthority(t)
	o := a.options(t, v)
	s := must.Get(New(t.Context(), v.db, o))(t)
	defer s.Close()
	c := protocol.Challenge{Type: protocol.ChallengeTypeHTTP01, Token: "token", KeyAuthorization: "token.thumbprint", Identifier: protocol.Identifier{Type: "dns", Value: host}}
	other := newIssuer(o, v)
	must.OK(t, other.Present(t.Context(), c))
	path := c.HTTP01ResourcePath()
	answers := func(name, path string) bool {
		text, ok := s.Answer(t.Context(), name, path)
		return ok && text == c.KeyAuthorization
	}
	if !answers(host, path) || !answers(strings.ToUpper(host), path) {
		t.Error("the server does not answer the challenge")
	}
	for name, asked := range map[string]struct{ host, path string }{
		"another host": {"example.com", path}, "no host": {"", path}, "another challenge": {host, path + "x"}, "another path": {host, "/"},
	} {
		if answers(asked.host, asked.path) {
			t.Errorf("the server answers %s", name)
		}
	}
	if cert, err := handshake(t, s, acmez.ACMETLS1Protocol); err != nil || !slices.ContainsFunc(cert.Extensions, isChallenge) {
		t.Errorf("the certificate of the challenge: %v", err)
	}
	if _, err := handshake(t, s, "h2"); err == nil {
		t.Error("a client gets a certificate before the server has one")
	}
	must.OK(t, other.CleanUp(t.Context(), c))
	if _, err := handshake(t, s, acmez.ACMETLS1Protocol); err == nil || answers(host, path) {
		t.Error("the server answers a challenge that is over")
	}
}

// isChallenge reports whether an extension is that of the certificates of TLS-ALPN-01 (RFC 8737).
func isChallenge(e pkix.Extension) bool { return e.Id.String() == "1.3.6.1.5.5.7.1.31" }

// handshake returns the certificate that a client of a protocol gets.
func handshake(t *testing.T, s *Service, alpn string) (*x509.Certificate, error) {
	t.Helper()
	near, far := net.Pipe()
	server := tls.Server(far, &tls.Config{GetCertificate: s.Get, NextProtos: []string{alpn}, MinVersion: tls.VersionTLS12})
	client := tls.Client(near, &tls.Config{ServerName: host, NextProtos: []string{alpn}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	var side sync.WaitGroup
	side.Go(func() {
		_ = server.HandshakeContext(t.Context())
		_ = far.Close()
	})
	err := client.HandshakeContext(t.Context())
	_ = near.Close()
	side.Wait()
	if err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}
