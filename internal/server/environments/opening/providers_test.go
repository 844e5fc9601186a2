package opening

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/environments/providers"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

// issues gives a site an issuer, and a client that reaches no network.
func (s *site) issues() {
	s.t.Helper()
	secrets := must.Get(keyring.Open(s.t.Context(), s.db, bytes.Repeat([]byte{7}, 32)))(s.t)
	signs := issuer.New(s.db, issuer.Options{Log: storetest.Log(), Secrets: secrets, URL: "https://server.test/oidc"})
	must.OK(s.t, signs.Maintain(s.t.Context()))
	s.opts.Providers = providers.New(providers.Options{Issuer: signs, Client: &outbound.Client{}})
}

// log returns the audit log of acme.
func (s *site) log() string {
	s.t.Helper()
	list, err := store.ReadOne(s.t.Context(), s.db, func(tx *store.Tx) ([]store.AuditEntry, error) {
		return tx.AuditEntries(store.AuditFilter{OrgID: s.acme.ID, Limit: 100})
	})
	must.OK(s.t, err)
	var log strings.Builder
	for _, e := range list {
		fmt.Fprintln(&log, e.Action, e.Subject, e.Names)
	}
	return log.String()
}

func oidcAsk(current, root string) wire.Ask {
	return wire.Ask{Open: &wire.OpenAsk{Provider: "oidc", Current: current, Root: root, Inputs: wire.Values{
		"audience":      {Value: "https://service.test"},
		"identityToken": {Value: map[string]wire.Value{"version": {Value: "v2"}}},
	}}}
}

// claimsIn returns the claims of the token in an answer, or nil.
func claimsIn(t *testing.T, answer string) map[string]any {
	t.Helper()
	var a wire.Answer
	must.OK(t, json.Unmarshal([]byte(answer), &a))
	if a.Value == nil {
		return nil
	}
	var claims map[string]any
	token := must.Get(jwt.ParseSigned(a.Value.Value.(string), []jose.SignatureAlgorithm{jose.RS256}))(t)
	must.OK(t, token.UnsafeClaimsWithoutVerification(&claims))
	return claims
}

// TestTokensNameTheirEnvironment has an evaluator that was taken over ask for identity tokens of other environments.
func TestTokensNameTheirEnvironment(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		s.issues()
		login := s.add("ann", s.acme, "login", "values: {token: {fn::open::oidc: {}}}")
		s.add("ann", s.acme, "plain", "values: {a: oidc}")
		s.add("ann", s.acme, "aws", "values: {a: {fn::open::aws-login: {}}}")
		other := s.add("ann", s.acme, "other", "values: {token: {fn::open::oidc: {}}}")
		imported := environmentAsk("app/login")
		// A definition without a name imports one environment, which imports another one.
		nested := wire.Ask{Environment: &wire.EnvironmentAsk{Name: "app/other", Importer: "app/login"}}
		for name, c := range map[string]struct {
			asks     []wire.Ask
			id, root string
		}{
			"imported environment":            {[]wire.Ask{imported, oidcAsk("app/login", "app/login")}, login.ID, login.ID},
			"nested environment":              {[]wire.Ask{imported, nested, oidcAsk("app/other", "app/login")}, other.ID, login.ID},
			"definition without a name":       {[]wire.Ask{imported, oidcAsk("<yaml>", "<yaml>")}, "", ""},
			"environment that is not granted": {[]wire.Ask{imported, oidcAsk("app/other", "app/login")}, "", ""},
			"environment without a provider":  {[]wire.Ask{environmentAsk("app/plain"), oidcAsk("app/plain", "app/plain")}, "", ""},
			"environment with another one":    {[]wire.Ask{environmentAsk("app/aws"), oidcAsk("app/aws", "app/aws")}, "", ""},
			"another root":                    {[]wire.Ask{imported, nested, oidcAsk("app/other", "app/other")}, "", ""},
			"no root":                         {[]wire.Ask{imported, oidcAsk("app/login", "app/prod")}, "", ""},
		} {
			answers := s.answers("ann", c.asks...)
			claims := claimsIn(t, answers[len(answers)-1])
			if c.id == "" && claims != nil || c.id != "" && (claims["sub"] != "pulumi:org:"+s.acme.ID+":env:"+c.id || claims["https://pulumi.com/root_env_id"] != c.root) {
				t.Errorf("%s: %v, answered %s", name, claims, answers[len(answers)-1])
			}
		}
		// The root of a named environment is that environment, whatever the evaluator says.
		text := string(must.Get(json.Marshal(script{Asks: []wire.Ask{imported, oidcAsk("app/login", "app/login")}}))(t))
		named := Root{Org: s.acme, Environment: &other, Definition: text, Revision: 2}
		opened := must.Get(s.Open(t.Context(), s.p("ann"), named, time.Hour))(t)
		values := must.Get(s.Session(t.Context(), s.p("ann"), s.acme.ID, "app/other", opened.ID))(t)
		if c := claimsIn(t, values.Properties["answers"].Value.([]wire.Value)[1].Value.(string)); c["https://pulumi.com/root_env_id"] != other.ID || c["https://pulumi.com/actor"] != "ann" {
			t.Errorf("the token of a named environment has the claims %v", c)
		}
		// A draft of another branch gets none.
		own := Root{Org: s.acme, Environment: &other, Revision: 2, Definition: string(must.Get(json.Marshal(script{
			Asks: []wire.Ask{oidcAsk("app/other", "app/other")}, Values: wire.Values{"how": {Value: "fn::open"}},
		}))(t))}
		for _, silent := range []bool{false, true} {
			own.Silent = silent
			opened := must.Get(s.Open(t.Context(), s.p("ann"), own, time.Hour))(t)
			values := must.Get(s.Session(t.Context(), s.p("ann"), s.acme.ID, "app/other", opened.ID))(t)
			if c := claimsIn(t, values.Properties["answers"].Value.([]wire.Value)[0].Value.(string)); (c == nil) != silent {
				t.Errorf("silent %t: the token has the claims %v", silent, c)
			}
		}
		log := s.log()
		if !strings.Contains(log, "environment.identity-token-issued") || !strings.Contains(log, "https://service.test as pulumi:org:"+s.acme.ID+":env:"+login.ID) {
			t.Errorf("the audit log is\n%s", log)
		}
	})
}

