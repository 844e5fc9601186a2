// Package openid lets users sign in at identity providers by OpenID Connect. An operator lists the
// providers in a file. Package oidc is about the tokens of machines instead.
package openid

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/sirupsen/logrus"
	"golang.org/x/oauth2"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/signin"
	"workflowagent/internal/server/outbound"
)

const (
	// Lasts is the time for which a started sign-in can be finished.
	Lasts = 10 * time.Minute
	// confirmWithin is the maximum age of the sign-in at the provider when a user confirms who they
	// are.
	confirmWithin = 15 * time.Minute
	// skew is the tolerated difference to a provider's clock.
	skew = time.Minute
	// maxNext bounds the path to which a user returns, because a cookie contains it.
	maxNext    = 2000
	maxSubject = 255
)

// Service signs users in at identity providers.
type Service struct {
	log       *logrus.Entry
	box       signin.Box
	providers []*provider
}

// Options are the options of [New].
type Options struct {
	Log       *logrus.Entry
	Secrets   signin.Secrets
	Providers []Config
	// URL is the console's address for browsers, without a trailing slash.
	URL string
}

// New returns a service for the providers. It does not call them.
func New(o Options) (*Service, error) {
	s := &Service{log: o.Log, box: signin.Box{Secrets: o.Secrets, Purpose: "provider"}}
	for _, c := range o.Providers {
		client, err := outbound.Trusting(c.Authority)
		if err != nil {
			return nil, fmt.Errorf("setting up the identity provider %s: %w", c.ID, err)
		}
		s.providers = append(s.providers, &provider{Config: c, client: client, redirect: o.URL + ReturnPath(c.ID)})
	}
	return s, nil
}

// StartPath and ReturnPath are the paths of the console at which a sign-in begins, and to which the
// provider returns the browser.
func StartPath(id string) string { return "/-/login/with/" + id }

// ReturnPath is described at [StartPath].
func ReturnPath(id string) string { return StartPath(id) + "/return" }

// Providers returns the providers in the order of the file.
func (s *Service) Providers() []Config {
	var list []Config
	for _, p := range s.providers {
		list = append(list, p.Config)
	}
	return list
}

// Name returns the name of the provider of an issuer, or the issuer if the file does not contain it any more.
func (s *Service) Name(issuer string) string {
	for _, p := range s.providers {
		if p.Issuer == issuer {
			return p.Config.Name
		}
	}
	return issuer
}

func (s *Service) provider(id string) (*provider, error) {
	for _, p := range s.providers {
		if p.ID == id {
			return p, nil
		}
	}
	return nil, fault.NotFound("This server has no identity provider %q.", id)
}

// Attempt is a sign-in that a visitor starts.
type Attempt struct {
	// Next is the path to which the user returns.
	Next string
	// UserID is the user to whom the identity gets connected; "" for a sign-in.
	UserID string
	// Invitation identifies the invitation that the user has opened; "" for none.
	Invitation string
	// Confirm makes the provider ask the user again, although the user is signed in there.
	Confirm bool
}

// started is what the browser keeps while the user is at the provider.
type started struct {
	Attempt
	Provider, State, Nonce, Verifier string
}

