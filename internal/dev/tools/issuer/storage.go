package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// person is a person who can sign in, and the content of that person's ID tokens.
type person struct {
	// Login is the login hint that selects the person.
	Login   string         `json:"login"`
	Subject string         `json:"subject"`
	Claims  map[string]any `json:"claims"`
	// Client is the id of the requesting client, which is the first audience.
	Client        string   `json:"client"`
	MoreAudiences []string `json:"moreAudiences"`
	// Seconds is the lifetime of the ID token.
	Seconds float64 `json:"seconds"`
}

// storage keeps all data in memory. It implements the part of the provider's storage that the
// authorization code flow needs; the other methods are never called.
type storage struct {
	op.Storage

	mu       sync.Mutex
	people   map[string]person // by login
	clients  map[string]client // by id
	requests map[string]*request
	codes    map[string]string // code -> id of the request
	key      *signingKey
}

func newStorage() (*storage, error) {
	s := &storage{
		people: map[string]person{}, clients: map[string]client{},
		requests: map[string]*request{}, codes: map[string]string{},
	}
	return s, s.rotate()
}

// rotate creates a new key and discards the previous one.
func (s *storage) rotate() error {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = &signingKey{id: rand.Text(), private: private}
	return nil
}

func (s *storage) add(p person) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.people[p.Login] = p
	s.clients[p.Client] = client{id: p.Client, lifetime: time.Duration(p.Seconds * float64(time.Second))}
}

// login ends the sign-in of a request.
func (s *storage) login(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.requests[id]
	if !ok {
		return errors.New("no such sign-in")
	}
	r.done = true
	return nil
}

func (s *storage) CreateAuthRequest(_ context.Context, asked *oidc.AuthRequest, _ string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.people[asked.LoginHint]
	if !ok {
		return nil, oidc.ErrLoginRequired().WithDescription("no person has this login")
	}
	r := &request{id: rand.Text(), asked: *asked, person: p}
	s.requests[r.id] = r
	return r, nil
}

func (s *storage) AuthRequestByID(_ context.Context, id string) (op.AuthRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.requests[id]; ok {
		return r, nil
	}
	return nil, errors.New("no such sign-in")
}

func (s *storage) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	s.mu.Lock()
	id, ok := s.codes[code]
	s.mu.Unlock()
	if !ok {
		return nil, errors.New("no such code")
	}
	return s.AuthRequestByID(ctx, id)
}

func (s *storage) SaveAuthCode(_ context.Context, id, code string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[code] = id
	return nil
}

func (s *storage) DeleteAuthRequest(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, id)
	maps.DeleteFunc(s.codes, func(_, of string) bool { return of == id })
	return nil
}

// CreateAccessToken returns an access token that no test uses.
func (s *storage) CreateAccessToken(context.Context, op.TokenRequest) (string, time.Time, error) {
	return rand.Text(), time.Now().Add(time.Minute), nil
}

func (s *storage) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clients[id]; ok {
		return c, nil
	}
	return nil, errors.New("no such client")
}

// SetUserinfoFromScopes is replaced by SetUserinfoFromRequest.
func (s *storage) SetUserinfoFromScopes(context.Context, *oidc.UserInfo, string, string, []string) error {
	return nil
}

// SetUserinfoFromRequest puts a person's subject and claims into the ID token.
func (s *storage) SetUserinfoFromRequest(_ context.Context, info *oidc.UserInfo, asked op.IDTokenRequest, _ []string) error {
	r, ok := asked.(*request)
	if !ok {
		return errors.New("only sign-ins have claims")
	}
	info.Subject = r.person.Subject
	for name, value := range r.person.Claims {
		info.AppendClaims(name, value)
	}
	return nil
}

func (s *storage) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, nil
}

func (s *storage) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []op.Key{publicKey{s.key}}, nil
}

func (s *storage) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *storage) Health(context.Context) error { return nil }

// signingKey signs; publicKey is its public half.
type signingKey struct {
	id      string
	private *rsa.PrivateKey
}

func (k *signingKey) ID() string                                  { return k.id }
func (k *signingKey) Key() any                                    { return k.private }
func (k *signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }

type publicKey struct{ of *signingKey }

func (k publicKey) ID() string                         { return k.of.id }
func (k publicKey) Key() any                           { return k.of.private.Public() }
func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
