package github

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/rest"
)

// Lifetimes of tokens. The forge accepts a key's token for at most 10 minutes, and compares it with
// its own clock.
const (
	appLifetime = 9 * time.Minute
	clockSkew   = time.Minute
	renewBefore = 10 * time.Minute
)

type token struct {
	text    string
	expires time.Time
}

// app authenticates as a GitHub App and its installation.
type app struct {
	vcs.App
	forge  *Forge
	signer jose.Signer
	api    *rest.Client // as the app itself
	cache  string       // key in [Forge.tokens]
}

func newApp(f *Forge, config vcs.App, base string, client rest.Client) (*app, error) {
	if config.ID == "" {
		return nil, errors.New("the GitHub App has no id")
	}
	key, err := parseKey(config.PrivateKey)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, errors.New("the GitHub App's private key cannot sign")
	}
	digest := sha256.Sum256([]byte(config.PrivateKey))
	a := &app{App: config, forge: f, signer: signer, cache: base + " " + config.ID + " " + config.Installation + " " + hex.EncodeToString(digest[:])}
	client.Header = a.appHeader
	a.api = &client
	return a, nil
}

func parseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the GitHub App's private key is not in PEM format")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the GitHub App's private key is not an RSA key")
	}
	return key, nil
}

func (a *app) appHeader(context.Context) (map[string]string, error) {
	now := time.Now()
	text, err := jwt.Signed(a.signer).Claims(jwt.Claims{
		Issuer: a.ID, IssuedAt: jwt.NewNumericDate(now.Add(-clockSkew)), Expiry: jwt.NewNumericDate(now.Add(appLifetime)),
	}).Serialize()
	if err != nil {
		return nil, errors.New("signing the GitHub App's token failed")
	}
	return bearer(text), nil
}

// installationHeader returns the header of the installation's own token, which it reuses until
// shortly before its end.
func (a *app) installationHeader(ctx context.Context) (map[string]string, error) {
	a.forge.mu.Lock()
	known := a.forge.tokens[a.cache]
	a.forge.mu.Unlock()
	if time.Until(known.expires) > renewBefore {
		return bearer(known.text), nil
	}
	fresh, err := a.mint(ctx, nil)
	if err != nil {
		return nil, err
	}
	a.forge.mu.Lock()
	defer a.forge.mu.Unlock()
	if a.forge.tokens == nil {
		a.forge.tokens = map[string]token{}
	}
	for key, t := range a.forge.tokens {
		if time.Until(t.expires) < 0 {
			delete(a.forge.tokens, key)
		}
	}
	a.forge.tokens[a.cache] = fresh
	return bearer(fresh.text), nil
}

// credential returns that of the server's own requests by git.
func (a *app) credential(ctx context.Context) (vcs.Credential, error) {
	header, err := a.installationHeader(ctx)
	return vcs.Credential{UserName: user, Password: strings.TrimPrefix(header["Authorization"], "Bearer ")}, err
}

// mint creates a token of the installation, with the rights in scope or all of them.
func (a *app) mint(ctx context.Context, scope map[string]any) (token, error) {
	var answer struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expires_at"`
	}
	if a.Installation == "" {
		return token{}, vcs.ErrNotInstalled
	}
	var body any
	if scope != nil {
		body = scope
	}
	if _, err := a.api.Send(ctx, "POST", "/app/installations"+rest.Path(a.Installation, "access_tokens"), body, &answer); err != nil {
		return token{}, fmt.Errorf("creating a token of the GitHub App's installation: %w", err)
	}
	if answer.Token == "" {
		return token{}, errors.New("creating a token of the GitHub App's installation: the forge returned none")
	}
	return token{answer.Token, answer.Expires}, nil
}

// narrow creates a credential that can only read the content of one repository.
func (a *app) narrow(ctx context.Context, repo vcs.RepoID) (vcs.Credential, error) {
	var scope map[string]any
	if !a.WholeInstallation {
		id, err := strconv.ParseInt(repo.ID, 10, 64)
		if err != nil {
			return vcs.Credential{}, fmt.Errorf("%q is not the id of a repository", repo.ID)
		}
		scope = map[string]any{"repository_ids": []int64{id}, "permissions": map[string]string{"contents": "read", "metadata": "read"}}
	}
	t, err := a.mint(ctx, scope)
	return vcs.Credential{UserName: user, Password: t.text, Expires: t.expires}, err
}

func bearer(text string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + text, "Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
}
