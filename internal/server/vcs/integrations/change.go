package integrations

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

const (
	// overlap is the time for which the previous secret of an integration's webhooks stays valid.
	overlap = 24 * time.Hour
	// secretBytes is the number of random bytes in a secret, minSecret the minimum length of one that
	// is not generated.
	secretBytes, minSecret = 32, 32
	maxText                = 200
)

// Change contains the new values of an integration. A nil member keeps the current value.
type Change struct {
	Name, Flavor, BaseURL, APIURL, Owner, Project *string
	AppID, Installation                           *string
	// Token, UserName, SSHKey, Passphrase and AppKey are secret. "" removes one.
	Token, UserName, SSHKey, Passphrase, AppKey *string
	// Secret is the secret of a GitHub App's webhook, which the forge has generated.
	Secret *string
	// Rotate generates a new secret for webhooks. The previous one stays valid for a day unless
	// Revoke is set.
	Rotate, Revoke bool
	// Settings changes the settings; nil changes nothing.
	Settings func(*Settings) error
}

// apply changes an integration that is not stored yet, and returns the new secret of its webhooks, or
// "".
func (s *Service) apply(ctx context.Context, i *store.VCSIntegration, c Change) (secret string, err error) {
	before := *i
	for _, f := range []struct{ to, from *string }{
		{&i.Name, c.Name},
		{&i.Flavor, c.Flavor},
		{&i.APIURL, c.APIURL},
		{&i.Owner, c.Owner},
		{&i.Project, c.Project},
		{&i.AppID, c.AppID},
		{&i.Installation, c.Installation},
	} {
		if f.from != nil {
			*f.to = strings.TrimSpace(*f.from)
		}
	}
	if c.BaseURL != nil && *c.BaseURL != "" {
		i.BaseURL = *c.BaseURL
	}
	i.BaseURL, i.APIURL = strings.TrimRight(i.BaseURL, "/"), strings.TrimRight(i.APIURL, "/")
	if i.Provider == vcs.ProviderAzure {
		completeAzure(i)
	}
	i.Name = cmp.Or(i.Name, i.Owner, i.Provider)
	if i.BaseURL != before.BaseURL || i.APIURL != before.APIURL {
		i.KeepsHost = false
	}
	if err := checkText(*i); err != nil {
		return "", err
	}
	if err := checkCredential(before, *i, c); err != nil {
		return "", err
	}
	set, err := SettingsOf(*i)
	if err != nil {
		return "", err
	}
	if c.Settings != nil {
		if err := c.Settings(&set); err != nil {
			return "", err
		}
	}
	if err := set.check(i.Provider); err != nil {
		return "", fault.Invalid("%s", err)
	}
	options, err := json.Marshal(set)
	if err != nil {
		return "", fmt.Errorf("encoding the settings of an integration: %w", err)
	}
	i.Options = string(options)
	if !sameAddress(before, *i) {
		i.Credential = nil // no part of it may reach the new address
	}
	if err := s.applyLogin(ctx, i, c); err != nil {
		return "", err
	}
	if secret, err = s.applySecret(ctx, i, c); err != nil {
		return "", err
	}
	if _, err := s.connect(ctx, *i); err != nil {
		if fault.KindOf(err) != "" {
			return "", err
		}
		return "", fault.Invalid("%s", err)
	}
	return secret, nil
}

// checkCredential returns an error if the stored credential would be sent to another address. It must be
// entered again for that: administrators can use it, but cannot read it.
func checkCredential(before, now store.VCSIntegration, c Change) error {
	if len(before.Credential) == 0 || sameAddress(before, now) {
		return nil
	}
	for _, entered := range []*string{c.Token, c.SSHKey, c.AppKey} {
		if entered != nil && *entered != "" {
			return nil
		}
	}
	return fault.Invalid("the address changes: enter the credential again, because the stored one is only for %s", before.BaseURL)
}

func sameAddress(a, b store.VCSIntegration) bool {
	return a.BaseURL == b.BaseURL && a.APIURL == b.APIURL
}

