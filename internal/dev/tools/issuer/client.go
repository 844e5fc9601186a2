package main

import (
	"time"

	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	// loginPath is the path of the login page, which asks for no input.
	loginPath = "/login"
	// redirectURI is the address to which every code is sent; nothing listens on it.
	redirectURI = "http://127.0.0.1/callback"
)

// client is the client of one sign-in: its id becomes the audience of the ID token.
type client struct {
	id       string
	lifetime time.Duration
}

var _ op.Client = client{}

func (c client) GetID() string                     { return c.id }
func (client) RedirectURIs() []string              { return []string{redirectURI} }
func (client) PostLogoutRedirectURIs() []string    { return nil }
func (client) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }
func (client) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodNone }
func (client) ResponseTypes() []oidc.ResponseType  { return []oidc.ResponseType{oidc.ResponseTypeCode} }

func (client) GrantTypes() []oidc.GrantType         { return []oidc.GrantType{oidc.GrantTypeCode} }
func (client) LoginURL(id string) string            { return loginPath + "?request=" + id }
func (client) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (c client) IDTokenLifetime() time.Duration     { return c.lifetime }
func (client) DevMode() bool                        { return false }
func (client) IsScopeAllowed(string) bool           { return false }
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }
func (client) ClockSkew() time.Duration             { return 0 }
func (client) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

func (client) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func(scopes []string) []string { return scopes }
}

// request is a sign-in in progress.
type request struct {
	id     string
	asked  oidc.AuthRequest
	person person
	done   bool
}

var _ op.AuthRequest = (*request)(nil)

func (r *request) GetID() string                      { return r.id }
func (r *request) GetACR() string                     { return "" }
func (r *request) GetAMR() []string                   { return nil }
func (r *request) GetAudience() []string              { return r.person.MoreAudiences }
func (r *request) GetAuthTime() time.Time             { return time.Now() }
func (r *request) GetClientID() string                { return r.asked.ClientID }
func (r *request) GetNonce() string                   { return r.asked.Nonce }
func (r *request) GetRedirectURI() string             { return r.asked.RedirectURI }
func (r *request) GetResponseType() oidc.ResponseType { return r.asked.ResponseType }
func (r *request) GetResponseMode() oidc.ResponseMode { return r.asked.ResponseMode }
func (r *request) GetScopes() []string                { return r.asked.Scopes }
func (r *request) GetState() string                   { return r.asked.State }
func (r *request) GetSubject() string                 { return r.person.Subject }
func (r *request) Done() bool                         { return r.done }
func (r *request) GetCodeChallenge() *oidc.CodeChallenge {
	return &oidc.CodeChallenge{Challenge: r.asked.CodeChallenge, Method: r.asked.CodeChallengeMethod}
}
