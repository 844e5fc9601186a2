// Package acme obtains the server's TLS certificates from an authority by ACME (RFC 8555), renews them, and answers
// the authority's challenges. Servers that share a database share account, challenges and certificates.
//
// The library certmagic decides when to renew and what to store. Its own issuer opens further listeners, reads answers
// from the standard input and starts a goroutine that never ends, so the issuer of this package uses the same client of
// the protocol (acmez) directly.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	protocol "github.com/mholt/acmez/v3/acme"
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
)

const (
	// attemptTime bounds an attempt to obtain or renew the certificates.
	attemptTime = 5 * time.Minute
	// checkEvery is the longest interval between checks of the certificates, which another server can renew, and
	// whose authority can ask for an earlier renewal.
	checkEvery = 10 * time.Minute
	// challengeTime bounds the search for a challenge.
	challengeTime = 10 * time.Second
	// lockName is the name of the database lock under which one server at a time obtains certificates.
	lockName = "acme"
	// margin is the library's interval between checks. By this time, it renews earlier than the authority has chosen.
	margin = time.Minute
)

// errMaintained is for the library, which logs it nowhere.
var errMaintained = errors.New("another part of the server renews the certificates")

var (
	// unavailable are the pauses while the authority cannot be reached.
	unavailable = retry.Policy{First: 4 * time.Second, Max: 5 * time.Minute}
	// refused are the pauses after the authority has refused a certificate. Public authorities permit few failures
	// per hour.
	refused = retry.Policy{First: 10 * time.Minute, Max: time.Hour}
)

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	// Names are the host names for which the server needs a certificate, in lower case.
	Names []string
	// Directory is the URL of the authority.
	Directory string
	// Client makes the requests to the authority.
	Client *outbound.Client
	// Email is the address at which the authority may contact the operator, or "".
	Email string
	// KeyID and Key bind the ACME account to an account that the operator has at the authority, unless both are "".
	KeyID, Key string
	// HTTP is set if the server answers requests to port 80, so that it can answer challenges there.
	HTTP bool
}

// Service keeps the certificates. Its methods may be called concurrently.
type Service struct {
	db     *store.DB
	opts   Options
	values *values
	issuer *issuer
	cache  *certmagic.Cache
	config *certmagic.Config

	mu      sync.Mutex
	current map[string]*tls.Certificate // by name
}

// New returns a service with the certificates that the database contains. The caller must close it.
func New(ctx context.Context, db *store.DB, o Options) (*Service, error) {
	s := &Service{db: db, opts: o, values: &values{db, o.Secrets}, current: map[string]*tls.Certificate{}}
	s.issuer = newIssuer(o, s.values)
	s.cache = certmagic.NewCache(certmagic.CacheOptions{
		// Only the cache's own maintenance asks for a configuration. Without one, it renews nothing: Run does, so
		// that the work ends with its context and only one server does it.
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return nil, errMaintained },
		RenewCheckInterval: margin, Logger: zap.NewNop(),
	})
	s.config = certmagic.New(s.cache, certmagic.Config{
		Issuers: []certmagic.Issuer{s.issuer}, Storage: s.values, Logger: zap.NewNop(), DisableStorageCheck: true,
		OCSP: certmagic.OCSPConfig{DisableStapling: true}, // authorities have ended OCSP, or are about to
	})
	for _, name := range o.Names {
		if err := s.load(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Close()
			return nil, fmt.Errorf("reading the TLS certificate of %s from the database: %w", name, err)
		}
	}
	return s, nil
}

// Close releases the resources of the service. [Service.Run] must have returned.
func (s *Service) Close() { s.cache.Stop() }

// Get returns the certificate for a connection, as [tls.Config.GetCertificate] does. Clients that name no host, or
// another one, get the first certificate. The authority gets its challenge's.
func (s *Service) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if slices.Equal(hello.SupportedProtos, []string{acmez.ACMETLS1Protocol}) {
		return s.challengeCertificate(hello.Context(), hello.ServerName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.current[strings.ToLower(hello.ServerName)]; c != nil {
		return c, nil
	}
	for _, name := range s.opts.Names {
		if c := s.current[name]; c != nil {
			return c, nil
		}
	}
	return nil, errors.New("the server has not obtained a TLS certificate yet")
}

// Leaves returns the current certificates without their chains.
func (s *Service) Leaves() []*x509.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	var leaves []*x509.Certificate
	for _, name := range s.opts.Names {
		if c := s.current[name]; c != nil {
			leaves = append(leaves, c.Leaf)
		}
	}
	return leaves
}

