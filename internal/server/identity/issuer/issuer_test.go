package issuer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const issuerURL = "https://ci.example.com/oidc"

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// site is one server's issuer.
type site struct {
	*issuer.Service
	t  testing.TB
	db *store.DB
}

func newSite(t testing.TB, db *store.DB, o issuer.Options) *site {
	t.Helper()
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	o.Log, o.Secrets, o.URL = storetest.Log(), secrets, issuerURL
	return &site{issuer.New(db, o), t, db}
}

func (s *site) maintain() {
	s.t.Helper()
	if err := s.Maintain(s.t.Context()); err != nil {
		s.t.Fatalf("Maintain: %v", err)
	}
}

func (s *site) draft(sub issuer.Subject, audience string) (issuer.Draft, error) {
	return store.Read(s.t.Context(), s.db, func(tx *store.Tx) (issuer.Draft, error) { return s.Draft(tx, sub, audience) })
}

func (s *site) token() issuer.Token {
	s.t.Helper()
	d, err := s.draft(issuer.Subject{Organization: "acme", Project: "web", Stack: "prod", Operation: "update"}, "")
	if err != nil {
		s.t.Fatalf("Draft: %v", err)
	}
	token, err := s.Sign(s.t.Context(), d)
	if err != nil {
		s.t.Fatalf("Sign: %v", err)
	}
	return token
}

