// Package stacks implements the state backend: stacks and their tags, stack secrets, and updates
// with their leases, checkpoints and events.
package stacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/policies/findings"
	"workflowagent/internal/server/stacks/lru"
	"workflowagent/internal/server/stacks/mask"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

// MaxLease is the maximum and default duration of an update's lease.
const MaxLease = 5 * time.Minute

// Service manages stacks and updates.
type Service struct {
	db      *store.DB
	log     *logrus.Entry
	secrets *keyring.Ring
	states  *states.Store
	lease   time.Duration
	hooks   Hooks
	masks   *mask.Sets
	reduced *lru.Cache[reduced] // by the id of the update
	// compared are differences of states, by the keys of both.
	compared *lru.Cache[compared]
	// inventories are the resources of states, by their keys.
	inventories *lru.Cache[kept]
	quota       *quota.Quota
	url         string
	console     links.Console
	memory      *budget.Budget // of background work; nil means no limit

	keepDeleted time.Duration
}

// Options are the options of [New].
type Options struct {
	Log     *logrus.Entry
	Secrets *keyring.Ring
	// Lease is the duration of a started update's lease (default [MaxLease]).
	Lease time.Duration
	// Memory is the budget of background work; nil means no limit.
	Memory *budget.Budget
	Quota  *quota.Quota // nil means no limit
	// ExternalURL is the server's URL for clients, without a trailing slash.
	ExternalURL string
	Console     links.Console // by default, the console of ExternalURL
	// KeepDeleted is the time for which deleted stacks can be restored; 0 means not at all.
	KeepDeleted time.Duration
}

// New returns a service that uses a database.
func New(db *store.DB, o Options) *Service {
	if o.Lease <= 0 {
		o.Lease = MaxLease
	}
	return &Service{
		masks: mask.NewSets(), reduced: lru.New[reduced](keptReducers, keptReducerBytes),
		compared: lru.New[compared](keptComparisons, keptComparisonBytes), inventories: lru.New[kept](keptInventories, keptInventoryBytes),
		db: db, log: o.Log, secrets: o.Secrets, states: states.New(db, o.Log, o.Memory), lease: o.Lease, quota: o.Quota,
		url: o.ExternalURL, console: cmp.Or(o.Console, links.Of(o.ExternalURL)), memory: o.Memory, keepDeleted: o.KeepDeleted,
	}
}

// Follow sets the hooks. Call it before any other method.
func (s *Service) Follow(h Hooks) { s.hooks = h }

// Find returns a stack by name if the caller has one of the needed abilities. It also returns the
// caller with the permissions on this stack.
func (s *Service) Find(ctx context.Context, p identity.Principal, need identity.Ability, org, project, name string) (identity.Principal, store.Stack, error) {
	var st store.Stack
	var granted store.Permission
	lent := false
	err := s.db.ReadOne(ctx, func(tx *store.Tx) (err error) {
		if p.Kind == identity.KindJob {
			st, granted, lent, err = tx.StackForJob(org, project, name, p.User.ID, p.DeploymentID)
		} else {
			st, granted, err = tx.StackFor(org, project, name, p.User.ID, p.TeamID)
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return p, store.Stack{}, s.noStack(ctx, p, need, org, project, name, p.NoStack(org, project, name))
	}
	if err != nil {
		return p, store.Stack{}, fmt.Errorf("looking up a stack: %w", err)
	}
	p = p.Granted(st, granted).Lent(st, lent)
	if err = p.Check(st, need); err != nil && st.ID != p.StackID {
		err = s.noStack(ctx, p, need, org, project, name, err)
	}
	return p, st, err
}

// Names returns the names of up to limit stacks of an organization that a caller sees, as project/name, in their order.
func (s *Service) Names(ctx context.Context, p identity.Principal, orgID string, limit int) ([]string, error) {
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.StackNames(orgID, p.Reach(orgID), limit) })
	return list, fault.While(err, "listing the names of stacks")
}

// noStack returns the error for a caller who does not find a stack: otherwise, unless a job wants to read outputs of its
// organization, as programs do with a StackReference.
func (s *Service) noStack(ctx context.Context, p identity.Principal, need identity.Ability, org, project, name string, otherwise error) error {
	if p.Kind != identity.KindJob || need&identity.Outputs == 0 || need&identity.Decrypt != 0 {
		return otherwise
	}
	return s.db.Read(ctx, func(tx *store.Tx) error {
		o, err := tx.OrganizationByName(org)
		if err != nil || o.ID != p.Org.ID {
			return cmp.Or(store.IgnoreMissing(err), otherwise)
		}
		return grants.Refusal(tx, p, project, name, s.console)
	})
}

