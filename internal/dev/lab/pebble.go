package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"workflowagent/internal/dev/lab/child"
	"workflowagent/internal/dev/testcert"
)

const (
	pebbleBinary  = "pebble"
	resolveBinary = "pebble-challtestsrv"
	pebbleModule  = "github.com/letsencrypt/pebble/v2/cmd/"
	pebbleStart   = time.Minute
)

// Pebble is an ACME authority on a loopback port, and a name server that says that all names are of this machine.
type Pebble struct {
	// Directory is the URL of the ACME directory, and CAFile contains the authority that has signed the certificate of that URL.
	Directory, CAFile string

	binary, config, log string
	roots               *x509.CertPool
	ports               pebblePorts
	env                 []string
	process, names      *child.Process
}

type pebblePorts struct{ acme, management, names, namesManagement int }

// PebbleOptions are the options of [StartPebble].
type PebbleOptions struct {
	// HTTPPort and TLSPort are the ports to which the challenges HTTP-01 and TLS-ALPN-01 lead.
	HTTPPort, TLSPort int
	// Validity is the validity of certificates.
	Validity time.Duration
	// BadNonces is the percentage of valid nonces that the authority refuses.
	BadNonces int
	// KeyID and Key, unless empty, are of the only external account that may get certificates.
	KeyID, Key string
}

// StartPebble starts an authority with its files in dir. The first call builds it, which takes some seconds and is
// reported on progress. The caller must close it.
func StartPebble(ctx context.Context, dir string, o PebbleOptions, progress io.Writer) (*Pebble, error) {
	bin, err := buildModule(ctx, progress, "pebble", []program{
		{name: pebbleBinary, pkg: pebbleModule + pebbleBinary, what: "an ACME authority", expect: "about 10 s"},
		{name: resolveBinary, pkg: pebbleModule + resolveBinary, what: "a name server for it", expect: "about 5 s"},
	})
	if err != nil {
		return nil, err
	}
	p := &Pebble{binary: filepath.Join(bin, pebbleBinary), log: filepath.Join(dir, "pebble.log")}
	err = p.configure(dir, o)
	if err == nil {
		err = p.resolve(ctx, filepath.Join(bin, resolveBinary), filepath.Join(dir, "names.log"))
	}
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("starting an ACME authority: %w", err)
	}
	return p, nil
}

func (p *Pebble) configure(dir string, o PebbleOptions) error {
	for _, port := range []*int{&p.ports.acme, &p.ports.management, &p.ports.names, &p.ports.namesManagement} {
		var err error
		if *port, err = child.FreePort("127.0.0.1"); err != nil {
			return err
		}
	}
	ca, err := testcert.NewAuthority("of the ACME authority's own certificate")
	if err != nil {
		return err
	}
	certificate, err := ca.Issue(&x509.Certificate{}, "127.0.0.1")
	if err != nil {
		return err
	}
	cert, key := filepath.Join(dir, "pebble.pem"), filepath.Join(dir, "pebble.key")
	p.roots, p.config, p.CAFile = ca.Pool(), filepath.Join(dir, "pebble.json"), filepath.Join(dir, "pebble-ca.pem")
	p.Directory = "https://" + local(p.ports.acme) + "/dir"
	p.env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", "PEBBLE_WFE_NONCEREJECT="+strconv.Itoa(o.BadNonces))
	settings := map[string]any{
		"listenAddress": local(p.ports.acme), "managementListenAddress": local(p.ports.management), "certificate": cert, "privateKey": key,
		"httpPort": o.HTTPPort, "tlsPort": o.TLSPort, "keyAlgorithm": "ecdsa", "externalAccountBindingRequired": o.KeyID != "",
		"profiles":   map[string]any{"default": map[string]any{"validityPeriod": int(o.Validity.Seconds())}},
		"retryAfter": map[string]any{"authz": 1, "order": 1},
	}
	if o.KeyID != "" {
		settings["externalAccountMACKeys"] = map[string]string{o.KeyID: o.Key}
	}
	text, err := json.Marshal(map[string]any{"pebble": settings})
	if err != nil {
		return err
	}
	return errors.Join(testcert.Write(certificate, cert, key), os.WriteFile(p.CAFile, ca.PEM(), 0o600), os.WriteFile(p.config, text, 0o600))
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// resolve starts the name server.
func (p *Pebble) resolve(ctx context.Context, binary, log string) (err error) {
	p.names, err = child.Start(context.WithoutCancel(ctx), binary, []string{
		"-dnsserver", local(p.ports.names), "-management", local(p.ports.namesManagement), "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
		"-http01", "", "-https01", "", "-doh", "", "-tlsalpn01", "",
	}, os.Environ(), log)
	if err != nil {
		return err
	}
	return p.accepts(ctx, p.names, p.ports.names)
}

func (*Pebble) accepts(ctx context.Context, process *child.Process, port int) error {
	ctx, cancel := context.WithTimeout(ctx, pebbleStart)
	defer cancel()
	return process.Await(ctx, 20*time.Millisecond, func() (bool, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", local(port))
		if err != nil {
			return false, nil //nolint:nilerr // it is not ready
		}
		return true, conn.Close()
	})
}

// Start starts the authority again after [Pebble.Stop]. It has forgotten accounts and certificates.
func (p *Pebble) Start(ctx context.Context) (err error) {
	args := []string{"-config", p.config, "-dnsserver", local(p.ports.names)}
	if p.process, err = child.Start(context.WithoutCancel(ctx), p.binary, args, p.env, p.log); err != nil {
		return err
	}
	if err := p.accepts(ctx, p.process, p.ports.management); err != nil {
		return err
	}
	return p.accepts(ctx, p.process, p.ports.acme)
}

// Stop stops the authority.
func (p *Pebble) Stop() {
	if p.process != nil {
		_ = p.process.Stop(syscall.SIGKILL, child.Patience)
		p.process = nil
	}
}

// Close stops the authority and its name server.
func (p *Pebble) Close() {
	p.Stop()
	if p.names != nil {
		_ = p.names.Stop(syscall.SIGKILL, child.Patience)
	}
}

// Issued returns the number of certificates that the authority has issued.
func (p *Pebble) Issued() (int, error) {
	text, err := os.ReadFile(p.log)
	return bytes.Count(text, []byte("Issued certificate serial")), err
}

// Roots returns the authority of the certificates that it issues.
func (p *Pebble) Roots(ctx context.Context) (*x509.CertPool, error) {
	ctx, cancel := context.WithTimeout(ctx, pebbleStart)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+local(p.ports.management)+"/roots/0", nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: p.roots, MinVersion: tls.VersionTLS12}}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("the ACME authority has no certificate")
	}
	return pool, err
}