func (s *site) keys() []issuer.Key {
	s.t.Helper()
	keys, err := s.Keys(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// verifier is a relying party: it fetches the configuration and the keys that it names, and keeps
// the keys until refetch.
type verifier struct{ keys jose.JSONWebKeySet }

func (v *verifier) refetch(s *site) {
	s.t.Helper()
	docs := map[string]any{issuerURL + "/.well-known/openid-configuration": s.Configuration()}
	set, err := s.KeySet(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	docs[issuerURL+"/.well-known/jwks"] = set
	get := func(url string, into any) {
		text, err := json.Marshal(docs[url])
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil || docs[url] == nil {
			s.t.Fatalf("fetching %s: %v", url, err)
		}
	}
	var conf struct {
		Issuer string
		Keys   string `json:"jwks_uri"`
	}
	get(issuerURL+"/.well-known/openid-configuration", &conf)
	if conf.Issuer != issuerURL {
		s.t.Fatalf("the configuration names %q", conf.Issuer)
	}
	v.keys = jose.JSONWebKeySet{}
	get(conf.Keys, &v.keys)
}

// verify checks a token as AWS, Azure and Google do, with the verifier's own clock.
func (v *verifier) verify(token issuer.Token, now time.Time) error {
	parsed, err := jwt.ParseSigned(token.Text, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return err
	}
	keys := v.keys.Key(parsed.Headers[0].KeyID)
	if len(keys) != 1 {
		return fmt.Errorf("%d keys have the id of the token's key", len(keys))
	}
	var c jwt.Claims
	if err := parsed.Claims(keys[0], &c); err != nil {
		return err
	}
	return c.ValidateWithLeeway(jwt.Expected{Issuer: issuerURL, AnyAudience: jwt.Audience{"acme"}, Time: now}, 0)
}

// TestRotation lets 125 days pass and checks at every step that a verifier that fetched the keys at
// any time in the last day accepts new tokens and the tokens of the last 15 minutes.
func TestRotation(t *testing.T) {
	clock := new(storetest.Clock)
	s := newSite(t, storetest.SQLiteAt(t, clock), issuer.Options{Rotation: 30 * 24 * time.Hour})
	s.maintain()
	const step, daily = 6 * time.Hour, 4
	var caches []verifier // of the last day, oldest first
	signers := map[string]bool{}
	for range 125 * daily {
		s.maintain()
		var fresh verifier
		fresh.refetch(s)
		if caches = append(caches, fresh); len(caches) > daily+1 {
			caches = caches[1:]
		}
		if n := len(s.keys()); n > 2 {
			t.Fatalf("%d keys are published", n)
		}
		token := s.token()
		for i, v := range caches {
			if err := v.verify(token, clock.Now()); err != nil {
				t.Fatalf("on %s, keys that were fetched %s ago: %v", clock.Now(), time.Duration(len(caches)-1-i)*step, err)
			}
		}
		i := slices.IndexFunc(s.keys(), func(k issuer.Key) bool { return k.Signs })
		signers[s.keys()[i].ID] = true
		clock.Pass(issuer.Lifetime - time.Second)
		s.maintain()
		fresh.refetch(s)
		if err := fresh.verify(token, clock.Now()); err != nil {
			t.Fatalf("on %s, after 15 minutes: %v", clock.Now(), err)
		}
		clock.Pass(2 * time.Second)
		if err := fresh.verify(token, clock.Now()); !errors.Is(err, jwt.ErrExpired) {
			t.Fatalf("after its lifetime, verifying a token returned %v", err)
		}
		clock.Pass(step - issuer.Lifetime - time.Second)
	}
	if len(signers) != 5 {
		t.Errorf("%d keys signed in 125 days, want 5", len(signers))
	}
}

func TestClockJumps(t *testing.T) {
	clock := new(storetest.Clock)
	s := newSite(t, storetest.SQLiteAt(t, clock), issuer.Options{Rotation: 30 * 24 * time.Hour})
	s.maintain()
	first := s.keys()[0].ID
	var early verifier
	early.refetch(s)
	clock.Set(-10 * 365 * 24 * time.Hour) // before the key's creation
	if err := early.verify(s.token(), clock.Now()); err != nil {
		t.Errorf("after the clock was set back: %v", err)
	}
	s.maintain()
	if keys := s.keys(); len(keys) != 1 || keys[0].ID != first {
		t.Errorf("the clock was set back, and the keys are %+v", keys)
	}
	clock.Set(20 * 365 * 24 * time.Hour)
	s.maintain() // publishes a key
	if err := early.verify(s.token(), clock.Now()); err != nil {
		t.Errorf("after the clock was set forward, the first token was not signed with the published key: %v", err)
	}
	var both verifier
	both.refetch(s)
	clock.Set(-10 * 365 * 24 * time.Hour)
	s.maintain()
	for _, v := range []verifier{early, both} {
		if err := v.verify(s.token(), clock.Now()); err != nil {
			t.Errorf("after the clock was corrected: %v", err)
		}
	}
}

// TestDowntime checks that a published key does not begin to sign while, or right after, no server
// published it.
func TestDowntime(t *testing.T) {
	clock := new(storetest.Clock)
	s := newSite(t, storetest.SQLiteAt(t, clock), issuer.Options{})
	beat := func() {
		t.Helper()
		err := s.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			now, err := tx.LeaseTime()
			if err != nil {
				return err
			}
			return tx.Beat(now, time.Minute)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.maintain()
	beat()
	if err := s.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := s.keys()[1]
	for _, jump := range []func(time.Duration){clock.Pass, clock.Set} {
		jump(60 * time.Hour)
		beat()
		if keys := s.keys(); keys[1].Signs || keys[1].UseFrom.Sub(clock.Now()) != next.UseFrom.Sub(clock.Now().Add(-60*time.Hour)) {
			t.Errorf("after the absence, the keys are %+v at %s", keys, clock.Now())
		}
		next = s.keys()[1]
	}
	clock.Pass(issuer.Lead)
	if keys := s.keys(); !keys[1].Signs {
		t.Errorf("after %s of service, the keys are %+v", issuer.Lead, keys)
	}
}

// TestConcurrentServers lets two servers create the first key, and rotate, at the same time.
func TestConcurrentServers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		testConcurrent(t, newSite(t, db, issuer.Options{}), newSite(t, db, issuer.Options{}))
	})
	t.Run("two connections", func(t *testing.T) {
		a, b := storetest.PostgresPair(t)
		testConcurrent(t, newSite(t, a, issuer.Options{}), newSite(t, b, issuer.Options{}))
	})
}

func testConcurrent(t *testing.T, sites ...*site) {
	both := func(do func(*site) error) (succeeded int) {
		results := make(chan error)
		for _, s := range sites {
			go func() { results <- do(s) }()
		}
		for range sites {
			if <-results == nil {
				succeeded++
			}
		}
		return succeeded
	}
	if n := both(func(s *site) error { return s.Maintain(t.Context()) }); n != 2 || len(sites[0].keys()) != 1 {
		t.Errorf("%d servers started, and %d keys exist", n, len(sites[0].keys()))
	}
	if n := both(func(s *site) error { return s.Rotate(t.Context()) }); n != 1 || len(sites[0].keys()) != 2 {
		t.Errorf("%d servers rotated, and %d keys exist", n, len(sites[0].keys()))
	}
	var v verifier
	v.refetch(sites[0])
	for _, s := range sites { // each server decrypts the other's keys
		if err := v.verify(s.token(), time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// TestRestart checks that the keys survive restarts, also after a rotation of the key ring, and
// that a revocation replaces them at once.
func TestRestart(t *testing.T) {
	db := storetest.SQLite(t)
	s := newSite(t, db, issuer.Options{})
	s.maintain()
	old := s.token()
	if err := s.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "already published") {
		t.Errorf("a second rotation returned %v", err)
	}
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := newSite(t, db, issuer.Options{})
	again.maintain()
	var v verifier
	v.refetch(again)
	for _, token := range []issuer.Token{old, again.token()} {
		if err := v.verify(token, time.Now()); err != nil {
			t.Errorf("after a restart: %v", err)
		}
	}
	if err := again.Revoke(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.refetch(s)
	if err := v.verify(old, time.Now()); err == nil {
		t.Error("a token of a revoked key was accepted")
	}
	if err := v.verify(s.token(), time.Now()); err != nil { // s has cached the revoked keys
		t.Errorf("after a revocation: %v", err)
	}
}

func TestPrivateKeyIsEncrypted(t *testing.T) {
	db := storetest.SQLite(t)
	s := newSite(t, db, issuer.Options{})
	s.maintain()
	_, err := store.Read(t.Context(), db, func(tx *store.Tx) (struct{}, error) {
		keys, err := tx.SigningKeys()
		if err == nil && (len(keys) != 1 || bytes.HasPrefix(keys[0].PrivateKey, []byte{0x30, 0x82}) || strings.Contains(keys[0].PublicKey, `"d"`)) {
			t.Errorf("the database contains %+v", keys)
		}
		return struct{}{}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	other, err := keyring.Open(t.Context(), storetest.SQLite(t), bytes.Repeat([]byte{8}, 32))
	if err != nil {
		t.Fatal(err)
	}
	foreign := &site{issuer.New(db, issuer.Options{Log: storetest.Log(), Secrets: other, URL: issuerURL}), t, db}
	d, err := foreign.draft(issuer.Subject{Organization: "acme"}, "")
	if err == nil {
		_, err = foreign.Sign(t.Context(), d)
	}
	if err == nil || !strings.Contains(err.Error(), "another master key") {
		t.Errorf("signing with another key ring returned %v", err)
	}
}

func TestExportAndCheck(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), issuer.Options{})
	dir := t.TempDir()
	if err := s.Export(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "no signing key") {
		t.Errorf("exporting without a key returned %v", err)
	}
	s.maintain()
	if err := s.Check(t.Context(), published(dir)); err == nil || !strings.Contains(err.Error(), "fetching "+issuerURL) {
		t.Errorf("checking documents that are not published returned %v", err)
	}
	for range 2 {
		if err := s.Export(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(t.Context(), published(dir)); err != nil {
		t.Errorf("checking the exported documents: %v", err)
	}
	if err := s.CheckCustom(t.Context(), published(dir)); err != nil {
		t.Errorf("checking the exported documents of the second issuer: %v", err)
	}
	if err := s.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), published(dir)); err == nil || !strings.Contains(err.Error(), "lacks the key "+s.keys()[1].ID) {
		t.Errorf("checking outdated documents returned %v", err)
	}
	elsewhere := `{"issuer":"` + issuerURL + `","jwks_uri":"https://169.254.169.254/keys"}`
	if err := os.WriteFile(dir+"/.well-known/openid-configuration", []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), published(dir)); err == nil || !strings.Contains(err.Error(), `names the keys at "https://169.254.169.254/keys"`) {
		t.Errorf("checking documents with keys elsewhere returned %v", err)
	}
	if err := os.WriteFile(dir+"/.well-known/openid-configuration", []byte(`{"issuer":"https://other.example.com"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), published(dir)); err == nil || !strings.Contains(err.Error(), `names the issuer "https://other.example.com"`) {
		t.Errorf("checking another issuer's documents returned %v", err)
	}
	if err := os.WriteFile(dir+"/.well-known/openid-configuration", []byte(`<html>`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context(), published(dir)); err == nil || !strings.Contains(err.Error(), "not the expected JSON") {
		t.Errorf("checking a web page returned %v", err)
	}
}

// published serves a directory at the issuer's URL.
type published string

func (dir published) Get(_ context.Context, address string, _ []string) (outbound.Document, error) {
	path, ok := strings.CutPrefix(address, issuerURL)
	if !ok {
		return outbound.Document{}, errors.New("no such host")
	}
	body, err := os.ReadFile(string(dir) + path)
	return outbound.Document{Body: body}, err
}

func TestAudiences(t *testing.T) {
	db := storetest.SQLite(t)
	s := newSite(t, db, issuer.Options{Audiences: []string{"vault", "rival"}})
	s.maintain()
	err := db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		return tx.InsertOrganization(store.Organization{ID: "r", Name: "rival", CreatedAt: tx.Now()})
	})
	if err != nil {
		t.Fatal(err)
	}
	for audience, want := range map[string]string{
		"": "", "acme": "", "vault": "", "rival": "another organization", "Vault": "not permitted", "sts.amazonaws.com": "not permitted",
		"vault,x": "not permitted", strings.Repeat("x", 1<<20): "not permitted", "a\nb\x1b[31m": "not permitted",
	} {
		_, err := s.draft(issuer.Subject{Organization: "acme"}, audience)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the audience %.40q: got %v, want %q", audience, err, want)
		}
		if err != nil && (len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("the audience %.40q: the error is %.100q…", audience, err)
		}
	}
}

func TestNoKey(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), issuer.Options{})
	if _, err := s.draft(issuer.Subject{Organization: "acme"}, ""); err == nil || !strings.Contains(err.Error(), "no signing key") {
		t.Errorf("got %v", err)
	}
}

func TestSessionTags(t *testing.T) {
	s := newSite(t, storetest.SQLite(t), issuer.Options{SessionTags: true})
	s.maintain()
	d, err := s.draft(issuer.Subject{Organization: "acme", Trigger: "api", Fork: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Sign(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.ParseSigned(token.Text, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(c["https://aws.amazon.com/tags"])
	if want := `{"principal_tags":{"fork":["true"],"trigger":["api"]}}`; string(got) != want {
		t.Errorf("the tags are %s, want %s", got, want)
	}
}