// checkName returns an error if name is not valid in a stack reference.
func checkName(what, name string) error {
	if !workflow.IsName(name) || name == "." || name == ".." {
		return fault.Invalid("the %s name %q is not valid; use 1 to 100 letters, digits, '-', '_' and '.'", what, name)
	}
	return nil
}

// NewStack describes a stack to create.
type NewStack struct {
	Org           store.Organization
	Project, Name string
	Tags          map[string]string
	Config        string        // stack configuration as JSON; "" for none
	State         *states.State // initial state; nil for none
	Teams         []string      // names of the teams that get the permission to write
	// Also is called in the transaction that creates the stack, which then holds the organization; nil means nothing.
	Also func(tx *store.Tx, st store.Stack) error
	// ID is a new id, by which a caller of [Service.CreateIn] names the stack as an owner of its
	// transaction.
	ID string
}

// Create creates a stack, with its initial state in the same transaction.
func (s *Service) Create(ctx context.Context, p identity.Principal, n NewStack) (store.Stack, error) {
	n.ID = identity.NewID()
	var initial *replacement
	if n.State != nil {
		if err := mayCreate(p, n); err != nil { // before the state takes space
			return store.Stack{}, err
		}
		if err := s.checkForeignSecrets(ctx, store.Stack{ID: n.ID}, n.State); err != nil {
			return store.Stack{}, err
		}
		var err error
		if initial, err = s.prepareImport(ctx, p, store.Stack{ID: n.ID, OrgID: n.Org.ID}, n.State); err != nil {
			return store.Stack{}, err
		}
	}
	var st store.Stack
	org := scope.Organization(n.Org.ID).Shared()
	if n.Also != nil {
		org = scope.Organization(n.Org.ID)
	}
	err := s.db.Write(ctx, org.And(scope.Stack(n.Org.ID, n.ID)), func(tx *store.Tx) (err error) {
		if st, err = s.CreateIn(ctx, tx, p, n); err == nil && initial != nil {
			err = initial.in(tx)
		}
		if err == nil && n.Also != nil {
			err = n.Also(tx, st)
		}
		return err
	})
	if initial != nil {
		initial.finish(ctx, err)
	}
	if errors.Is(err, store.ErrConflict) {
		return store.Stack{}, fault.Conflict("stack '%s' already exists", st.Ref())
	}
	if err != nil && fault.KindOf(err) == "" {
		err = fmt.Errorf("creating a stack: %w", err)
	}
	if err != nil {
		return store.Stack{}, err
	}
	return st, nil
}

// mayCreate returns an error if a caller may not create a stack, or if its names are not valid.
func mayCreate(p identity.Principal, n NewStack) error {
	if !p.CanCreateStack(n.Org.ID) {
		return fault.Forbidden("%s may not create stacks in %s", p.Name(), n.Org.Name)
	}
	if err := checkName("project", n.Project); err != nil {
		return err
	}
	if err := checkName("stack", n.Name); err != nil {
		return err
	}
	return checkTags(n.Tags)
}

// CreateIn creates a stack without a state in the caller's transaction, which must hold the new stack.
// After an error, the caller must roll back the transaction, unless the error has a [fault.Kind].
func (s *Service) CreateIn(ctx context.Context, tx *store.Tx, p identity.Principal, n NewStack) (store.Stack, error) {
	st := store.Stack{
		ID: n.ID, OrgID: n.Org.ID, OrgName: n.Org.Name, Project: n.Project, Name: n.Name,
		CreatedBy: p.Creator(), CreatedAt: time.Now().UTC(), Config: n.Config,
	}
	if err := mayCreate(p, n); err != nil {
		return st, err
	}
	teams, err := identity.CheckTeams(tx, n.Org, n.Teams)
	if err != nil {
		return st, err
	}
	if err := s.quota.AdmitText(tx, st.OrgID, int64(len(st.Config))); err != nil {
		return st, err
	}
	if err := tx.InsertStack(st); err != nil {
		return st, err
	}
	for _, t := range teams {
		if err := tx.SaveTeamStack(store.TeamStack{TeamID: t.ID, StackID: st.ID, Permission: store.WritePermission}); err != nil {
			return st, err
		}
	}
	if p.TeamID != "" {
		if err := tx.SaveTeamStack(store.TeamStack{TeamID: p.TeamID, StackID: st.ID, Permission: store.AdminPermission}); err != nil {
			return st, err
		}
	}
	tags := map[string]string{"pulumi:project": n.Project}
	maps.Copy(tags, n.Tags)
	if err := tx.SetStackTags(st.ID, tags); err != nil {
		return st, err
	}
	if err := grants.Admit(tx, p, st, st.Project, tags, time.Time{}); err != nil {
		return st, err
	}
	if err := audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.StackCreated, Subject: audit.Stack(st)}); err != nil {
		return st, err
	}
	changed(tx, st)
	return st, record(tx, p, st, webhooks.StackCreated, "created")
}