// TestProvidersAreRecordedFirst sends a secret to an adapter, and then fails without a result.
func TestProvidersAreRecordedFirst(t *testing.T) {
	s := newSite(t, storetest.SQLite(t))
	s.issues()
	s.add("ann", s.acme, "login", "values: {token: {fn::open::external: {}}}")
	ask := wire.Ask{Open: &wire.OpenAsk{Provider: "external", Current: "app/login", Root: "app/login", Inputs: wire.Values{"url": {Value: "https://127.0.0.1/"}}}}
	got := s.answers("ann", environmentAsk("app/login"), ask)
	if !strings.Contains(got[1], "it cannot be reached, or its address is not public") {
		t.Errorf("the adapter of this machine: %s", got[1])
	}
	s = newSite(t, storetest.SQLite(t))
	s.issues()
	s.add("ann", s.acme, "login", "values: {token: {fn::open::external: {}}}")
	crash := wire.Ask{} // breaks the rules, so that there is no result
	_, err := s.Open(t.Context(), s.p("ann"), s.root(s.acme, script{Asks: []wire.Ask{environmentAsk("app/login"), ask, crash}}), time.Hour)
	if fault.KindOf(err) != fault.KindInvalid || !strings.Contains(err.Error(), "without a result") {
		t.Errorf("the evaluation returned %v", err)
	}
	if log := s.log(); !strings.Contains(log, "environment.opened") {
		t.Errorf("the audit log is\n%s", log)
	}
}

// TestUsesOfTheIssuer finds environments for which others must trust the issuers.
func TestUsesOfTheIssuer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		s := newSite(t, db)
		uses := func() (clouds, custom bool) {
			must.OK(t, db.Read(t.Context(), func(tx *store.Tx) (err error) {
				if clouds, err = tx.EnvironmentsUseIssuer(); err == nil {
					custom, err = tx.EnvironmentsUseCustomIssuer()
				}
				return err
			}))
			return clouds, custom
		}
		e := s.add("ann", s.acme, "login", "values: {a: {fn::open::aws-login: {static: {}}}}")
		for _, step := range []struct {
			definition     string
			clouds, custom bool
		}{
			{"values: {a: aws-login oidc}", false, false},
			{"values: {a: {fn::open::gcp-login: {oidc: {}}}}", true, false},
			{"values: {a: {fn::open: {provider: azure-login, inputs: {oidc: true}}}}", true, false},
			{"values: {a: {fn::open::oidc: {}}}", false, true},
			{"values: {}", false, false}, // older revisions do not count
		} {
			must.Get(s.envs.Update(t.Context(), s.p("ann"), e, step.definition, ""))(t)
			if clouds, custom := uses(); clouds != step.clouds || custom != step.custom {
				t.Errorf("%s: clouds %t, second issuer %t", step.definition, clouds, custom)
			}
		}
	})
}
