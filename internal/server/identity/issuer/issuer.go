// Package issuer issues the identity tokens with which jobs obtain cloud credentials. It keeps the
// signing keys, and writes the documents with which others verify the tokens.
package issuer

import (
	"crypto/rsa"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

const (
	// Path is the path of the issuer below the server's URL.
	Path = "/oidc"
	// CustomPath is the path, below the issuer's URL, of the issuer whose tokens have audiences of the users' choice.
	CustomPath = "/v2"
	// Lifetime is the lifetime of a token.
	Lifetime = 15 * time.Minute
	// Lead is the time for which a new key is published before it signs. It lets an operator who
	// exports the documents once per day publish a key for a day before its first use.
	Lead = 48 * time.Hour
	// keep is the time for which a key is published after the next key began to sign. It is longer
	// than Lifetime, so that a wrong clock does not remove a key too early.
	keep = 24 * time.Hour
	// DefaultRotation is the default time for which a key signs.
	DefaultRotation = 90 * 24 * time.Hour
	// MinRotation is the shortest time for which a key can sign.
	MinRotation = 2 * Lead

	maxAudience = 255 // bytes
)

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	// URL identifies the issuer in its tokens, without a trailing slash.
	URL string
	// Rotation is the time for which a key signs; 0 means DefaultRotation.
	Rotation time.Duration
	// Audiences are the audiences that jobs may request, in addition to their organization.
	Audiences []string
	// SessionTags adds the claim from which AWS takes session tags.
	SessionTags bool
}

// Service issues tokens. Its methods may be called concurrently.
type Service struct {
	db    *store.DB
	opts  Options
	log   *logrus.Entry
	limit limiter

	mu   sync.Mutex
	keys map[string]*rsa.PrivateKey // decrypted keys by id
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	if o.Rotation <= 0 {
		o.Rotation = DefaultRotation
	}
	return &Service{db: db, opts: o, log: o.Log, limit: limiter{of: map[string]*window{}}, keys: map[string]*rsa.PrivateKey{}}
}

// URL returns the issuer's URL.
func (s *Service) URL() string { return s.opts.URL }

// CustomURL returns the URL of the issuer whose tokens have audiences of the users' choice.
func (s *Service) CustomURL() string { return s.opts.URL + CustomPath }

// CheckClouds returns an error unless cloud providers can trust the issuer, which requires https.
func (s *Service) CheckClouds() error {
	if u, err := url.Parse(s.opts.URL); err != nil || u.Scheme != "https" {
		return fault.Invalid("cloud credentials (operationContext.oidc) need an issuer with https, and this server's issuer is %s; "+
			"its operator must set external_url or oidc_issuer_url to an https URL", s.opts.URL)
	}
	return nil
}

// audience returns the audience of a token for a job of an organization, in the caller's
// transaction. A job could use a token for another organization's audience to act as that
// organization's job where only the audience is checked.
func (s *Service) audience(tx *store.Tx, org, requested string) (string, error) {
	if requested == "" || requested == org {
		return org, nil
	}
	shown := termtext.OneLine(requested, maxAudience)
	if !slices.Contains(s.opts.Audiences, requested) {
		return "", fault.Invalid("the audience %q is not permitted; request the audience %q, or ask the server's operator to add it to oidc_audiences", shown, org)
	}
	switch o, err := tx.OrganizationByName(requested); {
	case err == nil && o.Name == org: // a former name, which no other organization can have
	case err == nil:
		return "", fault.Invalid("the audience %q is the name of another organization", shown)
	case !errors.Is(err, store.ErrNotFound):
		return "", err
	}
	return requested, nil
}
