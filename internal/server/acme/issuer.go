package acme

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
)

// issuer obtains certificates from the authority. It implements [certmagic.Issuer].
type issuer struct {
	opts   Options
	values *values
	client acmez.Client
}

func newIssuer(o Options, v *values) *issuer {
	i := &issuer{opts: o, values: v}
	i.client.Client = &protocol.Client{Directory: o.Directory, HTTPClient: o.Client.Slow(), UserAgent: "workflow-server"}
	i.client.ChallengeSolvers = map[string]acmez.Solver{protocol.ChallengeTypeTLSALPN01: i}
	if o.HTTP {
		i.client.ChallengeSolvers[protocol.ChallengeTypeHTTP01] = i
	}
	return i
}

// IssuerKey implements [certmagic.Issuer]. Certificates of different authorities are stored apart.
func (i *issuer) IssuerKey() string {
	_, address, _ := strings.Cut(i.opts.Directory, "://")
	return strings.Trim(strings.ReplaceAll(address, "/", "-"), "-")
}

// GetRenewalInfo implements [certmagic.RenewalInfoGetter].
func (i *issuer) GetRenewalInfo(ctx context.Context, c certmagic.Certificate) (protocol.RenewalInfo, error) {
	return i.client.GetRenewalInfo(ctx, c.Leaf)
}

// Issue implements [certmagic.Issuer].
func (i *issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	chains, err := i.order(ctx, csr)
	if problem, ok := errors.AsType[protocol.Problem](err); ok && problem.Type == protocol.ProblemTypeAccountDoesNotExist {
		// The authority was set up again. Register again, once.
		if err := i.values.Delete(ctx, i.accountName()); err != nil {
			return nil, err
		}
		chains, err = i.order(ctx, csr)
	}
	if err != nil {
		return nil, err
	}
	if len(chains) == 0 {
		return nil, errors.New("the authority issued no certificate")
	}
	return &certmagic.IssuedCertificate{Certificate: chains[0].ChainPEM, Metadata: chains[0]}, nil
}

func (i *issuer) order(ctx context.Context, csr *x509.CertificateRequest) ([]protocol.Certificate, error) {
	account, err := i.account(ctx)
	if err != nil {
		return nil, err
	}
	params, err := acmez.OrderParametersFromCSR(account, csr)
	if err != nil {
		return nil, err
	}
	return i.client.ObtainCertificate(ctx, params)
}

// registration is an account and its private key.
type registration struct {
	Account protocol.Account `json:"account"`
	Key     string           `json:"key"` // PEM
}

func (i *issuer) dir() string {
	return path.Join("acme", certmagic.StorageKeys.Safe(i.IssuerKey()))
}

// accountName returns the name under which the account is stored. The operator gets a new one with another address or
// another external account.
func (i *issuer) accountName() string {
	return path.Join(i.dir(), "accounts", certmagic.StorageKeys.Safe("account "+i.opts.Email+" "+i.opts.KeyID)+".json")
}

// account returns the account of the servers, which it registers if there is none.
func (i *issuer) account(ctx context.Context) (protocol.Account, error) {
	text, err := i.values.Load(ctx, i.accountName())
	if errors.Is(err, fs.ErrNotExist) {
		return i.register(ctx)
	}
	var r registration
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil {
		r.Account.PrivateKey, err = certmagic.PEMDecodePrivateKey([]byte(r.Key))
	}
	if err != nil {
		return protocol.Account{}, fmt.Errorf("reading the ACME account: %w", err)
	}
	return r.Account, nil
}

// register creates an account at the authority. The operator has agreed to its terms.
func (i *issuer) register(ctx context.Context) (protocol.Account, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return protocol.Account{}, fmt.Errorf("generating the key of the ACME account: %w", err)
	}
	account := protocol.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if i.opts.Email != "" {
		account.Contact = []string{"mailto:" + i.opts.Email}
	}
	if i.opts.KeyID != "" {
		err := account.SetExternalAccountBinding(ctx, i.client.Client, protocol.EAB{KeyID: i.opts.KeyID, MACKey: i.opts.Key})
		if err != nil {
			return protocol.Account{}, fmt.Errorf("binding the ACME account to %s: %w", i.opts.KeyID, err)
		}
	}
	if account, err = i.client.NewAccount(ctx, account); err != nil {
		return protocol.Account{}, fmt.Errorf("registering an ACME account: %w", err)
	}
	encoded, err := certmagic.PEMEncodePrivateKey(key)
	if err != nil {
		return protocol.Account{}, fmt.Errorf("encoding the key of the ACME account: %w", err)
	}
	text, err := json.Marshal(registration{account, string(encoded)})
	if err != nil {
		return protocol.Account{}, fmt.Errorf("encoding the ACME account: %w", err)
	}
	return account, i.values.Store(ctx, i.accountName(), text)
}

func (i *issuer) challengeName(host string) string {
	return path.Join(i.dir(), "challenges", certmagic.StorageKeys.Safe(host)+".json")
}

// Present implements [acmez.Solver]. All servers then answer the challenge.
func (i *issuer) Present(ctx context.Context, c protocol.Challenge) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding a challenge: %w", err)
	}
	return i.values.Store(ctx, i.challengeName(c.Identifier.Value), text)
}

// CleanUp implements [acmez.Solver].
func (i *issuer) CleanUp(ctx context.Context, c protocol.Challenge) error {
	return i.values.Delete(ctx, i.challengeName(c.Identifier.Value))
}

func (i *issuer) challenge(ctx context.Context, host string) (c protocol.Challenge, err error) {
	text, err := i.values.Load(ctx, i.challengeName(host))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("finding the challenge for %s: %w", host, err)
	}
	return c, nil
}