// Start begins a sign-in. It returns the address at the provider and the text of a cookie for the
// browser.
func (s *Service) Start(ctx context.Context, id string, a Attempt) (address, cookie string, err error) {
	p, err := s.provider(id)
	if err != nil {
		return "", "", err
	}
	f, err := p.discover(ctx)
	if err != nil {
		s.log.WithError(err).WithField("provider", p.ID).Warn("an identity provider is not available")
		return "", "", s.unavailable(p, err)
	}
	client, err := p.oauth(f)
	if err != nil {
		return "", "", s.broken(p, err)
	}
	if len(a.Next) > maxNext {
		a.Next = "/"
	}
	st := started{Attempt: a, Provider: p.ID, State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	if cookie, err = s.box.Seal(ctx, st, time.Now().Add(Lasts)); err != nil {
		return "", "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(st.Nonce), oauth2.S256ChallengeOption(st.Verifier)}
	if a.Confirm {
		options = append(options, oauth2.SetAuthURLParam("max_age", fmt.Sprint(int(confirmWithin.Seconds()))))
	}
	return client.AuthCodeURL(st.State, options...), cookie, nil
}

func (s *Service) unavailable(p *provider, cause error) error {
	return fault.Wrap(fault.KindUnavailable, cause, "%s is not available now. Try again later, or sign in in another way.", p.Name)
}

// broken is the error of a provider or configuration that the operator must correct.
func (s *Service) broken(p *provider, cause error) error {
	s.log.WithError(cause).WithField("provider", p.ID).Error("signing in at an identity provider failed")
	return fault.Wrap(fault.KindUnavailable, cause, "The sign-in at %s failed. The server's log tells its operator why. Sign in in another way.", p.Name)
}

// errStarted is the error of an answer that does not belong to a sign-in of this browser.
var errStarted = fault.New(fault.KindUnauthenticated, "The sign-in was started in another browser, or more than 10 minutes ago. Sign in again.")

// Finished is a sign-in that a provider has confirmed.
type Finished struct {
	Attempt
	External identity.External
	// Confirmed is when the user signed in at the provider; zero if the provider does not say.
	Confirmed time.Time
}

// Finish ends a sign-in with the provider's answer. The cookie and the query of the answer are
// untrusted. The [fault.KindUnauthenticated] and [fault.KindForbidden] errors mean that the visitor
// is not who they claim to be.
func (s *Service) Finish(ctx context.Context, id, cookie string, query func(string) string) (Finished, error) {
	p, err := s.provider(id)
	if err != nil {
		return Finished{}, err
	}
	var st started
	if err := s.box.Open(ctx, cookie, &st); err != nil || st.Provider != p.ID || st.State == "" ||
		subtle.ConstantTimeCompare([]byte(st.State), []byte(query("state"))) != 1 {
		return Finished{}, errStarted
	}
	// The parameter iss protects against answers of another provider, RFC 9207.
	if iss := query("iss"); iss != "" && iss != p.Issuer {
		return Finished{}, s.refused(p, errors.New("the answer names another issuer"))
	}
	if code := query("error"); code != "" {
		s.log.WithFields(logrus.Fields{"provider": p.ID, "error": code, "description": query("error_description")}).Info("an identity provider refused a sign-in")
		return Finished{}, fault.New(fault.KindUnauthenticated, "%s refused the sign-in (%s).", p.Name, errorCode(code))
	}
	f, err := p.discover(ctx)
	if err != nil {
		s.log.WithError(err).WithField("provider", p.ID).Warn("an identity provider is not available")
		return Finished{}, s.unavailable(p, err)
	}
	token, err := s.exchange(ctx, p, f, st, query("code"))
	if err != nil {
		return Finished{}, err
	}
	return s.verify(ctx, p, f, st, token)
}

var codePattern = regexp.MustCompile(`^[a-z_]{1,60}$`)

// errorCode returns the code of an error for display.
func errorCode(code string) string {
	if codePattern.MatchString(code) {
		return code
	}
	return "unknown error"
}

func (s *Service) exchange(ctx context.Context, p *provider, f *found, st started, code string) (*oauth2.Token, error) {
	client, err := p.oauth(f)
	if err != nil {
		return nil, s.broken(p, err)
	}
	token, err := client.Exchange(p.client.Context(ctx), code, oauth2.VerifierOption(st.Verifier))
	if err == nil {
		return token, nil
	}
	refusal, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		s.log.WithError(err).WithField("provider", p.ID).Warn("exchanging a code at an identity provider failed")
		return nil, s.unavailable(p, err)
	case refusal.ErrorCode == "invalid_grant":
		return nil, s.refused(p, errors.New("the provider does not accept the code: it was used, has expired, or belongs to another client"))
	default: // the response can contain secrets
		return nil, s.broken(p, fmt.Errorf("exchanging a code: the provider answered %s", errorCode(refusal.ErrorCode)))
	}
}

// refused is the error of an answer that proves nothing. The visitor does not learn why.
func (s *Service) refused(p *provider, cause error) error {
	s.log.WithError(cause).WithField("provider", p.ID).Warn("the answer of an identity provider was refused")
	return fault.Wrap(fault.KindUnauthenticated, cause, "%s did not confirm who you are. Sign in again.", p.Name)
}

func (s *Service) verify(ctx context.Context, p *provider, f *found, st started, token *oauth2.Token) (Finished, error) {
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return Finished{}, s.broken(p, errors.New("the provider issued no ID token: its client must be permitted the scope openid"))
	}
	id, err := f.verifier.Verify(p.client.Context(ctx), raw)
	if err != nil {
		return Finished{}, s.refused(p, err)
	}
	var all struct {
		Party    string `json:"azp"`
		AuthTime int64  `json:"auth_time"`
	}
	c := claims{}
	if err := errors.Join(id.Claims(&c), id.Claims(&all)); err != nil {
		return Finished{}, s.refused(p, err)
	}
	switch {
	case st.Nonce == "" || subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(st.Nonce)) != 1:
		return Finished{}, s.refused(p, errors.New("the token has the nonce of another sign-in"))
	case id.Subject == "" || len(id.Subject) > maxSubject:
		return Finished{}, s.refused(p, errors.New("the token has no subject, or a subject that is too long"))
	case all.Party != "" && all.Party != p.ClientID, len(id.Audience) > 1 && all.Party == "":
		return Finished{}, s.refused(p, errors.New("the token was issued to another client"))
	}
	if p.lacks(c) && f.userInfo {
		if err := s.complete(ctx, p, f, token, id.Subject, c); err != nil {
			return Finished{}, err
		}
	}
	done := Finished{Attempt: st.Attempt, External: p.external(id.Subject, c)}
	if all.AuthTime > 0 {
		done.Confirmed = time.Unix(all.AuthTime, 0)
	}
	if st.Confirm && all.AuthTime > 0 && time.Since(done.Confirmed) > confirmWithin+skew {
		return Finished{}, fault.New(fault.KindUnauthenticated, "%s did not ask you to sign in again. Sign out there first, or sign in in another way.", p.Name)
	}
	return done, nil
}

// complete adds claims that the ID token lacks. Some providers answer them only to a further call.
func (s *Service) complete(ctx context.Context, p *provider, f *found, token *oauth2.Token, subject string, c claims) error {
	info, err := f.library.UserInfo(p.client.Context(ctx), oauth2.StaticTokenSource(token))
	if err != nil {
		// The library's error can contain the response.
		s.log.WithField("provider", p.ID).Warn("an identity provider did not answer the claims of a user")
		return s.unavailable(p, errors.New("fetching the claims of a user failed"))
	}
	if info.Subject != subject {
		return s.refused(p, errors.New("the claims belong to another user than the ID token"))
	}
	more := claims{}
	if err := info.Claims(&more); err != nil {
		return s.refused(p, err)
	}
	// An address counts only together with the statement of the same source that it is verified.
	if _, known := c["email"]; known {
		delete(more, "email_verified")
	} else {
		delete(c, "email_verified")
	}
	for name, value := range more {
		if _, known := c[name]; !known {
			c[name] = value
		}
	}
	return nil
}
