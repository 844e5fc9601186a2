// Package stacks implements the state backend: stacks and their tags; updates with leases,
// checkpoints and events; and stack secrets.
package stacks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/keyring"
	"workflowagent/internal/server/stacks/mask"
	"workflowagent/internal/server/store"
)

// MaxLease is the longest lease of an update between two renewals, and the default.
const MaxLease = 5 * time.Minute

// Service manages stacks and updates.
type Service struct {
	db      *store.DB
	log     *logrus.Entry
	secrets *keyring.Ring
	lease   time.Duration
	hooks   Hooks
	masks   mask.Sets
}

// Options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	// Lease is the lease that a started update receives, by default [MaxLease].
	Lease time.Duration
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	if o.Lease <= 0 {
		o.Lease = MaxLease
	}
	return &Service{db: db, log: o.Log, secrets: o.Secrets, lease: o.Lease}
}

// Follow sets the hooks. Call it before using the service.
func (s *Service) Follow(h Hooks) { s.hooks = h }

// Secrets returns the encryption of stack secrets.
func (s *Service) Secrets() *keyring.Ring { return s.secrets }

// Find returns a stack by name if the caller has one of the needed abilities.
func (s *Service) Find(ctx context.Context, p identity.Principal, need identity.Ability, org, project, name string) (store.Stack, error) {
	var st store.Stack
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		st, err = tx.StackByName(org, project, name)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.Stack{}, p.NoStack(org, project, name)
	}
	if err != nil {
		return store.Stack{}, fmt.Errorf("looking up a stack: %w", err)
	}
	return st, p.Check(st, need)
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)

// checkName rejects names that a stack reference cannot contain.
func checkName(what, name string) error {
	if !namePattern.MatchString(name) || name == "." || name == ".." {
		return fault.Invalid("Bad Request: the %s name %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.'", what, name)
	}
	return nil
}

// NewStack describes a stack to create.
type NewStack struct {
	Org           store.Organization
	Project, Name string
	Tags          map[string]string
	Config        string // JSON of the stack configuration, "" for none
	State         *State // initial state, nil for none
}

// Create creates a stack.
func (s *Service) Create(ctx context.Context, p identity.Principal, n NewStack) (store.Stack, error) {
	if !p.CanCreateStack(n.Org.ID) {
		return store.Stack{}, fault.Forbidden("Forbidden: %s may not create stacks in %s", p.Name(), n.Org.Name)
	}
	if err := checkName("project", n.Project); err != nil {
		return store.Stack{}, err
	}
	if err := checkName("stack", n.Name); err != nil {
		return store.Stack{}, err
	}
	if err := checkTags(n.Tags); err != nil {
		return store.Stack{}, err
	}
	tags := map[string]string{"pulumi:project": n.Project}
	maps.Copy(tags, n.Tags)
	st := store.Stack{
		ID: identity.NewID(), OrgID: n.Org.ID, OrgName: n.Org.Name, Project: n.Project, Name: n.Name,
		CreatedBy: p.User.ID, CreatedAt: time.Now().UTC(), Config: n.Config,
	}
	err := s.db.Write(ctx, func(tx *store.Tx) error {
		if err := tx.InsertStack(st); err != nil {
			return err
		}
		return tx.SetStackTags(st.ID, tags)
	})
	if errors.Is(err, store.ErrConflict) {
		return store.Stack{}, fault.Conflict("Conflict: stack '%s' already exists", st.Ref())
	}
	if err != nil {
		return store.Stack{}, fmt.Errorf("creating a stack: %w", err)
	}
	if n.State != nil {
		if _, err := s.Import(ctx, p, st, n.State); err != nil {
			return store.Stack{}, err
		}
	}
	return st, nil
}

// errResourcesLeft has the exact text by which clients recognize it.
var errResourcesLeft = fault.Invalid("Bad Request: Stack still contains resources.")

// deletedPerWrite bounds the rows deleted in one write, which other writers wait for.
const deletedPerWrite = 500

