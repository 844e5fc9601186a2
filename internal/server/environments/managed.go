package environments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
)

const (
	// firstDefinition is that of an environment that a stack manages. Clients write the same one into the stack's file.
	firstDefinition = "values:\n  pulumiConfig: {}\n"
	// maxNames is the number of names that are tried for such an environment.
	maxNames = 20
)

// Configuration is a new environment for the configuration of a new stack.
type Configuration struct {
	environment store.Environment
	managed     bool
}

// NewConfiguration prepares an environment for the configuration of a new stack. If the stack manages it, updates of the stack
// publish its definition, and its name can get a number.
func (s *Service) NewConfiguration(ctx context.Context, p identity.Principal, org store.Organization, project, name string, managed bool) (*Configuration, error) {
	e, err := s.newEnvironment(ctx, p, org, project, name)
	return &Configuration{e, managed}, err
}

// CreateConfiguration creates the environment in the transaction that creates the stack, which holds the organization, and
// returns it.
func (s *Service) CreateConfiguration(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, c Configuration) (store.Environment, error) {
	e := c.environment
	for n := 2; c.managed && n <= maxNames; n++ {
		if _, err := tx.EnvironmentFor(e.OrgName, e.Project, e.Name, "", ""); err != nil {
			if err = store.IgnoreMissing(err); err != nil {
				return e, err
			}
			break
		}
		name := fmt.Sprintf("%s-%d", c.environment.Name, n)
		if !validName(name) { // the name of the stack is too long: inserting reports the conflict
			break
		}
		e.Name = name
	}
	e.LastNumber = 1
	detail := map[string]any{"stack": st.Ref()}
	if err := s.insert(ctx, tx, p, &e, detail); err != nil {
		return e, err
	}
	first := store.EnvironmentRevision{EnvironmentID: e.ID, Number: e.LastNumber, CreatedBy: p.Name(), CreatedAt: e.CreatedAt}
	if !c.managed {
		return e, tx.InsertRevision(first)
	}
	first.Definition = firstDefinition
	return e, errors.Join(tx.InsertRevision(first), tx.InsertManagedEnvironment(store.ManagedEnvironment{StackID: st.ID, EnvironmentID: e.ID, CreatedAt: e.CreatedAt}))
}

// Managed returns the name of the environment that a stack manages, as project/name, or "".
func (s *Service) Managed(ctx context.Context, st store.Stack) (string, error) {
	m, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.ManagedEnvironment, error) { return tx.ManagedEnvironment(st.ID) })
	if err != nil {
		return "", fault.While(store.IgnoreMissing(err), "reading the environment of a stack")
	}
	return m.Project + "/" + m.Name, nil
}

// checkUnmanaged returns an error if a stack manages an environment.
func checkUnmanaged(tx *store.Tx, e store.GrantedEnvironment) error {
	if e.ManagedBy == "" {
		return nil
	}
	st, err := tx.Stack(e.ManagedBy)
	if err != nil {
		return store.IfMissing(err, fault.Conflict("environment %s belongs to a deleted stack, with which the server removes it", e.Ref()))
	}
	return fault.Conflict("environment %s is the configuration of stack %s, which manages it; it is deleted with the stack", e.Ref(), st.Ref())
}

const (
	// keptDrafts is the number of drafts of an environment that a token has. A command uses one, at once.
	keptDrafts = 10
	// draftLifetime is the time for which an update can publish a draft.
	draftLifetime = 24 * time.Hour
)

// ErrNoDrafts is the error for drafts of environments that no stack manages.
var ErrNoDrafts = fault.NotFound("this server does not offer approvals of changes and of opening; only commands for stacks that manage an environment make drafts of it")

