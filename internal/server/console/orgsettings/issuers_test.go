package orgsettings_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// cluster is an issuer with static keys.
type cluster struct {
	t    *testing.T
	key  jose.JSONWebKey
	keys string // the public keys as JSON
}

const issuerURL = "https://cluster.invalid"

func newCluster(t *testing.T) *cluster {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "k", Algorithm: "EdDSA", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t, jose.JSONWebKey{Key: private, KeyID: "k"}, string(keys)}
}

// token returns an identity token of a subject.
func (c *cluster) token(subject string, expires time.Time) string {
	c.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: c.key}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": issuerURL, "sub": subject, "aud": "urn:pulumi:org:acme", "exp": expires.Unix(), "note": hostile,
	}).Serialize()
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

func TestIssuers(t *testing.T) {
	s, c := newSettings(t), newCluster(t)
	var pool struct{ ID string }
	s.API(http.MethodPost, "/api/orgs/acme/agent-pools", map[string]string{"name": "eu"}, &pool)
	s.shows(s.get(s.admin, base+"/issuers"), "trusts no issuer")
	s.shows(s.post(s.admin, base+"/issuers", http.StatusUnprocessableEntity, "name", hostile, "url", "ftp://x"), "must begin with https")
	s.shows(s.post(s.admin, base+"/issuers", http.StatusUnprocessableEntity, "name", "x", "url", issuerURL, "keys", c.keys, "minutes", "0"), "between 1 and 1500")
	issuer := s.post(s.admin, base+"/issuers", http.StatusSeeOther, "name", hostile, "url", issuerURL, "keys", c.keys, "minutes", "60").Location()
	s.shows(s.get(s.admin, base+"/issuers"), issuerURL, "static", "alert(1)")
	s.shows(s.get(s.admin, issuer), "has no policy", "urn:pulumi:org:acme", `value="60"`)

	good, later := c.token("agents", time.Now().Add(time.Hour)), time.Now().Add(time.Hour)
	test := func(token string, fields ...string) (texts func(...string)) {
		t.Helper()
		p := s.post(s.admin, issuer+"/test", http.StatusOK, append([]string{"token", token, "type", "runner", "pool", pool.ID}, fields...)...)
		s.hides(p, token)
		return func(want ...string) { t.Helper(); s.shows(p, want...) }
	}
	test(good)("no policy allows it", "alert(1)")
	add := []string{"decision", "allow", "type", "runner", "pool", pool.ID, "rules"}
	s.shows(s.post(s.admin, issuer+"/policies", http.StatusUnprocessableEntity, append(add, hostile)...), "Write each rule on its own line")
	s.shows(s.post(s.admin, issuer+"/policies", http.StatusUnprocessableEntity, append(add, "")...), "at least one rule is required")
	s.post(s.admin, issuer+"/policies", http.StatusSeeOther, append(add, "sub = agents\n\n")...)
	p := s.get(s.admin, issuer)
	s.shows(p, "agents of the pool eu", "sub = agents")
	s.hides(p, "policies/remove")

	test(good)("would grant", "matches")
	test(c.token("others", later))("no policy allows it", "the token has others", "does not match")
	test(c.token("agents", time.Now().Add(-time.Hour)))("does not accept", "expired at", "not verified", "matches")
	test("x.y.z")("does not accept", "not a JSON web token")
	test(newCluster(t).token("agents", later))("does not accept", "signature of the subject token is invalid")
	test(good, "type", "organization")("no policy allows it", "is about other tokens")
	test(good, "type", "team", "subject", "none")("no such team")
	s.shows(s.post(s.admin, issuer+"/test", http.StatusUnprocessableEntity, "token", good, "type", "none"), "type of the token is unknown")
	var events struct{ Events []struct{ Event string } }
	s.API(http.MethodGet, "/api/orgs/acme/auditlogs/v2?eventFilter=token.exchanged", nil, &events)
	if len(events.Events) > 0 {
		t.Error("a test exchanged a token")
	}

	s.post(s.admin, issuer+"/policies", http.StatusSeeOther, "decision", "deny", "type", "runner", "pool", pool.ID, "rules", "note = *alert*")
	test(good)("a policy denies it")
	version := regexp.MustCompile(`name="version" value="(\d+)"`).FindStringSubmatch(s.get(s.admin, issuer).Body)[1]
	s.post(s.admin, issuer+"/policies", http.StatusSeeOther, "decision", "allow", "type", "organization", "permission", "admin", "rules", "sub = boss")
	s.shows(s.post(s.admin, issuer+"/policies/remove", http.StatusUnprocessableEntity, "version", version, "index", "1"), "have changed meanwhile")
	version = regexp.MustCompile(`name="version" value="(\d+)"`).FindStringSubmatch(s.get(s.admin, issuer).Body)[1]
	s.post(s.admin, issuer+"/policies/remove", http.StatusSeeOther, "version", version, "index", "1")
	p = s.get(s.admin, issuer)
	s.shows(p, "the organization: standard, admin")
	s.hides(p, "*alert*")
	test(good)("would grant")

	s.shows(s.post(s.admin, issuer+"/thumbprints", http.StatusUnprocessableEntity), "statically configured")
	s.post(s.admin, issuer+"/edit", http.StatusSeeOther, "name", "renamed", "keys", newCluster(t).keys)
	s.shows(s.get(s.admin, issuer), "renamed")
	test(good)("signature of the subject token is invalid")
	s.post(s.admin, issuer+"/delete", http.StatusSeeOther)
	if p := s.admin.Get(issuer); p.Status != http.StatusNotFound {
		t.Errorf("a deleted issuer: status %d", p.Status)
	}
}
