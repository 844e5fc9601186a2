package outbound

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"strings"
)

// Thumbprint returns the SHA-256 of a certificate in lower-case hexadecimal.
func Thumbprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// NormalThumbprint converts a thumbprint with optional colons and capitals to the form that
// [Thumbprint] returns. ok is false if the thumbprint is invalid.
func NormalThumbprint(s string) (normal string, ok bool) {
	normal = strings.ToLower(strings.ReplaceAll(s, ":", ""))
	raw, err := hex.DecodeString(normal)
	return normal, err == nil && len(raw) == sha256.Size
}

func (c *Client) tls(host string, thumbprints []string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots}
	if len(thumbprints) == 0 {
		return config
	}
	pinned := map[string]bool{}
	for _, t := range thumbprints {
		if normal, ok := NormalThumbprint(t); ok {
			pinned[normal] = true
		}
	}
	// verify replaces the default check, so that the thumbprint check can run after it.
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state.PeerCertificates, host, c.Roots)
		if err == nil {
			return nil
		}
		roots := x509.NewCertPool()
		found := false
		for _, cert := range state.PeerCertificates {
			if pinned[Thumbprint(cert)] {
				roots.AddCert(cert)
				found = true
			}
		}
		if found {
			err = verify(state.PeerCertificates, host, roots)
		}
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
	return config
}

// verify returns an error unless a certificate chain is valid, including the certificate's name and
// dates.
func verify(chain []*x509.Certificate, host string, roots *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the peer sent no certificate")
	}
	others := x509.NewCertPool()
	for _, cert := range chain[1:] {
		others.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: others})
	return err
}
