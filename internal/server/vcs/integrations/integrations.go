// Package integrations manages the connections of organizations to forges: their credentials, the
// secrets of their webhooks, and which stacks watch which repositories.
package integrations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/termtext"
)

// Topic is the notification channel for watches whose repository must be found and for repositories
// that must be polled. The payload is the integration's id.
const Topic = "vcs-watch"

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	Forges  vcs.Forges
	// ExternalURL is the server's URL for forges, without a trailing slash.
	ExternalURL string
	// Reach says which addresses the integrations may have.
	Reach outbound.Reach
}

// Service manages integrations. Its methods may be called concurrently.
type Service struct {
	db   *store.DB
	opts Options
	log  *logrus.Entry

	mu      sync.Mutex
	clients map[string]client // by integration
}

// client is a connection to a forge that is reused, because it keeps connections and tokens.
type client struct {
	modified time.Time // of the integration
	vcs.Repository
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	return &Service{db: db, opts: o, log: o.Log, clients: map[string]client{}}
}

// hosts are the addresses of the forges that have one.
var hosts = map[string]string{
	vcs.ProviderGitHub: "https://github.com", vcs.ProviderGitLab: "https://gitlab.com", vcs.ProviderBitbucket: "https://bitbucket.org",
	vcs.ProviderAzure: "https://dev.azure.com",
}

// IsHosted reports whether an integration uses the public server of its forge.
func IsHosted(i store.VCSIntegration) bool { return i.BaseURL == hosts[i.Provider] }

// HookURL returns the address to which a forge sends the deliveries of an integration.
func (s *Service) HookURL(i store.VCSIntegration) string {
	base := s.opts.ExternalURL + "/workflow/"
	switch key := vcs.ForgeKey(i.Provider, i.Flavor); {
	case key == vcs.FlavorGit:
		return base + "generic-vcs"
	case i.AppID != "":
		return base + "github"
	case key == vcs.ProviderAzure:
		return base + "azure-devops/" + i.ID
	default:
		return base + key + "/" + i.ID
	}
}

// sealedFor is the encryption scope of an integration's secrets.
func sealedFor(integrationID string) string { return "vcs/" + integrationID }

// login is what an integration's encrypted credential contains.
type login struct {
	vcs.Credential
	AppKey string `json:",omitempty"` // PEM
}

func (s *Service) sealLogin(ctx context.Context, id string, l login) ([]byte, error) {
	plain, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encoding a credential: %w", err)
	}
	return s.opts.Secrets.Encrypt(ctx, sealedFor(id), plain)
}

func (s *Service) openLogin(ctx context.Context, i store.VCSIntegration) (l login, err error) {
	if len(i.Credential) == 0 {
		return l, nil
	}
	plain, err := s.opts.Secrets.Decrypt(ctx, sealedFor(i.ID), i.Credential)
	if err == nil {
		err = json.Unmarshal(plain, &l)
	}
	return l, fault.While(err, "decrypting the credential of integration %s", i.ID)
}

// Forge returns the kind of forge of an integration.
func (s *Service) Forge(i store.VCSIntegration) (vcs.Forge, error) {
	f, ok := s.opts.Forges[vcs.ForgeKey(i.Provider, i.Flavor)]
	if !ok {
		return nil, fault.Invalid("this server does not support integrations of the provider %q", i.Provider)
	}
	return f, nil
}

// HookSecrets returns the secrets with which deliveries to an integration can be signed now.
func (s *Service) HookSecrets(ctx context.Context, i store.VCSIntegration, now time.Time) ([][]byte, error) {
	sealed := [][]byte{i.Secret}
	if len(i.OldSecret) > 0 && now.Before(i.OldUntil) {
		sealed = append(sealed, i.OldSecret)
	}
	var out [][]byte
	for _, ct := range sealed {
		if len(ct) == 0 {
			continue
		}
		plain, err := s.opts.Secrets.Decrypt(ctx, sealedFor(i.ID), ct)
		if err != nil {
			return nil, fmt.Errorf("decrypting the webhook secret of integration %s: %w", i.ID, err)
		}
		if len(plain) > 0 {
			out = append(out, plain)
		}
	}
	return out, nil
}