// List returns the selected stacks, ordered by name.
func (s *Service) List(ctx context.Context, f store.StackFilter) ([]store.Stack, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Stack, error) { return tx.Stacks(f) })
	return out, fault.While(err, "listing stacks")
}

// SetConfig replaces a stack's stored configuration; "" removes it.
func (s *Service) SetConfig(ctx context.Context, st store.Stack, config string) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		cur, err := tx.Stack(st.ID)
		if err != nil {
			return err
		}
		if len(config) > len(cur.Config) {
			if err := s.quota.AdmitText(tx, cur.OrgID, int64(len(config))); err != nil {
				return err
			}
		}
		if err := tx.SetStackConfig(cur.ID, config); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: cur.OrgID, Action: audit.StackConfigChanged, Subject: audit.Stack(cur)})
	})
}

// Owner returns the user who created a stack, or the zero user if no user did.
func (s *Service) Owner(ctx context.Context, st store.Stack) (store.User, error) {
	if st.CreatedBy == "" {
		return store.User{}, nil
	}
	u, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.User, error) { return tx.User(st.CreatedBy) })
	return u, store.IgnoreMissing(err)
}

// Hooks connect updates to the deployments domain. Each field may be nil.
type Hooks struct {
	// LinkUpdate returns the deployment that runs a new update. It is called inside the transaction
	// that creates the update. buildID is the value of the client's ci.build.id environment entry,
	// or "" if it is absent. LinkUpdate is not called for job tokens, which identify the
	// deployment.
	LinkUpdate func(tx *store.Tx, stack store.Stack, buildID string) (deploymentID string, err error)
	// MayWrite is called inside the transaction before a deployment creates or starts an update,
	// stores a state, changes tags or removes its stack.
	MayWrite func(tx *store.Tx, deploymentID string) error
	// StackDeleted is called inside the transaction that deletes a stack, before the stack disappears.
	StackDeleted func(tx *store.Tx, stack store.Stack) error
	// Started is called inside the transaction that starts an update, before the update is stored.
	Started func(ctx context.Context, tx *store.Tx, stack store.Stack, u store.Update) error
	// UpdateFinished is called after a finished update has been committed. It must not block.
	UpdateFinished func(u store.Update)
	// Recorded is called, with what new events say about policies, inside the transaction that stores them.
	Recorded func(tx *store.Tx, u store.Update, found []findings.Finding) error
	// Ended is called inside the transaction that ends an update, before the update is stored.
	Ended func(tx *store.Tx, stack store.Stack, u *store.Update) error
	// StateChanged is called inside the transaction that gives a stack a new complete state: the end of an update, or an
	// import, for example. It holds the stack.
	StateChanged func(tx *store.Tx, stack store.Stack) error
	// KnownSecrets returns a deployment's secrets, which are masked in its updates' events.
	KnownSecrets func(ctx context.Context, deploymentID string) ([]redact.Secret, error)
	// Openings returns the number of times that KnownSecrets has grown since the deployment began; nil means never.
	Openings func(ctx context.Context, deploymentID string) (int64, error)
}

func (s *Service) stateChanged(tx *store.Tx, st store.Stack) error {
	if s.hooks.StateChanged == nil {
		return nil
	}
	return s.hooks.StateChanged(tx, st)
}

func (s *Service) mayWrite(tx *store.Tx, deploymentID string) error {
	if deploymentID == "" || s.hooks.MayWrite == nil {
		return nil
	}
	return s.hooks.MayWrite(tx, deploymentID)
}

func (s *Service) knownSecrets(ctx context.Context, u store.Update) (*redact.Set, error) {
	if u.DeploymentID == "" || s.hooks.KnownSecrets == nil {
		return nil, nil //nolint:nilnil // nil means that no secrets exist
	}
	grown := int64(0)
	if s.hooks.Openings != nil {
		var err error
		if grown, err = s.hooks.Openings(ctx, u.DeploymentID); err != nil {
			return nil, err
		}
	}
	return s.masks.Of(ctx, u.DeploymentID, grown, s.hooks.KnownSecrets)
}
