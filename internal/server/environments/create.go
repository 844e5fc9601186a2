package environments

import (
	"context"
	"slices"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
)

// revisionsAtOnce is the number of revisions that one transaction removes.
const revisionsAtOnce = 100

// maxEnvironments is the largest number of an organization's environments.
const maxEnvironments = 5000

// Create creates an environment, whose first revision has an empty definition. The caller administers it.
func (s *Service) Create(ctx context.Context, p identity.Principal, org store.Organization, project, name string) (store.Environment, error) {
	e, err := s.newEnvironment(ctx, p, org, project, name)
	if err != nil {
		return e, err
	}
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		e.LastNumber = 1
		if err := s.insert(ctx, tx, p, &e, nil); err != nil {
			return err
		}
		return tx.InsertRevision(store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber, CreatedBy: p.Name(), CreatedAt: e.CreatedAt})
	})
	return e, fault.During(err, "creating an environment")
}

// newEnvironment returns the row of a new environment, after checks.
func (s *Service) newEnvironment(ctx context.Context, p identity.Principal, org store.Organization, project, name string) (store.Environment, error) {
	if !p.CanCreateEnvironment(org.ID) {
		return store.Environment{}, fault.Forbidden("%s may not create environments in %s", p.Name(), org.Name)
	}
	for _, each := range []struct{ what, name string }{{"project", project}, {"environment", name}} {
		if !validName(each.name) {
			return store.Environment{}, fault.Invalid("the %s name %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.'", each.what, each.name)
		}
	}
	if slices.Contains(reservedProjects, project) {
		return store.Environment{}, fault.Invalid("environments cannot have the project %q; choose another name", project)
	}
	e := store.Environment{ID: identity.NewID(), OrgID: org.ID, OrgName: org.Name, Project: project, Name: name, CreatedBy: p.Creator()}
	var err error
	e.SealedKey, err = s.createKey(ctx, e.ID)
	return e, err
}

// insert adds the row of an environment, and the permission of the team whose token creates it.
func (s *Service) insert(ctx context.Context, tx *store.Tx, p identity.Principal, e *store.Environment, detail map[string]any) error {
	if err := s.quota.Admit(tx, e.OrgID); err != nil {
		return err
	}
	n, err := tx.CountEnvironments(e.OrgID)
	if err != nil {
		return err
	}
	if n >= maxEnvironments {
		return fault.Invalid("an organization can have at most %d environments", maxEnvironments)
	}
	e.CreatedAt = tx.Now()
	e.ModifiedAt = e.CreatedAt
	if err := tx.InsertEnvironment(*e); err != nil {
		return store.IfConflict(err, fault.Conflict("environment '%s' already exists", e.Ref()))
	}
	if p.TeamID != "" {
		if err := tx.SaveTeamEnvironment(store.TeamEnvironment{TeamID: p.TeamID, EnvironmentID: e.ID, Permission: store.AdminEnvironment}); err != nil {
			return err
		}
	}
	if err := event(tx, authorOf(p), *e, webhooks.EnvironmentCreated, map[string]any{"action": "created"}); err != nil {
		return err
	}
	return record(ctx, tx, audit.EnvironmentCreated, *e, detail)
}

// Delete removes an environment with all its revisions. Many revisions are removed in several transactions, so that other
// writers can run in between: the oldest first, and the newest with the environment. A deletion that is interrupted then leaves
// the environment with the newer revisions, and its entry in the audit log.
func (s *Service) Delete(ctx context.Context, p identity.Principal, e store.Environment) error {
	ctx = context.WithoutCancel(ctx) // a client that leaves does not interrupt it
	recorded := false
	for done := false; !done; {
		err := s.change(ctx, p, e, store.AdminEnvironment, "deleting an environment", func(tx *store.Tx, now *store.Environment) error {
			if now.Protected {
				return fault.Conflict("environment %s is protected from deletion; first run pulumi env settings set %s deletion-protected false", now.Ref(), now.Ref())
			}
			managed, err := tx.EnvironmentFor(now.OrgName, now.Project, now.Name, "", "")
			if err == nil {
				err = checkUnmanaged(tx, managed)
			}
			if err != nil {
				return err
			}
			if !recorded {
				if err := record(ctx, tx, audit.EnvironmentDeleted, *now, map[string]any{"revisions": now.LastNumber}); err != nil {
					return err
				}
			}
			removed, err := tx.DeleteOldestRevisions(now.ID, revisionsAtOnce, revisionsAtOnce)
			if err != nil {
				return err
			}
			if done = removed == 0; !done {
				return nil
			}
			if err := event(tx, authorOf(p), *now, webhooks.EnvironmentDeleted, map[string]any{"action": "deleted"}); err != nil {
				return err
			}
			return tx.DeleteEnvironment(now.ID)
		})
		if err != nil {
			return err
		}
		recorded = true
	}
	return nil
}

// Settings are what can be set of an environment. Parts that are nil do not change.
type Settings struct{ Protected *bool }

// SetSettings changes the settings of an environment.
func (s *Service) SetSettings(ctx context.Context, p identity.Principal, e store.Environment, set Settings) error {
	return s.change(ctx, p, e, store.AdminEnvironment, "changing the settings of an environment", func(tx *store.Tx, now *store.Environment) error {
		if set.Protected == nil || *set.Protected == now.Protected {
			return nil
		}
		word := "off"
		if now.Protected = *set.Protected; now.Protected {
			word = "on"
		}
		if err := tx.SaveEnvironment(*now); err != nil {
			return err
		}
		return record(ctx, tx, audit.EnvironmentSettingsSet, *now, map[string]any{"deletionProtection": word})
	})
}

// change makes a change of an environment that was found before. In the transaction, it reads the environment and the
// caller's permission again.
func (s *Service) change(ctx context.Context, p identity.Principal, e store.Environment, need store.EnvironmentPermission, what string, fn func(tx *store.Tx, now *store.Environment) error) error {
	err := s.db.Write(ctx, scope.Organization(e.OrgID), func(tx *store.Tx) error {
		now, err := findIn(tx, p, need, e.OrgName, e.Project, e.Name)
		if err == nil && now.ID != e.ID {
			err = p.NoEnvironment(e.OrgName, e.Project, e.Name)
		}
		if err != nil {
			return err
		}
		return fn(tx, &now)
	})
	return fault.During(err, what)
}

func record(ctx context.Context, tx *store.Tx, action audit.Action, e store.Environment, detail map[string]any) error {
	return audit.Record(ctx, tx, audit.Entry{OrgID: e.OrgID, Action: action, Subject: audit.Environment(e), Detail: detail})
}