// Run obtains and renews the certificates until ctx is canceled.
func (s *Service) Run(ctx context.Context) error {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := s.maintain(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of ctx is not an error
		}
		pause := retry.Spread(s.untilRenewal(time.Now()))
		if err != nil {
			pause = policy(err).Pause(failures, nil)
			s.report(err, pause)
		} else {
			failures = -1
			s.opts.Log.WithField("again_in", pause.Round(time.Second).String()).Debug("checked the TLS certificates")
		}
		_ = retry.Sleep(ctx, pause) // or until ctx ends
	}
	return nil
}

// policy returns the pauses after an error.
func policy(err error) retry.Policy {
	problem, ok := errors.AsType[protocol.Problem](err)
	if !ok || problem.Status >= 500 || problem.Type == protocol.ProblemTypeBadNonce {
		return unavailable
	}
	return refused
}

// report logs a failure. It is an error if clients will soon see it.
func (s *Service) report(err error, pause time.Duration) {
	log := s.opts.Log.WithError(err).WithFields(logrus.Fields{"directory": s.opts.Directory, "again_in": pause.Round(time.Second).String()})
	level, valid := logrus.WarnLevel, s.Leaves()
	if len(valid) < len(s.opts.Names) {
		level = logrus.ErrorLevel
	}
	for _, leaf := range valid {
		if rest := time.Until(leaf.NotAfter); rest < leaf.NotAfter.Sub(leaf.NotBefore)/6 {
			level = logrus.ErrorLevel
		}
		log = log.WithField("expires", leaf.NotAfter.Format(time.RFC3339))
	}
	log.Log(level, "obtaining or renewing the TLS certificate failed; the server serves with the one that it has, if any, and tries again")
}

// untilRenewal returns the time until the certificates must be checked.
func (s *Service) untilRenewal(now time.Time) time.Duration {
	wait := checkEvery
	for _, leaf := range s.Leaves() {
		window := time.Duration(float64(leaf.NotAfter.Sub(leaf.NotBefore)) * s.config.RenewalWindowRatio)
		wait = min(wait, leaf.NotAfter.Add(-window).Sub(now))
	}
	return max(wait, time.Second)
}

// maintain obtains the certificates that are missing and renews those that are due, on one server at a time.
func (s *Service) maintain(ctx context.Context) error {
	return s.db.Exclusive(ctx, lockName, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTime)
		defer cancel()
		var errs []error
		for _, name := range s.opts.Names {
			errs = append(errs, s.manage(ctx, name))
		}
		return errors.Join(errs...)
	})
}

func (s *Service) manage(ctx context.Context, name string) error {
	s.forget(name) // so that the library reads it again
	err := s.config.ManageSync(ctx, []string{name})
	if loaded := s.load(ctx, name); err == nil {
		err = loaded
	}
	return err
}

func (s *Service) forget(name string) {
	s.cache.RemoveManaged([]certmagic.SubjectIssuer{{Subject: name}})
}

// load serves with the certificate that the database contains.
func (s *Service) load(ctx context.Context, name string) error {
	s.forget(name)
	c, err := s.config.CacheManagedCertificate(ctx, name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	before := s.current[name]
	s.current[name] = &c.Certificate
	s.mu.Unlock()
	if before == nil || !before.Leaf.Equal(c.Leaf) {
		s.opts.Log.WithFields(logrus.Fields{"names": c.Names, "expires": c.Leaf.NotAfter.Format(time.RFC3339)}).Info("serving with a TLS certificate")
	}
	return nil
}

// Answer returns what the server must respond to the authority's request for a path on port 80 of a host. ok is false
// if that is no challenge.
func (s *Service) Answer(ctx context.Context, host, path string) (answer string, ok bool) {
	if !strings.HasPrefix(path, "/.well-known/acme-challenge/") {
		return "", false
	}
	c, err := s.challenge(ctx, host)
	if err != nil || path != c.HTTP01ResourcePath() {
		return "", false
	}
	return c.KeyAuthorization, true
}

func (s *Service) challengeCertificate(ctx context.Context, name string) (*tls.Certificate, error) {
	c, err := s.challenge(ctx, name)
	if err != nil {
		return nil, err
	}
	return acmez.TLSALPN01ChallengeCert(c)
}

// challenge returns the current challenge for a name, which any of the servers can have requested.
func (s *Service) challenge(ctx context.Context, name string) (c protocol.Challenge, err error) {
	name = strings.ToLower(name)
	if !slices.Contains(s.opts.Names, name) { // a stranger's request; it must not reach the database
		return c, fmt.Errorf("%s is not one of the server's names", name)
	}
	ctx, cancel := context.WithTimeout(ctx, challengeTime)
	defer cancel()
	return s.issuer.challenge(ctx, name)
}
