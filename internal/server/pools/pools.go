// Package pools manages agent pools, their tokens, and the presence of agents.
package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// QueueTopic is the notification channel for queues. The payload is the id of a pool for which a
// job has become claimable. If this might apply to all pools of an organization, the payload is the
// organization's [OrgPayload].
const QueueTopic = "queue"

// Topic is the notification channel for agents and pools: an agent connected or disconnected, a token
// or the pool itself changed. The jobs of agents follow from the notifications of deployments. The
// payload is the result of [About].
const Topic = "pool"

// About returns the payload of notifications about a pool. The pool "" means all pools of the
// organization.
func About(orgID, poolID string) string { return orgID + "/" + poolID }

// changed notifies of a change of a pool; "" means all pools of the organization.
func changed(tx *store.Tx, orgID, poolID string) { tx.Notify(Topic, About(orgID, poolID)) }

// OrgPayload is the payload of a notification for all pools of an organization.
func OrgPayload(orgID string) string { return "org:" + orgID }

// Service manages pools.
type Service struct {
	db       *store.DB
	log      *logrus.Entry
	presence presence
	// maxAgents is the constant of that name; tests lower it.
	maxAgents int
}

// New returns a service that uses a database. The caller must start [Service.Run].
func New(db *store.DB, log *logrus.Entry) *Service {
	return &Service{db: db, log: log, maxAgents: maxAgents, presence: presence{
		agents: map[agentKey]*sighted{}, polls: map[session]int{}, unwritten: map[agentKey]sign{},
	}}
}

// Created is a new pool and its token. The token cannot be retrieved later.
type Created struct {
	Pool  store.AgentPool
	Token string
}

// Create creates a pool and its token. An organization's first pool becomes its default pool, so
// that deployments that wait for a pool can start.
func (s *Service) Create(ctx context.Context, p identity.Principal, org store.Organization, name, description string) (Created, error) {
	name, err := checkNames(name, description)
	if err != nil {
		return Created{}, err
	}
	token, hash := identity.NewToken()
	pool := store.AgentPool{ID: identity.NewID(), OrgID: org.ID, Name: name, Description: description}
	row := store.Token{
		ID: identity.NewID(), Hash: hash, Kind: store.PoolToken, Name: name,
		OrgID: org.ID, PoolID: pool.ID, CreatedBy: p.User.ID,
	}
	first := false
	err = s.db.Write(ctx, scope.Organization(org.ID), func(tx *store.Tx) error {
		pool.CreatedAt, row.CreatedAt = tx.Now(), tx.Now()
		others, err := checkFree(tx, pool)
		if err != nil {
			return err
		}
		if err := tx.InsertPool(pool); err != nil {
			return err
		}
		if err := tx.InsertToken(row); err != nil {
			return err
		}
		changed(tx, org.ID, pool.ID)
		if err := recordPool(ctx, tx, audit.PoolCreated, pool); err != nil {
			return err
		}
		if first = others == 0; !first {
			return nil
		}
		return chooseDefault(tx, org.ID, pool.ID)
	})
	if err != nil {
		return Created{}, fmt.Errorf("creating an agent pool: %w", err)
	}
	log := s.log.WithFields(logrus.Fields{"pool": pool.ID, "by": p.Name()})
	log.Info("created an agent pool")
	if first {
		// Only this response contains the new pool's token, so the response must report success.
		if err := s.moveQueued(ctx, org.ID, pool.ID); err != nil {
			log.WithError(err).Warn("moving queued deployments to the new pool failed: set the default pool again to retry")
		}
	}
	return Created{pool, token}, nil
}

// checkFree returns the number of other pools. It returns a conflict if another pool has the same
// name.
func checkFree(tx *store.Tx, pool store.AgentPool) (others int, err error) {
	list, err := tx.Pools(pool.OrgID)
	for _, other := range list {
		switch {
		case other.ID == pool.ID:
			continue
		case other.Name == pool.Name:
			return 0, fault.Conflict("the organization already has an agent pool named '%s': choose another name, or create a further token for that pool", pool.Name)
		}
		others++
	}
	return others, err
}

func chooseDefault(tx *store.Tx, orgID, id string) error {
	queue, err := tx.OrgQueue(orgID)
	if err != nil {
		return err
	}
	queue.DefaultPool = id
	tx.Notify(QueueTopic, OrgPayload(orgID))
	changed(tx, orgID, "")
	return tx.SaveOrgQueue(queue)
}