// Client returns the client of an integration.
func (s *Service) Client(ctx context.Context, i store.VCSIntegration) (vcs.Repository, error) {
	s.mu.Lock()
	known, ok := s.clients[i.ID]
	s.mu.Unlock()
	if ok && known.modified.Equal(i.ModifiedAt) {
		return known.Repository, nil
	}
	// The decryption of an SSH key can take long, and must not keep other integrations waiting.
	c, err := s.connect(ctx, i)
	if err == nil {
		s.mu.Lock()
		s.clients[i.ID] = client{i.ModifiedAt, c}
		s.mu.Unlock()
	}
	return c, err
}

func (s *Service) connect(ctx context.Context, i store.VCSIntegration) (vcs.Repository, error) {
	forge, err := s.Forge(i)
	if err != nil {
		return nil, err
	}
	c, err := s.connection(ctx, i)
	if err != nil {
		return nil, err
	}
	return forge.Connect(c)
}

// connection returns the configuration of an integration's client.
func (s *Service) connection(ctx context.Context, i store.VCSIntegration) (vcs.Connection, error) {
	l, err := s.openLogin(ctx, i)
	if err != nil {
		return vcs.Connection{}, err
	}
	set, err := SettingsOf(i)
	if err != nil {
		return vcs.Connection{}, err
	}
	c := vcs.Connection{
		IntegrationID: i.ID, BaseURL: i.BaseURL, APIURL: i.APIURL, Owner: i.Owner, Project: i.Project, Credential: l.Credential,
		CACertificate: set.CACertificate, HostKeys: set.HostKeys, Reach: s.opts.Reach,
	}
	c.Reach.Anywhere = c.Reach.Anywhere || i.KeepsHost
	if i.AppID != "" {
		c.App = &vcs.App{ID: i.AppID, PrivateKey: l.AppKey, Installation: i.Installation, WholeInstallation: set.TokenScope == ScopeInstallation}
	}
	return c, nil
}

// forget closes the client of an integration that changed or was removed.
func (s *Service) forget(id string) {
	s.mu.Lock()
	delete(s.clients, id)
	s.mu.Unlock()
}

// refusedFor is the time after which an integration whose credentials the forge refuses is shown as
// invalid.
const refusedFor = time.Hour

// Note records whether a forge accepts the credentials of an integration. err is the error of a
// request, or nil if it succeeded. A transaction needs no owner for it: what others have recorded at the
// same time remains.
func (s *Service) Note(tx *store.Tx, integrationID string, err error) error {
	i, readErr := tx.Integration(integrationID)
	if readErr != nil {
		return readErr
	}
	refused, since, problem := errors.Is(err, vcs.ErrRefused), i.RefusedAt, i.Problem
	switch {
	case errors.Is(err, vcs.ErrNotInstalled) && i.Problem == "":
		problem = termtext.OneLine(err.Error(), maxProblem)
	case refused && i.RefusedAt.IsZero():
		since = tx.Now()
	case refused && i.Problem == "" && tx.Now().Sub(i.RefusedAt) >= refusedFor:
		problem = termtext.OneLine(err.Error(), maxProblem)
	case err == nil && (!i.RefusedAt.IsZero() || i.Problem != ""):
		since, problem = time.Time{}, ""
	default:
		return nil
	}
	return tx.NoteIntegration(i, since, problem)
}

const maxProblem = 500

// CanAsk reports whether the forge of an integration can be asked about its refs. A plain git server
// without a credential may be one that this server cannot reach, unless the settings demand polls.
func CanAsk(i store.VCSIntegration) bool {
	if vcs.ForgeKey(i.Provider, i.Flavor) != vcs.FlavorGit || len(i.Credential) > 0 {
		return true
	}
	set, err := SettingsOf(i)
	return err == nil && set.Events == EventsPoll
}
