package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"workflowagent/internal/server/outbound"
)

const (
	wellKnown = "/.well-known/openid-configuration"
	// freshFor is the time for which a provider's configuration and keys are used without another
	// fetch.
	freshFor = 10 * time.Minute
)

// algorithms are the accepted signature algorithms. All are asymmetric, so that a token without a
// signature, or signed with a public key as a shared secret, is not accepted.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

// provider is an identity provider.
type provider struct {
	Config
	client   *outbound.Client
	redirect string

	fetches singleflight.Group
	known   atomic.Pointer[found]
}

// found is what a provider publishes about itself.
type found struct {
	at       time.Time
	library  *oidc.Provider
	verifier *oidc.IDTokenVerifier
	endpoint oauth2.Endpoint
	userInfo bool
}

// document is the part of a provider's configuration that the server uses.
type document struct {
	oidc.ProviderConfig
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
}

// discover returns what the provider publishes. Concurrent callers share one fetch, which a visitor
// who leaves does not end for the others.
func (p *provider) discover(ctx context.Context) (*found, error) {
	if known := p.known.Load(); known != nil && time.Since(known.at) < freshFor {
		return known, nil
	}
	_, err, _ := p.fetches.Do("", func() (any, error) {
		fetched, err := p.fetch(context.WithoutCancel(ctx))
		if err == nil {
			p.known.Store(fetched)
		}
		return nil, err
	})
	return p.known.Load(), err
}

func (p *provider) fetch(ctx context.Context) (*found, error) {
	answer, err := p.client.Get(ctx, strings.TrimSuffix(p.Issuer, "/")+wellKnown, nil)
	if err != nil {
		return nil, fmt.Errorf("fetching the configuration of %s: %w", p.Issuer, err)
	}
	var doc document
	if err := json.Unmarshal(answer.Body, &doc); err != nil {
		return nil, fmt.Errorf("the configuration of %s is not a valid JSON object", p.Issuer)
	}
	if doc.IssuerURL != p.Issuer {
		return nil, fmt.Errorf("the configuration of %s names a different issuer: copy the issuer from the provider, also its final slash", p.Issuer)
	}
	endpoints := []string{doc.AuthURL, doc.TokenURL, doc.JWKSURL}
	if doc.UserInfoURL != "" {
		endpoints = append(endpoints, doc.UserInfoURL)
	}
	for _, endpoint := range endpoints {
		if err := p.checkEndpoint(endpoint); err != nil {
			return nil, fmt.Errorf("the configuration of %s: %w", p.Issuer, err)
		}
	}
	library := doc.NewProvider(p.client.Context(ctx))
	accepted := algorithms
	if len(doc.Algorithms) > 0 {
		accepted = slices.DeleteFunc(slices.Clone(algorithms), func(name string) bool { return !slices.Contains(doc.Algorithms, name) })
	}
	if len(accepted) == 0 {
		return nil, fmt.Errorf("the configuration of %s lists no asymmetric algorithm for tokens", p.Issuer)
	}
	return &found{
		at: time.Now(), library: library,
		verifier: library.Verifier(&oidc.Config{ClientID: p.ClientID, SupportedSigningAlgs: accepted}),
		endpoint: oauth2.Endpoint{AuthURL: doc.AuthURL, TokenURL: doc.TokenURL, AuthStyle: p.style(doc.AuthMethods)},
		userInfo: doc.UserInfoURL != "",
	}, nil
}

// checkEndpoint returns an error for an address that the server or a browser must not call. A remote
// provider must not make the server call services on its own machine.
func (p *provider) checkEndpoint(address string) error {
	base, _, _ := strings.Cut(address, "?")
	if err := outbound.CheckBase(base); err != nil {
		return fmt.Errorf("the address of an endpoint %w", err)
	}
	if strings.HasPrefix(p.Issuer, "https:") && !strings.HasPrefix(base, "https:") {
		return errors.New("the address of an endpoint does not begin with https://")
	}
	return nil
}

// style returns where the secret belongs. Trying both ways could use the code up.
func (p *provider) style(methods []string) oauth2.AuthStyle {
	if p.SecretFile == "" || len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// oauth returns the client of the provider.
func (p *provider) oauth(f *found) (*oauth2.Config, error) {
	c := &oauth2.Config{
		ClientID: p.ClientID, Endpoint: f.endpoint, RedirectURL: p.redirect,
		Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...),
	}
	var err error
	if p.SecretFile != "" {
		c.ClientSecret, err = readSecret(p.SecretFile)
	}
	return c, err
}