func checkNames(name, description string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", fault.Invalid("the name of an agent pool must not be empty")
	case len(name) > 128, strings.ContainsFunc(name, unicode.IsControl):
		return "", fault.Invalid("the name of an agent pool must be a single line of at most 128 bytes")
	case len(description) > 4096, strings.ContainsRune(description, 0):
		return "", fault.Invalid("the description of an agent pool must be text of at most 4096 bytes")
	}
	return name, nil
}

// Overview is a pool and the state of its agents.
type Overview struct {
	store.AgentPool
	Agents  []Agent
	Online  bool
	Default bool
}

// Agent is an agent of a pool, with its presence.
type Agent struct {
	store.PoolAgent
	Online bool
	// Drain is set if the agent is drained.
	Drain *store.DrainedAgent
}

// List returns an organization's pools and the id of its default pool, or "" if it has none.
func (s *Service) List(ctx context.Context, orgID string) ([]Overview, string, error) {
	var queue store.OrgQueue
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (out []Overview, err error) {
		if queue, err = tx.OrgQueue(orgID); err != nil {
			return nil, err
		}
		list, err := tx.Pools(orgID)
		for _, pool := range list {
			o, err := overview(tx, pool, queue)
			if err != nil {
				return nil, err
			}
			out = append(out, o)
		}
		return out, err
	})
	return out, queue.DefaultPool, fault.While(err, "listing agent pools")
}

// Get returns an organization's pool by its id.
func (s *Service) Get(ctx context.Context, orgID, id string) (Overview, error) {
	o, err := store.Read(ctx, s.db, func(tx *store.Tx) (Overview, error) {
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return Overview{}, err
		}
		pool, err := tx.Pool(orgID, id)
		if err != nil {
			return Overview{}, err
		}
		return overview(tx, pool, queue)
	})
	return o, notFound(err, id)
}

func notFound(err error, id string) error {
	return store.IfMissing(err, fault.NotFound("agent pool '%s' not found", id))
}

func overview(tx *store.Tx, pool store.AgentPool, queue store.OrgQueue) (Overview, error) {
	o := Overview{AgentPool: pool, Agents: []Agent{}, Default: queue.DefaultPool == pool.ID}
	agents, err := tx.Agents(pool.ID)
	if err != nil {
		return o, err
	}
	drains, err := tx.Drains(pool.ID)
	if err != nil {
		return o, err
	}
	now := tx.Now()
	for _, a := range agents {
		if now.Sub(a.LastSeenAt) > forgetAfter {
			continue
		}
		online := Online(a, now)
		o.Online = o.Online || online
		shown := Agent{PoolAgent: a, Online: online}
		if i := slices.IndexFunc(drains, func(d store.DrainedAgent) bool { return d.AgentID == a.AgentID }); i >= 0 {
			shown.Drain = &drains[i]
		}
		o.Agents = append(o.Agents, shown)
	}
	return o, nil
}

func recordPool(ctx context.Context, tx *store.Tx, action audit.Action, pool store.AgentPool) error {
	return audit.Record(ctx, tx, audit.Entry{OrgID: pool.OrgID, Action: action, Subject: audit.Subject{Kind: "pool", ID: pool.ID, Name: pool.Name}})
}

// Rename changes a pool's name, description or both; nil keeps the current value.
func (s *Service) Rename(ctx context.Context, orgID, id string, name, description *string) (store.AgentPool, error) {
	var pool store.AgentPool
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		var err error
		if pool, err = tx.Pool(orgID, id); err != nil {
			return err
		}
		if name != nil {
			pool.Name = *name
		}
		if description != nil {
			pool.Description = *description
		}
		if pool.Name, err = checkNames(pool.Name, pool.Description); err != nil {
			return err
		}
		if _, err := checkFree(tx, pool); err != nil {
			return err
		}
		changed(tx, orgID, id)
		if err := tx.RenamePool(pool); err != nil {
			return err
		}
		return recordPool(ctx, tx, audit.PoolChanged, pool)
	})
	return pool, notFound(err, id)
}

// SetDefault sets the default pool, which serves stacks that name no pool. The id "" removes the
// default. Queued jobs that did not request a pool by name move to the new default pool.
func (s *Service) SetDefault(ctx context.Context, orgID, id string) error {
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if id != "" {
			if _, err := tx.Pool(orgID, id); err != nil {
				return store.IfMissing(err, fault.Invalid("agent pool '%s' does not exist in this organization", id))
			}
		}
		if err := chooseDefault(tx, orgID, id); err != nil {
			return err
		}
		return recordPool(ctx, tx, audit.PoolDefaultSet, store.AgentPool{ID: id, OrgID: orgID})
	})
	if err == nil {
		err = s.moveQueued(ctx, orgID, id)
	}
	return fault.While(err, "setting the default agent pool")
}