// Draft keeps a definition of an environment that a stack manages, so that a command can evaluate it, and an update can
// publish it. Errors of the definition are a [DiagnosticsError].
func (s *Service) Draft(ctx context.Context, p identity.Principal, org, project, name, definition, condition string) (store.EnvironmentDraft, error) {
	e, err := s.draftable(ctx, p, org, project, name)
	if err != nil {
		return store.EnvironmentDraft{}, err
	}
	if condition != "" && !matches(condition, ETag(e.ID, e.LastNumber)) {
		return store.EnvironmentDraft{}, errChanged
	}
	checked, err := s.check(ctx, p, e.Environment, definition)
	if err != nil {
		return store.EnvironmentDraft{}, err
	}
	d := store.EnvironmentDraft{ID: identity.NewID(), EnvironmentID: e.ID, TokenID: p.TokenID, Base: e.LastNumber, Definition: checked.Definition}
	for _, r := range checked.Imports {
		d.Imports = append(d.Imports, r.String())
	}
	err = s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		if err := s.quota.AdmitText(tx, e.OrgID, int64(len(d.Definition))); err != nil {
			return err
		}
		d.CreatedAt = tx.Now()
		return tx.InsertEnvironmentDraft(d, keptDrafts)
	})
	return d, fault.During(err, "keeping a draft of an environment")
}

// draftable returns an environment of which a caller may evaluate changes.
func (s *Service) draftable(ctx context.Context, p identity.Principal, org, project, name string) (store.GrantedEnvironment, error) {
	e, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.GrantedEnvironment, error) {
		e, err := tx.EnvironmentFor(org, project, name, p.User.ID, p.TeamID)
		if p.Kind == identity.KindJob && (errors.Is(err, store.ErrNotFound) || err == nil && !p.CanDraft(e)) {
			_, err = findForJob(tx, p, store.WriteEnvironment, org, project, name)
		}
		return e, err
	})
	switch {
	case err != nil:
		err = store.IfMissing(err, p.NoEnvironment(org, project, name))
	case !p.CanDraft(e):
		err = p.CheckEnvironment(e, store.WriteEnvironment)
	case e.ManagedBy == "":
		err = ErrNoDrafts
	}
	return e, fault.While(err, "looking up an environment")
}

// FindDraft returns the definition of a draft that the caller has made, as if it were a revision.
func (s *Service) FindDraft(ctx context.Context, p identity.Principal, org, project, name, id string) (Found, error) {
	e, err := s.draftable(ctx, p, org, project, name)
	if err != nil {
		return Found{}, err
	}
	d, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.EnvironmentDraft, error) { return draftOf(tx, p.TokenID, e.ID, id) })
	return Found{
		Environment: e.Environment, Silent: !p.ActsAs(e), Revision: store.EnvironmentRevision{EnvironmentID: e.ID, Number: d.Base, Definition: d.Definition},
	}, fault.While(err, "looking up a draft")
}

// draftOf returns a draft that was made with a token.
func draftOf(tx *store.Tx, tokenID, environmentID, id string) (store.EnvironmentDraft, error) {
	d, err := tx.EnvironmentDraft(environmentID, id)
	if err == nil && d.TokenID != tokenID {
		err = store.ErrNotFound
	}
	return d, store.IfMissing(err, fault.NotFound("the environment has no draft %q that this token has made; run the command again", id))
}

// Publication is the definition of a managed environment with which an update was evaluated.
type Publication struct {
	Base  int64  // number of the published revision
	Draft string // id of the draft that changes it, or ""
}

// Admit returns an error if an update of a stack may not use a definition of the environment that the stack manages. preview is
// set for updates that publish nothing. It runs in the transaction that creates the update.
func Admit(tx *store.Tx, p identity.Principal, st store.Stack, pub Publication, preview bool) error {
	m, err := tx.ManagedEnvironment(st.ID)
	if err != nil {
		return store.IfMissing(err, fault.Invalid("stack %s manages no environment", st.Ref()))
	}
	if pub.Draft == "" {
		return nil
	}
	if _, err := draftOf(tx, p.TokenID, m.EnvironmentID, pub.Draft); err != nil || preview {
		return err
	}
	e, err := tx.EnvironmentFor(st.OrgName, m.Project, m.Name, p.User.ID, p.TeamID)
	if err == nil && !p.CanPublish(e) {
		err = fault.Forbidden("%s may not change environment %s, which stack %s manages: it needs the permission \"write\" on the environment", p.Name(), e.Ref(), st.Ref())
	}
	return err
}

