// Package certfile provides the certificate of a TLS server from two files, and the new one when the files change.
package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/sys/boundedfile"
)

const maxSize = 1 << 20 // bytes; real files are much smaller

// Pair is a certificate and its private key in PEM files. It is safe for concurrent use.
type Pair struct {
	cert, key string
	log       *logrus.Entry

	mu      sync.Mutex
	seen    [2]fs.FileInfo // the files of the current certificate
	current *tls.Certificate
	failure string // the last one that was logged, or "" after a success
}

// Load reads a certificate with the chain of its authorities, and its private key.
func Load(cert, key string, log *logrus.Entry) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log}
	var err error
	if p.seen, err = p.stat(); err != nil {
		return nil, err
	}
	if p.current, err = p.read(); err != nil {
		return nil, err
	}
	if p.seen[1].Mode().Perm()&0o007 != 0 {
		log.Warnf("every user of this machine can read the private key %s: remove the permissions of others", key)
	}
	p.describe()
	return p, nil
}

// Check returns an error if [Load] would.
func Check(cert, key string) error {
	_, err := Leaf(cert, key)
	return err
}

// Leaf returns the certificate without its chain, or the error of [Load].
func Leaf(cert, key string) (*x509.Certificate, error) {
	pair, err := (&Pair{cert: cert, key: key}).read()
	if err != nil {
		return nil, err
	}
	return pair.Leaf, nil
}

// Get returns the certificate, as [tls.Config.GetCertificate] does. It looks at the files at each handshake. While they
// cannot be used, for example because only one has been replaced, it returns the certificate that it had.
func (p *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, err := p.stat()
	if err == nil && same(now[0], p.seen[0]) && same(now[1], p.seen[1]) {
		return p.current, nil
	}
	var fresh *tls.Certificate
	if err == nil {
		fresh, err = p.read()
	}
	if err != nil {
		if p.failure != err.Error() {
			p.failure = err.Error()
			p.log.WithError(err).Error("the TLS certificate has changed but cannot be used; the server keeps the previous one")
		}
		return p.current, nil
	}
	p.seen, p.current, p.failure = now, fresh, ""
	p.describe()
	return p.current, nil
}

// Leaves returns the certificate without its chain. It reads changed files first.
func (p *Pair) Leaves() []*x509.Certificate {
	current, err := p.Get(nil)
	if err != nil {
		return nil // Get returns none
	}
	return []*x509.Certificate{current.Leaf}
}

func (p *Pair) stat() (infos [2]fs.FileInfo, err error) {
	for i, name := range []string{p.cert, p.key} {
		if infos[i], err = os.Stat(name); err != nil {
			return infos, fmt.Errorf("reading the TLS certificate: %w", err)
		}
	}
	return infos, nil
}

func (p *Pair) read() (*tls.Certificate, error) {
	cert, err1 := boundedfile.Read(p.cert, maxSize)
	key, err2 := boundedfile.Read(p.key, maxSize)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("reading the TLS certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("using the TLS certificate %s with the key %s: %w", p.cert, p.key, err)
	}
	return &pair, nil
}

func (p *Pair) describe() {
	leaf := p.current.Leaf
	log := p.log.WithFields(logrus.Fields{"file": p.cert, "names": leaf.DNSNames, "expires": leaf.NotAfter.Format(time.RFC3339)})
	if time.Now().After(leaf.NotAfter) {
		log.Error("the TLS certificate has expired: renew it; clients refuse it")
		return
	}
	log.Info("serving with a TLS certificate")
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
