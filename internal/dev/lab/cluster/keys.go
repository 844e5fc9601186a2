package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"workflowagent/internal/dev/lab/cluster/layout"
)

const (
	certificateLife = 48 * time.Hour
	authorityName   = "ca"
)

// authority is the certificate authority of a cluster, for its servers and for its users.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// createAuthority creates an authority with its files in dir. It also creates the key for the tokens
// of service accounts.
func createAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	a.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: "test cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if err := a.sign(authorityName, a.cert, a.key); err != nil {
		return nil, err
	}
	accounts, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(accounts)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(accounts.Public())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		writePEM(filepath.Join(dir, "accounts.key"), "EC PRIVATE KEY", private),
		writePEM(filepath.Join(dir, "accounts.pub"), "PUBLIC KEY", public),
	); err != nil {
		return nil, err
	}
	return openAuthority(dir)
}

func openAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	pair, err := tls.LoadX509KeyPair(a.certFile(authorityName), a.keyFile(authorityName))
	if err != nil {
		return nil, err
	}
	a.cert = pair.Leaf
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the authority's key is a %T", pair.PrivateKey)
	}
	a.key = key
	return a, nil
}

func (a *authority) certFile(name string) string { return filepath.Join(a.dir, name+".crt") }
func (a *authority) keyFile(name string) string  { return filepath.Join(a.dir, name+".key") }

// issueServer creates the API server's certificate.
func (a *authority) issueServer(name string, place layout.Place) error {
	return a.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{place.NodeIP().AsSlice(), net.ParseIP(layout.Service), net.IPv4(127, 0, 0, 1)},
	})
}

// issueUser creates a user's certificate, in files called name.
func (a *authority) issueUser(name, user string, groups []string) error {
	return a.issue(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	return a.sign(name, template, key)
}

// sign writes a signed certificate and its key.
func (a *authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	now := time.Now()
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, now.Add(-time.Hour), now.Add(certificateLife)
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("signing the certificate of %s: %w", name, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(a.certFile(name), "CERTIFICATE", cert), writePEM(a.keyFile(name), "EC PRIVATE KEY", private))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