// Publish makes a revision of the draft with which an update of a stack was evaluated, and records that the update uses the
// environment. It runs in the transaction that starts the update, which holds the organization.
func (s *Service) Publish(ctx context.Context, tx *store.Tx, st store.Stack, u store.Update, pub Publication) error {
	m, err := tx.ManagedEnvironment(st.ID)
	if err != nil || u.Preview {
		return store.IgnoreMissing(err)
	}
	err = tx.SaveStackEnvironment(store.StackEnvironment{EnvironmentID: m.EnvironmentID, StackID: st.ID, StackVersion: u.Version, Version: store.LatestVersion})
	if err != nil || pub.Draft == "" {
		return err
	}
	e, err := tx.Environment(m.EnvironmentID)
	if err != nil {
		return err
	}
	d, err := tx.EnvironmentDraft(e.ID, pub.Draft)
	if err != nil {
		return store.IfMissing(err, fault.Invalid("the change of environment %s, with which the update was evaluated, no longer exists; run the command again", e.Ref()))
	}
	current, err := tx.Revision(e.ID, e.LastNumber)
	switch {
	case err != nil || current.Definition == d.Definition:
		return err
	case e.LastNumber != d.Base:
		return fault.Invalid("environment %s has changed since revision %d, with which the update was evaluated; run the command again", e.Ref(), d.Base)
	}
	checked := Checked{Definition: d.Definition}
	for _, text := range d.Imports {
		r, err := ParseReference(text)
		if err != nil {
			return fmt.Errorf("reading a draft of an environment: %w", err)
		}
		checked.Imports = append(checked.Imports, r)
	}
	if err := s.quota.AdmitText(tx, e.OrgID, int64(len(d.Definition))); err != nil {
		return err
	}
	by, err := authorOfUpdate(tx, st, u)
	if err != nil {
		return err
	}
	if err := addRevision(tx, by, &e, checked); err != nil {
		return err
	}
	return record(ctx, tx, audit.EnvironmentChanged, e, map[string]any{"revision": e.LastNumber, "stack": st.Ref(), "update": u.Version})
}

func authorOfUpdate(tx *store.Tx, st store.Stack, u store.Update) (author, error) {
	user, err := tx.UserOrNone(u.RequestedBy)
	by := author{name: user.Login, userID: user.ID, stackID: st.ID, deploymentID: u.DeploymentID}
	if by.name == "" {
		by.name = st.Ref()
	}
	return by, err
}

// Sweep removes old drafts, and the environments that purged stacks managed.
func (s *Service) Sweep(ctx context.Context) error {
	now, err := s.db.Now(ctx)
	if err != nil {
		return fmt.Errorf("reading the time: %w", err)
	}
	err = s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
		return tx.DeleteOldDrafts(now.Add(-draftLifetime), limit)
	})
	if err != nil {
		return fmt.Errorf("removing old drafts of environments: %w", err)
	}
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.ManagedEnvironment, error) { return tx.UnmanagedEnvironments(100) })
	if err != nil {
		return fmt.Errorf("reading the environments of purged stacks: %w", err)
	}
	for _, m := range list {
		if err := s.removeManaged(ctx, m); err != nil {
			return fmt.Errorf("removing the environment of a purged stack: %w", err)
		}
	}
	return nil
}

// removeManaged removes the environment that a purged stack managed. A protected one remains, without a stack.
func (s *Service) removeManaged(ctx context.Context, m store.ManagedEnvironment) error {
	recorded := false
	for done := false; !done; {
		err := s.db.Write(ctx, scope.Organization(m.OrgID), func(tx *store.Tx) error {
			done = true
			e, err := tx.Environment(m.EnvironmentID)
			if err != nil || e.OrgID != m.OrgID {
				return store.IgnoreMissing(err)
			}
			if e.Protected && !recorded {
				return tx.ReleaseEnvironment(e.ID)
			}
			if !recorded {
				if err := record(ctx, tx, audit.EnvironmentDeleted, e, map[string]any{"revisions": e.LastNumber}); err != nil {
					return err
				}
			}
			removed, err := tx.DeleteOldestRevisions(e.ID, revisionsAtOnce, revisionsAtOnce)
			if err != nil {
				return err
			}
			if done = removed == 0; !done {
				return nil
			}
			if err := event(tx, author{}, e, webhooks.EnvironmentDeleted, map[string]any{"action": "deleted"}); err != nil {
				return err
			}
			return tx.DeleteEnvironment(e.ID)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
