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

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

const (
	// maxIntegrations is the maximum number of integrations of an organization.
	maxIntegrations = 100
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

// hosts are the addresses of the forges that have one.
var hosts = map[string]string{
	vcs.ProviderGitHub: "https://github.com", vcs.ProviderGitLab: "https://gitlab.com", vcs.ProviderBitbucket: "https://bitbucket.org",
	vcs.ProviderAzure: "https://dev.azure.com",
}

// IsHosted reports whether an integration uses the public server of its forge.
func IsHosted(i store.VCSIntegration) bool { return i.BaseURL == hosts[i.Provider] }

// List returns the integrations of an organization.
func (s *Service) List(ctx context.Context, org store.Organization) ([]store.VCSIntegration, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSIntegration, error) { return tx.Integrations(org.ID) })
}

// Get returns an integration of an organization.
func (s *Service) Get(ctx context.Context, org store.Organization, id string) (store.VCSIntegration, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSIntegration, error) { return Find(tx, org, id) })
}

// Find returns an integration of an organization.
func Find(tx *store.Tx, org store.Organization, id string) (store.VCSIntegration, error) {
	i, err := tx.Integration(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && i.OrgID != org.ID {
		return store.VCSIntegration{}, fault.NotFound("Not Found: the organization has no integration with this id")
	}
	return i, err
}

// Create adds an integration and returns the secret of its webhooks, which cannot be read again.
func (s *Service) Create(ctx context.Context, p identity.Principal, org store.Organization, provider string, c Change) (i store.VCSIntegration, secret string, err error) {
	i = store.VCSIntegration{ID: identity.NewID(), OrgID: org.ID, Provider: provider, BaseURL: hosts[provider], Options: "{}", CreatedBy: p.User.ID}
	c.Rotate = c.Secret == nil
	err = s.db.Write(ctx, func(tx *store.Tx) error {
		all, err := tx.Integrations(org.ID)
		if err != nil {
			return err
		}
		if len(all) >= maxIntegrations {
			return fault.Invalid("Bad Request: an organization can have at most %d integrations; delete one first", maxIntegrations)
		}
		i.CreatedAt = tx.Now()
		if secret, err = s.apply(ctx, tx, &i, c); err != nil {
			return err
		}
		if err := tx.InsertIntegration(i); err != nil {
			return err
		}
		if err := recordChange(ctx, tx, audit.IntegrationCreated, i, c); err != nil {
			return err
		}
		return s.rewatch(tx, i)
	})
	if errors.Is(err, store.ErrConflict) {
		err = fault.Conflict("Conflict: an integration of this provider with the name %s exists", i.Name)
	}
	return i, secret, err
}

// Update changes an integration. It returns the new secret of its webhooks, or "" if it did not change.
func (s *Service) Update(ctx context.Context, org store.Organization, id string, c Change) (i store.VCSIntegration, secret string, err error) {
	err = s.db.Write(ctx, func(tx *store.Tx) (err error) {
		if i, err = Find(tx, org, id); err != nil {
			return err
		}
		before := i
		if secret, err = s.apply(ctx, tx, &i, c); err != nil {
			return err
		}
		if err := checkMove(tx, before, i); err != nil {
			return err
		}
		i.RefusedAt, i.Problem = time.Time{}, "" // the next request shows whether the change helped
		if err := tx.SaveIntegration(i); err != nil {
			return err
		}
		if err := recordChange(ctx, tx, audit.IntegrationChanged, i, c); err != nil {
			return err
		}
		return s.rewatch(tx, i)
	})
	if errors.Is(err, store.ErrConflict) {
		err = fault.Conflict("Conflict: an integration of this provider with the name %s exists", i.Name)
	}
	if err == nil {
		s.forget(id)
	}
	return i, secret, err
}

// checkMove returns an error if an integration with repositories would belong to another forge. Their
// ids and addresses are those of the former one, to which the new credential must not be sent. The
// repositories of a plain git server have no ids, and move with it.
func checkMove(tx *store.Tx, before, now store.VCSIntegration) error {
	from, to := vcs.ForgeKey(before.Provider, before.Flavor), vcs.ForgeKey(now.Provider, now.Flavor)
	if from == to && (now.BaseURL == before.BaseURL || to == vcs.FlavorGit) {
		return nil
	}
	repos, err := tx.Repos(now.ID)
	if err != nil || len(repos) == 0 {
		return err
	}
	return fault.Conflict("Conflict: stacks use repositories of this integration at %s: delete it and create another one, to which the stacks then change", before.BaseURL)
}

// Delete removes an integration. The settings of stacks stay, but nothing triggers deployments.
func (s *Service) Delete(ctx context.Context, org store.Organization, id string) error {
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		i, err := Find(tx, org, id)
		if err != nil {
			return err
		}
		if err := tx.DeleteIntegration(id); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.IntegrationDeleted, i, Change{})
	})
	if err == nil {
		s.forget(id)
	}
	return err
}