// moveQueued moves the queued jobs that use the default pool to the new default pool, in several
// transactions. It stops if the default changes again.
func (s *Service) moveQueued(ctx context.Context, orgID, id string) error {
	return s.db.WriteInPieces(ctx, scope.Organization(orgID), func(tx *store.Tx, limit int) (int64, error) {
		queue, err := tx.OrgQueue(orgID)
		if err != nil || queue.DefaultPool != id {
			return 0, err
		}
		tx.Notify(QueueTopic, OrgPayload(orgID))
		return tx.MoveQueuedJobs(orgID, id, limit)
	})
}

// Settings returns a settings document without the pool that was deleted.
type Settings func(document string) (string, error)

// Delete removes a pool and its tokens. It requires force if stacks, also deleted ones, name the pool, or if the pool's
// queue or agents are busy. It requires none for the organization's default pool, so that a program
// can delete every pool that it created. Stacks that name the pool then use the default pool, and
// running jobs finish. Delete removes dependents first, in several transactions.
func (s *Service) Delete(ctx context.Context, orgID, id string, force bool, forget Settings) error {
	err := s.db.WriteInPieces(ctx, scope.Organization(orgID), func(tx *store.Tx, limit int) (int64, error) {
		use, err := tx.PoolUse(id)
		if err != nil {
			return 0, err
		}
		queue, err := tx.OrgQueue(orgID)
		if err != nil {
			return 0, err
		}
		pool, err := tx.Pool(orgID, id)
		if err != nil {
			return 0, err
		}
		if !force && use != (store.PoolUse{}) {
			then := "let them fall back to the default pool"
			if queue.DefaultPool == id {
				then = "leave the organization without a default pool; deployments without a pool then wait until you select one"
			}
			return 0, fault.Wrap(fault.KindInvalid, &InUseError{describeUse(use)}, "Agent pool is in use: %s; delete it with force=true to %s", describeUse(use), then)
		}
		if queue.DefaultPool == id {
			queue.DefaultPool = ""
			if err := tx.SaveOrgQueue(queue); err != nil {
				return 0, err
			}
		}
		// Delete the tokens first, so that the pool's agents cannot poll again.
		if err := tx.DeleteTokensOfPool(id); err != nil {
			return 0, err
		}
		for _, take := range []func() (int64, error){
			func() (int64, error) { return release(tx, id, limit, forget) },
			func() (int64, error) { return tx.UnpinQueuedJobs(id, queue.DefaultPool, limit) },
			func() (int64, error) { return tx.DeleteAgents(id, limit) },
			func() (int64, error) { return 0, tx.ReleaseGroups(id) },
		} {
			if n, err := take(); err != nil || n >= int64(limit) {
				return n, err
			}
		}
		tx.Notify(QueueTopic, OrgPayload(orgID))
		tx.Notify(identity.PoolTokenTopic, orgID)
		changed(tx, orgID, "")
		if err := tx.DeletePool(orgID, id); err != nil {
			return 0, err
		}
		return 0, recordPool(ctx, tx, audit.PoolDeleted, pool)
	})
	return notFound(err, id)
}

func release(tx *store.Tx, id string, limit int, forget Settings) (int64, error) {
	rows, err := tx.SettingsOfPool(id, limit)
	if err != nil {
		return 0, err
	}
	for _, row := range rows {
		if row.Document, err = forget(row.Document); err != nil {
			return 0, err
		}
		row.PoolID = ""
		row.Version++
		row.UpdatedAt = tx.Now()
		if err := tx.SaveDeploymentSettings(row); err != nil {
			return 0, err
		}
	}
	return int64(len(rows)), nil
}

// InUseError is the cause of the refusal to delete a pool.
type InUseError struct {
	// By is what uses the pool, in words.
	By string
}

func (e *InUseError) Error() string { return "the agent pool is in use: " + e.By }

func describeUse(u store.PoolUse) string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(u.Settings, "stacks select it in their settings")
	add(u.Deleted, "deleted stacks, which can be restored, select it in their settings")
	add(u.Queued, "deployments wait for it")
	add(u.Active, "deployments run on it")
	add(u.Groups, "policy groups select it for their evaluations")
	return strings.Join(parts, ", ")
}
