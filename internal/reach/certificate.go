package reach

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/termtext"
)

// verifier verifies certificates as the TLS client does, and records them.
type verifier struct {
	trace *Trace
	capem []byte
	hosts []string // hosts that will present certificates, in order; a TLS proxy comes first
	seen  []*x509.Certificate

	failed          error
	problem, advice string
}

func (v *verifier) verify(state tls.ConnectionState) error {
	v.seen = state.PeerCertificates
	v.trace.Certificates = nil // drop the certificates of a TLS proxy
	for _, c := range v.seen {
		v.trace.Certificates = append(v.trace.Certificates, Certificate{
			Subject: termtext.OneLine(c.Subject.String(), maxText), Issuer: termtext.OneLine(c.Issuer.String(), maxText), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
		})
	}
	v.trace.TLSVersion = tls.VersionName(state.Version)
	if len(v.seen) == 0 {
		return v.fail(errors.New("no certificate"), "the server presented no certificate", "install a certificate on the server")
	}
	// The server name in the state is empty for an IP address.
	options := x509.VerifyOptions{DNSName: v.hosts[0], Intermediates: x509.NewCertPool()}
	if len(v.hosts) > 1 {
		v.hosts = v.hosts[1:]
	}
	for _, c := range v.seen[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := v.seen[0].Verify(options) // verify with the system's authorities
	if err == nil {
		return nil
	}
	if len(v.capem) > 0 {
		pool, poolErr := x509.SystemCertPool()
		if poolErr != nil {
			pool = x509.NewCertPool() // no system roots are available: use only the given ones
		}
		pool.AppendCertsFromPEM(v.capem)
		options.Roots = pool
		if _, err = v.seen[0].Verify(options); err == nil {
			v.trace.PrivateCA = true
			return nil
		}
	}
	return v.explain(err)
}

func (v *verifier) fail(err error, problem, advice string) error {
	v.failed, v.problem, v.advice = err, problem, advice
	return err
}

func (v *verifier) explain(err error) error {
	leaf := v.seen[0]
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		which := invalid.Cert
		if which == nil {
			which = leaf
		}
		problem := "the certificate of " + commonName(which) + " expired on " + which.NotAfter.UTC().Format(time.RFC1123)
		if time.Now().Before(which.NotBefore) {
			problem = "the certificate of " + commonName(which) + " is valid only from " + which.NotBefore.UTC().Format(time.RFC1123)
		}
		return v.fail(err, problem, "renew the server's certificate; if it is still valid, correct this machine's clock")
	case errors.As(err, &name):
		return v.fail(err, fmt.Sprintf("the certificate is for %s, not for the URL's host", strings.Join(names(leaf), ", ")),
			"use a host that the certificate names, or install a certificate for this host on the server")
	case errors.As(err, &authority):
		v.trace.Untrusted = true
		advice := "set ca_certificate_file to a PEM file with that authority's certificate"
		if len(v.capem) > 0 {
			advice = "ca_certificate_file does not contain that authority: add its certificate"
		}
		problem := "the certificate was issued by an untrusted authority: " + termtext.OneLine(v.seen[len(v.seen)-1].Issuer.String(), maxText)
		if len(v.seen) == 1 && leaf.Issuer.String() == leaf.Subject.String() {
			problem = "the certificate is self-signed"
		}
		return v.fail(err, problem, advice)
	default:
		return v.fail(err, fmt.Sprintf("verifying the certificate: %v", err), "check the server's certificate and its chain")
	}
}

func commonName(c *x509.Certificate) string {
	if c.Subject.CommonName != "" {
		return termtext.OneLine(c.Subject.CommonName, maxText)
	}
	return strings.Join(names(c), ", ")
}

func names(c *x509.Certificate) []string {
	var all []string
	for _, name := range c.DNSNames {
		all = append(all, termtext.OneLine(name, maxText))
	}
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return []string{"no host"}
	}
	return all[:min(len(all), 10)]
}