// checkPool returns an error unless the pool for previews exists.
func checkPool(tx *store.Tx, i store.VCSIntegration) error {
	set, err := SettingsOf(i)
	if err != nil || set.PreviewPool == "" {
		return err
	}
	if _, err = tx.Pool(i.OrgID, set.PreviewPool); errors.Is(err, store.ErrNotFound) {
		err = fault.Invalid("previewAgentPool: the organization has no agent pool with this id")
	}
	return err
}

func checkText(i store.VCSIntegration) error {
	for name, text := range map[string]string{
		"name": i.Name, "owner": i.Owner, "project": i.Project, "appId": i.AppID, "installationId": i.Installation,
	} {
		if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			return fault.Invalid("%s is longer than %d bytes, or contains a control character", name, maxText)
		}
	}
	if i.Flavor != "" && (i.Provider != vcs.ProviderCustom || !slices.Contains([]string{vcs.FlavorGit, vcs.FlavorGitea, vcs.FlavorForgejo}, i.Flavor)) {
		return fault.Invalid("flavor must be %s, %s or %s, and is only for custom integrations", vcs.FlavorGit, vcs.FlavorGitea, vcs.FlavorForgejo)
	}
	if i.BaseURL == "" {
		return fault.Invalid("baseUrl is missing: use the address of the server, such as https://git.example.com")
	}
	if vcs.ForgeKey(i.Provider, i.Flavor) == vcs.FlavorGit {
		return nil // the client checks it, because it can be an address for ssh
	}
	for name, address := range map[string]string{"baseUrl": i.BaseURL, "apiUrl": i.APIURL} {
		if err := outbound.CheckBase(address); address != "" && err != nil {
			return fault.Invalid("%s %s", name, err)
		}
	}
	return nil
}

func (s *Service) applyLogin(ctx context.Context, i *store.VCSIntegration, c Change) error {
	if c.Token == nil && c.UserName == nil && c.SSHKey == nil && c.Passphrase == nil && c.AppKey == nil {
		return nil
	}
	l, err := s.openLogin(ctx, *i)
	if err != nil {
		return err
	}
	l.change(c)
	if l.Password == "" && l.SSHPrivateKey == "" && l.AppKey == "" {
		i.Credential = nil
		return nil
	}
	if l.Password != "" && l.SSHPrivateKey != "" {
		return fault.Invalid("an integration has either a token or an SSH key, not both")
	}
	i.Credential, err = s.sealLogin(ctx, i.ID, l)
	return err
}

// change sets the new values. Copied text and files end with a newline, which no header may contain.
func (l *login) change(c Change) {
	for _, f := range []struct{ to, from *string }{
		{&l.Password, c.Token}, {&l.UserName, c.UserName}, {&l.SSHPrivateKey, c.SSHKey}, {&l.SSHPassphrase, c.Passphrase}, {&l.AppKey, c.AppKey},
	} {
		if f.from != nil {
			*f.to = strings.TrimRight(*f.from, "\r\n")
		}
	}
	if l.UserName = strings.TrimSpace(l.UserName); l.UserName == "" {
		l.Password = strings.TrimSpace(l.Password) // a token, which has no spaces
	}
}

// applySecret changes the secret of an integration's webhooks, and returns it if it was generated.
func (s *Service) applySecret(ctx context.Context, i *store.VCSIntegration, c Change) (string, error) {
	var secret string
	switch {
	case c.Secret != nil && len(*c.Secret) < minSecret:
		return "", fault.Invalid("webhookSecret has fewer than %d characters", minSecret)
	case c.Secret != nil:
		secret = *c.Secret
	case c.Rotate:
		raw := make([]byte, secretBytes)
		rand.Read(raw)
		secret = base64.RawURLEncoding.EncodeToString(raw)
	default:
		return "", nil
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, sealedFor(i.ID), []byte(secret))
	if err != nil {
		return "", fmt.Errorf("encrypting a webhook secret: %w", err)
	}
	now, err := s.db.Now(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the time: %w", err)
	}
	i.OldSecret, i.OldUntil = i.Secret, now.Add(overlap)
	if c.Revoke || len(i.Secret) == 0 {
		i.OldSecret, i.OldUntil = nil, time.Time{}
	}
	i.Secret = sealed
	if c.Secret != nil {
		return "", nil // the caller knows it
	}
	return secret, nil
}
