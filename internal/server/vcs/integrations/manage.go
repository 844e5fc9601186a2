package integrations

import (
	"context"
	"errors"
	"slices"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

const (
	// maxIntegrations is the maximum number of integrations of an organization.
	maxIntegrations = 100
	// maxTries is the number of attempts to change an integration that others change at the same time.
	maxTries = 3
)

// List returns the integrations of an organization.
func (s *Service) List(ctx context.Context, org store.Organization) ([]store.VCSIntegration, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSIntegration, error) { return tx.Integrations(org.ID) })
}

// Failing returns the number of stacks whose repository could not be found or polled, by the ids of the
// integrations.
func (s *Service) Failing(ctx context.Context, org store.Organization) (map[string]int64, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (map[string]int64, error) { return tx.FailingWatches(org.ID) })
}

// HasGitHub reports whether an organization that the caller may see has an integration with GitHub.
func (s *Service) HasGitHub(ctx context.Context, p identity.Principal, org string) (bool, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (bool, error) {
		o, err := tx.OrganizationByName(org)
		if err != nil || !p.CanReadOrg(o.ID) {
			return false, store.IgnoreMissing(err)
		}
		all, err := tx.Integrations(o.ID)
		return slices.ContainsFunc(all, func(i store.VCSIntegration) bool { return i.Provider == vcs.ProviderGitHub }), err
	})
}

// Get returns an integration of an organization.
func (s *Service) Get(ctx context.Context, org store.Organization, id string) (store.VCSIntegration, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSIntegration, error) { return Find(tx, org, id) })
}

// Find returns an integration of an organization.
func Find(tx *store.Tx, org store.Organization, id string) (store.VCSIntegration, error) {
	i, err := tx.Integration(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && i.OrgID != org.ID {
		return store.VCSIntegration{}, fault.NotFound("the organization has no integration with the id %q", id)
	}
	return i, err
}

// Create adds an integration and returns the secret of its webhooks, which cannot be read again.
func (s *Service) Create(ctx context.Context, p identity.Principal, org store.Organization, provider string, c Change) (i store.VCSIntegration, secret string, err error) {
	i = store.VCSIntegration{ID: identity.NewID(), OrgID: org.ID, Provider: provider, BaseURL: hosts[provider], Options: "{}", CreatedBy: p.User.ID}
	c.Rotate = c.Secret == nil
	if secret, err = s.apply(ctx, &i, c); err != nil {
		return i, "", err
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		all, err := tx.Integrations(org.ID)
		if err != nil {
			return err
		}
		if len(all) >= maxIntegrations {
			return fault.Invalid("an organization can have at most %d integrations; delete one first", maxIntegrations)
		}
		if err := checkPool(tx, i); err != nil {
			return err
		}
		i.CreatedAt, i.ModifiedAt = tx.Now(), tx.Now()
		if err := tx.InsertIntegration(i); err != nil {
			return err
		}
		if err := recordChange(ctx, tx, audit.IntegrationCreated, i, c); err != nil {
			return err
		}
		return s.rewatch(tx, i)
	})
	return i, secret, named(i, err)
}

// named returns the error of storing an integration.
func named(i store.VCSIntegration, err error) error {
	return store.IfConflict(err, fault.Conflict("an integration of this provider with the name %s exists", i.Name))
}

// errRevised means that the integration changed since it was read.
var errRevised = fault.Conflict("the integration is being changed by others; try again")

// Update changes an integration. It returns the new secret of its webhooks, or "" if it did not change.
func (s *Service) Update(ctx context.Context, org store.Organization, id string, c Change) (i store.VCSIntegration, secret string, err error) {
	for range maxTries {
		if i, secret, err = s.update(ctx, org, id, c); !errors.Is(err, errRevised) {
			break
		}
	}
	if err == nil {
		s.forget(id)
	}
	return i, secret, err
}

// update makes one attempt to change an integration. The work that takes long, such as the decryption
// of an SSH key, is done before the transaction, because others wait for it.
func (s *Service) update(ctx context.Context, org store.Organization, id string, c Change) (i store.VCSIntegration, secret string, err error) {
	before, err := s.Get(ctx, org, id)
	if err != nil {
		return i, "", err
	}
	i = before
	if secret, err = s.apply(ctx, &i, c); err != nil {
		return i, "", err
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		now, err := Find(tx, org, id)
		if err != nil {
			return err
		}
		if !now.ModifiedAt.Equal(before.ModifiedAt) {
			return errRevised
		}
		if err := errors.Join(checkPool(tx, i), checkMove(tx, before, i)); err != nil {
			return err
		}
		i.RefusedAt, i.Problem = time.Time{}, "" // the next request shows whether the change helped
		if i.ModifiedAt = tx.Now(); !i.ModifiedAt.After(before.ModifiedAt) {
			i.ModifiedAt = before.ModifiedAt.Add(time.Microsecond) // it tells the revisions apart
		}
		if err := tx.SaveIntegration(i); err != nil {
			return err
		}
		if err := recordChange(ctx, tx, audit.IntegrationChanged, i, c); err != nil {
			return err
		}
		return s.rewatch(tx, i)
	})
	return i, secret, named(i, err)
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
	return fault.Conflict("stacks use repositories of this integration at %s: delete it and create another one, to which the stacks then change", before.BaseURL)
}

// Delete removes an integration. The settings of stacks stay, but nothing triggers deployments.
func (s *Service) Delete(ctx context.Context, org store.Organization, id string) error {
	err := s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
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