func recordChange(ctx context.Context, tx *store.Tx, action audit.Action, i store.VCSIntegration, c Change) error {
	detail := map[string]any{"provider": i.Provider, "baseUrl": i.BaseURL}
	if c.Rotate || c.Secret != nil {
		detail["webhookSecret"] = audit.Changed
	}
	if c.Token != nil || c.SSHKey != nil || c.AppKey != nil {
		detail["credential"] = audit.Changed
	}
	return audit.Record(ctx, tx, audit.Entry{OrgID: i.OrgID, Action: action, Subject: audit.Subject{Kind: "integration", ID: i.ID, Name: i.Name}, Detail: detail})
}

// apply changes an integration, and returns the new secret of its webhooks, or "".
func (s *Service) apply(ctx context.Context, tx *store.Tx, i *store.VCSIntegration, c Change) (secret string, err error) {
	now := tx.Now()
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
	i.Name = cmp.Or(i.Name, i.Owner, i.Provider)
	if err := checkText(*i); err != nil {
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
	if err := set.check(); err != nil {
		return "", fault.Invalid("Bad Request: %s", err)
	}
	if set.PreviewPool != "" {
		if _, err := tx.Pool(i.OrgID, set.PreviewPool); errors.Is(err, store.ErrNotFound) {
			return "", fault.Invalid("Bad Request: previewAgentPool: the organization has no agent pool with this id")
		} else if err != nil {
			return "", err
		}
	}
	options, err := json.Marshal(set)
	if err != nil {
		return "", fmt.Errorf("encoding the settings of an integration: %w", err)
	}
	i.Options = string(options)
	if err := s.applyLogin(ctx, i, c); err != nil {
		return "", err
	}
	if secret, err = s.applySecret(ctx, i, c, now); err != nil {
		return "", err
	}
	i.ModifiedAt = now
	if _, err := s.connect(ctx, *i); err != nil {
		if fault.KindOf(err) != "" {
			return "", err
		}
		return "", fault.Invalid("Bad Request: %s", err)
	}
	return secret, nil
}

func checkText(i store.VCSIntegration) error {
	for name, text := range map[string]string{
		"name": i.Name, "owner": i.Owner, "project": i.Project, "appId": i.AppID, "installationId": i.Installation,
	} {
		if len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			return fault.Invalid("Bad Request: %s is longer than %d bytes, or contains a control character", name, maxText)
		}
	}
	if i.Flavor != "" && (i.Provider != vcs.ProviderCustom || !slices.Contains([]string{vcs.FlavorGit, vcs.FlavorGitea, vcs.FlavorForgejo}, i.Flavor)) {
		return fault.Invalid("Bad Request: flavor must be %s, %s or %s, and is only for custom integrations", vcs.FlavorGit, vcs.FlavorGitea, vcs.FlavorForgejo)
	}
	if i.BaseURL == "" {
		return fault.Invalid("Bad Request: baseUrl is missing: use the address of the server, such as https://git.example.com")
	}
	if vcs.ForgeKey(i.Provider, i.Flavor) == vcs.FlavorGit {
		return nil // the client checks it, because it can be an address for ssh
	}
	for name, address := range map[string]string{"baseUrl": i.BaseURL, "apiUrl": i.APIURL} {
		if err := outbound.CheckBase(address); address != "" && err != nil {
			return fault.Invalid("Bad Request: %s %s", name, err)
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
	for _, f := range []struct{ to, from *string }{
		{&l.Password, c.Token}, {&l.UserName, c.UserName}, {&l.SSHPrivateKey, c.SSHKey}, {&l.SSHPassphrase, c.Passphrase}, {&l.AppKey, c.AppKey},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	if l.Password == "" && l.SSHPrivateKey == "" && l.AppKey == "" {
		i.Credential = nil
		return nil
	}
	if l.Password != "" && l.SSHPrivateKey != "" {
		return fault.Invalid("Bad Request: an integration has either a token or an SSH key, not both")
	}
	i.Credential, err = s.sealLogin(ctx, i.ID, l)
	return err
}

// applySecret changes the secret of an integration's webhooks, and returns it if it was generated.
func (s *Service) applySecret(ctx context.Context, i *store.VCSIntegration, c Change, now time.Time) (string, error) {
	var secret string
	switch {
	case c.Secret != nil && len(*c.Secret) < minSecret:
		return "", fault.Invalid("Bad Request: webhookSecret has fewer than %d characters", minSecret)
	case c.Secret != nil:
		secret = *c.Secret
	case c.Rotate:
		raw := make([]byte, secretBytes)
		rand.Read(raw)
		secret = base64.RawURLEncoding.EncodeToString(raw)
	default:
		return "", nil
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, scope(i.ID), []byte(secret))
	if err != nil {
		return "", fmt.Errorf("encrypting a webhook secret: %w", err)
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

// rewatch derives the watches of an organization's stacks again after an integration changed. Only
// settings that name a repository can be concerned.
func (s *Service) rewatch(tx *store.Tx, i store.VCSIntegration) error {
	rows, err := tx.SettingsWithRepository(i.OrgID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		set, err := workflow.ParseSettings([]byte(row.Document))
		if err != nil {
			return fmt.Errorf("parsing the settings of stack %s: %w", row.StackID, err)
		}
		if t, ok := set.Triggers(); !ok || t.Provider != i.Provider {
			continue
		}
		st, err := tx.Stack(row.StackID)
		if err != nil {
			return err
		}
		before, err := tx.Watch(st.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		w, ok, err := watchOf(tx, st, set, before)
		switch {
		case fault.KindOf(err) != "" || err == nil && !ok: // ambiguous, or no longer allowed
			err = tx.DeleteWatch(st.ID)
		case err == nil:
			err = s.save(tx, w, before)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

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

// Repos returns a page of the repositories that stacks may use, and the next page, or "".
func (s *Service) Repos(ctx context.Context, org store.Organization, id, page string) (repos []vcs.Repo, next string, err error) {
	i, set, err := s.settings(ctx, org, id)
	if err != nil {
		return nil, "", err
	}
	if len(set.Repositories) > 0 || i.Provider == vcs.ProviderCustom {
		for _, r := range set.Repositories {
			repos = append(repos, vcs.Repo{RepoID: vcs.RepoID{ID: r.Name, Name: r.Name}})
		}
		return repos, "", nil
	}
	client, err := s.Client(ctx, i)
	if err != nil {
		return nil, "", err
	}
	lister, ok := client.(vcs.Lister)
	if !ok {
		return nil, "", fault.Invalid("Bad Request: this forge cannot list repositories")
	}
	repos, next, err = lister.Repos(ctx, page)
	return repos, next, forgeError(err)
}

// Branches returns the names of the branches of a repository that stacks may use.
func (s *Service) Branches(ctx context.Context, org store.Organization, id, name string) ([]string, error) {
	i, set, err := s.settings(ctx, org, id)
	if err != nil {
		return nil, err
	}
	listed, ok := set.allowed(i.Provider, name)
	if !ok {
		return nil, fault.NotFound("Not Found: the integration has no repository %q", name)
	}
	client, err := s.Client(ctx, i)
	if err != nil {
		return nil, err
	}
	repo, err := client.Find(ctx, listed)
	if err != nil {
		return nil, forgeError(err)
	}
	refs, err := client.Refs(ctx, repo.RepoID, []string{vcs.BranchPrefix})
	if err != nil {
		return nil, forgeError(err)
	}
	var names []string
	for _, r := range refs {
		names = append(names, strings.TrimPrefix(r.Name, vcs.BranchPrefix))
	}
	slices.Sort(names)
	return names, nil
}

func (s *Service) settings(ctx context.Context, org store.Organization, id string) (store.VCSIntegration, Settings, error) {
	i, err := s.Get(ctx, org, id)
	if err != nil {
		return i, Settings{}, err
	}
	set, err := SettingsOf(i)
	return i, set, err
}

// forgeError returns the error of a forge in the form for clients.
func forgeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vcs.ErrNotFound):
		return fault.Wrap(fault.KindNotFound, err, "Not Found: %s", err)
	default:
		return fault.Wrap(fault.KindUnavailable, err, "Service Unavailable: the forge could not be asked: %s", err)
	}
}
