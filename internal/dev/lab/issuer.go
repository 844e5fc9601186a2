package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/oauth2"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/lab/jsoncall"
)

const (
	issuerBinary = "issuer"
	// issuerStart is the time limit for an issuer's start, excluding the build.
	issuerStart    = 2 * time.Minute
	issuerCall     = time.Minute
	issuerCallback = "http://127.0.0.1/callback"
)

// Issuer is a running internal/dev/tools/issuer: a real OpenID provider on loopback, over TLS with
// its own certificate authority. It issues ID tokens by the authorization code flow.
type Issuer struct {
	// URL is the provider's address and the issuer of its tokens.
	URL string
	// CA is the authority's certificate in PEM form, the content of CAFile.
	CA []byte
	// CAFile is a file in the issuer's directory. A Go program trusts it if SSL_CERT_FILE names it.
	CAFile string

	client  *http.Client
	process *child.Process
}

// Identity is the content of an ID token.
type Identity struct {
	// Audience is the first audience; MoreAudiences are the following ones.
	Audience      string
	MoreAudiences []string
	// Subject defaults to "somebody".
	Subject string
	// Claims are added to the standard claims of the token.
	Claims map[string]any
	// Lifetime defaults to 5 minutes and must be a multiple of a second. A negative lifetime
	// creates an expired token.
	Lifetime time.Duration
}

// StartIssuer starts a provider with its files in dir. The first call builds the provider, which
// takes about half a minute and is reported on progress. The caller must close the issuer.
func StartIssuer(ctx context.Context, dir string, progress io.Writer) (*Issuer, error) {
	binary, err := buildIssuer(ctx, progress)
	if err != nil {
		return nil, err
	}
	i := new(Issuer)
	if err := i.start(ctx, binary, dir); err != nil {
		i.Close()
		return nil, fmt.Errorf("starting an OpenID provider: %w", err)
	}
	return i, nil
}

// Close stops the provider.
func (i *Issuer) Close() {
	if i.process != nil {
		_ = i.process.Stop(syscall.SIGTERM, child.Patience)
		i.client.CloseIdleConnections()
	}
}

// IDToken signs in as who and returns the ID token.
func (i *Issuer) IDToken(ctx context.Context, who Identity) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerCall)
	defer cancel()
	token, err := i.signIn(ctx, who)
	if err != nil {
		return "", fmt.Errorf("requesting an ID token: %w", err)
	}
	return token, nil
}

// Rotate replaces the signing key. Earlier tokens are valid only for clients that cache the old
// key.
func (i *Issuer) Rotate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, issuerCall)
	defer cancel()
	if err := i.post(ctx, "/lab/rotate", nil); err != nil {
		return fmt.Errorf("rotating the issuer's key: %w", err)
	}
	return nil
}

func buildIssuer(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := buildModule(ctx, progress, "issuer", []program{{
		name: issuerBinary, pkg: ".", what: "an OpenID provider", expect: "about 1 min",
	}})
	return filepath.Join(dir, issuerBinary), err
}

func (i *Issuer) start(ctx context.Context, binary, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	announced, logPath := filepath.Join(dir, "issuer.json"), filepath.Join(dir, "issuer.log")
	if err := os.Remove(announced); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	i.client = &http.Client{}
	i.process, err = child.Start(context.WithoutCancel(ctx), binary, []string{"-dir", dir}, os.Environ(), logPath)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, issuerStart)
	defer cancel()
	err = i.process.Await(ctx, 20*time.Millisecond, func() (bool, error) {
		_, err := os.Stat(announced)
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	return i.read(announced, filepath.Join(dir, "issuer-ca.pem"))
}

func (i *Issuer) read(announced, caFile string) error {
	data, err := os.ReadFile(announced)
	if err != nil {
		return err
	}
	var ready struct{ URL, CA string }
	if err := json.Unmarshal(data, &ready); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ready.CA)) {
		return errors.New("the provider printed no certificate")
	}
	i.URL, i.CA, i.CAFile = ready.URL, []byte(ready.CA), caFile
	i.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	i.client.CheckRedirect = func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.String(), issuerCallback) {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return os.WriteFile(caFile, i.CA, 0o644)
}

// signIn runs the authorization code flow, as a public client with PKCE.
func (i *Issuer) signIn(ctx context.Context, who Identity) (string, error) {
	if who.Subject == "" {
		who.Subject = "somebody"
	}
	if who.Lifetime == 0 {
		who.Lifetime = 5 * time.Minute
	}
	login, verifier := rand.Text(), oauth2.GenerateVerifier()
	err := i.post(ctx, "/lab/people", map[string]any{
		"login": login, "subject": who.Subject, "claims": who.Claims, "client": who.Audience,
		"moreAudiences": who.MoreAudiences, "seconds": who.Lifetime.Seconds(),
	})
	if err != nil {
		return "", err
	}
	config := oauth2.Config{
		ClientID: who.Audience, RedirectURL: issuerCallback, Scopes: []string{"openid"},
		Endpoint: oauth2.Endpoint{AuthURL: i.URL + "/authorize", TokenURL: i.URL + "/oauth/token", AuthStyle: oauth2.AuthStyleInParams},
	}
	code, err := i.authorize(ctx, config.AuthCodeURL(login, oauth2.S256ChallengeOption(verifier), oauth2.SetAuthURLParam("login_hint", login)))
	if err != nil {
		return "", err
	}
	token, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, i.client), code, oauth2.VerifierOption(verifier))
	if err != nil {
		return "", err
	}
	id, ok := token.Extra("id_token").(string)
	if !ok || id == "" {
		return "", errors.New("the provider's response holds no ID token")
	}
	return id, nil
}

// authorize signs in at an address, and returns the code with which the provider redirects.
func (i *Issuer) authorize(ctx context.Context, address string) (code string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := i.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	back, err := res.Location()
	if err != nil {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10)) // read only for the error text
		return "", fmt.Errorf("the sign-in returned %s: %s", res.Status, bytes.TrimSpace(text))
	}
	if code = back.Query().Get("code"); code == "" {
		return "", fmt.Errorf("the provider's redirect holds no code: %s", back.RawQuery)
	}
	return code, nil
}

func (i *Issuer) post(ctx context.Context, path string, body any) error {
	return jsoncall.Do(ctx, i.client, http.MethodPost, i.URL+path, nil, body, nil)
}