// Delete removes a stack and its data. A stack with resources is removed only if force is set, and
// a stack held by an update never. History is removed first, in several transactions, so an update
// that interrupts the deletion leaves the stack and its state without the history.
func (s *Service) Delete(ctx context.Context, p identity.Principal, st store.Stack, force bool) error {
	for done := false; !done; {
		err := s.db.Write(ctx, func(tx *store.Tx) error {
			done = false
			cur, err := tx.Stack(st.ID)
			if err != nil {
				return err
			}
			now, err := tx.LeaseTime()
			if err != nil {
				return err
			}
			if err := s.mayWrite(tx, p.DeploymentID); err != nil {
				return err
			}
			if _, err := s.free(tx, &cur, now); err != nil {
				return err
			}
			if cur.ResourceCount > 0 && !force {
				return errResourcesLeft
			}
			switch done, err = tx.DeleteUpdates(cur.ID, deletedPerWrite); {
			case err != nil:
				return err
			case !done:
				return tx.UpdateStack(cur) // released by an expired update
			}
			return tx.DeleteStack(cur.ID)
		})
		if err != nil {
			return err
		}
	}
	if err := s.db.Blobs().Delete(ctx, stackBlobs(st.ID)); err != nil {
		s.log.WithError(err).WithField("stack", st.Ref()).Warn("could not remove the states of a deleted stack")
	}
	return nil
}

// ProjectExists reports whether an organization has stacks in a project.
func (s *Service) ProjectExists(ctx context.Context, orgID, project string) (bool, error) {
	var ok bool
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		ok, err = tx.ProjectExists(orgID, project)
		return err
	})
	return ok, err
}

// List returns stacks, ordered by name.
func (s *Service) List(ctx context.Context, f store.StackFilter) ([]store.Stack, error) {
	var out []store.Stack
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		out, err = tx.Stacks(f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing stacks: %w", err)
	}
	return out, nil
}

// SetConfig replaces the stored configuration of a stack; "" removes it.
func (s *Service) SetConfig(ctx context.Context, st store.Stack, config string) error {
	return s.db.Write(ctx, func(tx *store.Tx) error {
		cur, err := tx.Stack(st.ID)
		if err != nil {
			return err
		}
		cur.Config = config
		return tx.UpdateStack(cur)
	})
}

// Owner returns the user who created a stack, zero if not created by a user.
func (s *Service) Owner(ctx context.Context, st store.Stack) (store.User, error) {
	if st.CreatedBy == "" {
		return store.User{}, nil
	}
	var u store.User
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		u, err = tx.User(st.CreatedBy)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return store.User{}, nil
	}
	return u, err
}

// Hooks connect the deployments domain to updates. Nil members are skipped.
type Hooks struct {
	// LinkUpdate returns the deployment that runs a new update, inside the transaction that creates
	// it. buildID is the client's ci.build.id environment value, "" if absent. For callers with a
	// job token the service knows the deployment and does not call LinkUpdate.
	LinkUpdate func(tx *store.Tx, stack store.Stack, buildID string) (deploymentID string, err error)
	// MayWrite is called inside the transaction before a deployment creates or starts an update,
	// stores a state, changes tags or removes its stack.
	MayWrite func(tx *store.Tx, deploymentID string) error
	// UpdateFinished is called after the end of an update is on disk. It must not block.
	UpdateFinished func(u store.Update)
	// KnownSecrets returns a deployment's secrets, which are masked in its updates' events.
	KnownSecrets func(ctx context.Context, deploymentID string) ([]redact.Secret, error)
}

func (s *Service) mayWrite(tx *store.Tx, deploymentID string) error {
	if deploymentID == "" || s.hooks.MayWrite == nil {
		return nil
	}
	return s.hooks.MayWrite(tx, deploymentID)
}

func (s *Service) knownSecrets(ctx context.Context, u store.Update) (*redact.Set, error) {
	if u.DeploymentID == "" || s.hooks.KnownSecrets == nil {
		return nil, nil //nolint:nilnil // nothing to mask is an answer
	}
	return s.masks.Of(ctx, u.DeploymentID, s.hooks.KnownSecrets)
}
