package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// AgentPool is a group of agents that share a token and a queue.
type AgentPool struct {
	ID, OrgID, Name, Description string
	CreatedAt                    time.Time
	LastSeenAt                   time.Time // last sign of life of any agent in the pool
	LastJobAt                    time.Time // time of the pool's last claim
	BuiltIn                      bool      // the pool of the server's own runners
}

var (
	pools     = database.NewTable[AgentPool]("agent_pools")
	agents    = database.NewTable[PoolAgent]("pool_agents")
	orgQueues = database.NewTable[OrgQueue]("org_queues")
)

// InsertPool adds a pool.
func (tx *Tx) InsertPool(p AgentPool) error { return pools.Insert(tx.Tx, p) }

// Pool returns an organization's pool by its id.
func (tx *Tx) Pool(orgID, id string) (AgentPool, error) {
	return pools.One(tx.Tx, "WHERE id = $1 AND org_id = $2", id, orgID)
}

// Pools returns the pools of an organization, oldest first.
func (tx *Tx) Pools(orgID string) ([]AgentPool, error) {
	return pools.All(tx.Tx, "WHERE org_id = $1 ORDER BY created_at, id", orgID)
}

// RenamePool updates a pool's name and description.
func (tx *Tx) RenamePool(p AgentPool) error { return pools.Update(tx.Tx, p, "name", "description") }

// DeletePool removes a pool and its agents. The caller removes its tokens.
func (tx *Tx) DeletePool(orgID, id string) error {
	return tx.ExecOne("DELETE FROM agent_pools WHERE id = $1 AND org_id = $2", id, orgID)
}

// TouchPool records, with a precision of a second, when a pool last claimed a job.
func (tx *Tx) TouchPool(id string, at time.Time) error {
	_, err := tx.Exec("UPDATE agent_pools SET last_job_at = $2 WHERE id = $1 AND last_job_at <= $3", id, at, at.Add(-time.Second))
	return err
}

// PoolUse is the number of a pool's dependents, by kind.
type PoolUse struct {
	Settings int64 // stacks whose settings name the pool
	Deleted  int64 // deleted stacks whose settings name the pool, and which can be restored
	Queued   int64 // queued deployments that request the pool by name
	Active   int64 // deployments that run on the pool
	Groups   int64 // policy groups whose evaluations run on the pool
}

// PoolUse returns the number of a pool's dependents.
func (tx *Tx) PoolUse(id string) (PoolUse, error) {
	return database.One(tx.Tx, func(scan database.Scan) (u PoolUse, err error) {
		err = scan(&u.Settings, &u.Deleted, &u.Queued, &u.Active, &u.Groups)
		return u, err
	}, `SELECT
		(SELECT COUNT(*) FROM deployment_settings d JOIN live_stacks s ON s.id = d.stack_id WHERE d.pool_id = $1),
		(SELECT COUNT(*) FROM deployment_settings d JOIN deleted_stacks x ON x.stack_id = d.stack_id WHERE d.pool_id = $1 AND x.purged = 0),
		(SELECT COUNT(*) FROM jobs WHERE pool_id = $1 AND status = 'not-started'),
		(SELECT COUNT(*) FROM jobs WHERE pool_id = $1 AND status IN ('accepted', 'running')),
		(SELECT COUNT(*) FROM policy_groups WHERE pool_id = $1)`, id)
}

// OrgQueue holds an organization's settings for all its queues.
type OrgQueue struct {
	OrgID       string
	Paused      bool
	DefaultPool string // "" for none
	PausedBy    string // name of the user who paused the queues; "" if they are not paused, or if it is not recorded
	PausedAt    time.Time
}

// OrgQueue returns an organization's queue settings, or the zero settings if none are stored.
func (tx *Tx) OrgQueue(orgID string) (OrgQueue, error) {
	q, err := orgQueues.One(tx.Tx, "WHERE org_id = $1", orgID)
	q.OrgID = orgID
	return q, IgnoreMissing(err)
}

// SaveOrgQueue stores an organization's queue settings.
func (tx *Tx) SaveOrgQueue(q OrgQueue) error { return orgQueues.Save(tx.Tx, q, "org_id") }

// PoolAgent is the last known state of an agent.
type PoolAgent struct {
	PoolID, AgentID, SessionID string
	Hostname, IP, PID          string
	Platform, Version          string
	Slots                      int64         // number of jobs that the agent can run at once; 0 while it cannot start jobs
	Every                      time.Duration `db:"every_us"` // longest pause between polls that the agent announced
	LiveUntil                  time.Time     // time until which other sessions with the same id are rejected
	LastSeenAt                 time.Time
}

// AgentVersions returns the number of agents with each version that were seen since a time.
func (tx *Tx) AgentVersions(since time.Time) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, "SELECT version, COUNT(*) FROM pool_agents WHERE last_seen_at >= $1 GROUP BY version", since)
}

// DrainedAgent is an agent to which the server hands out no jobs.
type DrainedAgent struct {
	PoolID, AgentID string
	DrainedBy       string // name of the administrator
	DrainedAt       time.Time
}

var drainedAgents = database.NewTable[DrainedAgent]("drained_agents")

// SaveDrain records that an agent is drained.
func (tx *Tx) SaveDrain(d DrainedAgent) error {
	return drainedAgents.Save(tx.Tx, d, "pool_id, agent_id")
}

// DeleteDrain records that an agent is not drained any more, or returns [ErrNotFound].
func (tx *Tx) DeleteDrain(poolID, agentID string) error {
	return tx.ExecOne("DELETE FROM drained_agents WHERE pool_id = $1 AND agent_id = $2", poolID, agentID)
}

// Drains returns the drained agents of a pool.
func (tx *Tx) Drains(poolID string) ([]DrainedAgent, error) {
	return drainedAgents.All(tx.Tx, "WHERE pool_id = $1", poolID)
}

// Drained reports whether an agent is drained.
func (tx *Tx) Drained(poolID, agentID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM drained_agents WHERE pool_id = $1 AND agent_id = $2", poolID, agentID)
	return n > 0, err
}

// SaveAgent stores an agent and, as [Tx.SeePools] does, its pool's last sign of life. It returns
// [ErrNotFound] if the pool does not exist.
func (tx *Tx) SaveAgent(a PoolAgent) error {
	if _, err := database.Scalar[int64](tx.Tx, "SELECT last_seen_at FROM agent_pools WHERE id = $1", a.PoolID); err != nil {
		return err
	}
	if err := agents.Save(tx.Tx, a, "pool_id, agent_id"); err != nil {
		return err
	}
	return tx.SeePools(a.LastSeenAt, a.PoolID)
}

// RenewAgents stores later signs of life of sessions. It returns those of list whose row belongs to the
// session. Agents can poll two servers by turns, which then renew the same agents: each locks the rows in the
// order of their keys.
func (tx *Tx) RenewAgents(list []PoolAgent) (renewed []PoolAgent, err error) {
	var rows []string
	var args []any
	for _, a := range list {
		n := len(args)
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d, CAST($%d AS BIGINT), CAST($%d AS BIGINT), CAST($%d AS BIGINT))", n+1, n+2, n+3, n+4, n+5, n+6))
		args = append(args, a.PoolID, a.AgentID, a.SessionID, a.Every, a.LiveUntil, a.LastSeenAt)
	}
	type key struct{ pool, agent string }
	found, err := database.Collect(tx.Tx, func(scan database.Scan) (k key, err error) {
		err = scan(&k.pool, &k.agent)
		return k, err
	}, `UPDATE pool_agents SET every_us = v.column4, live_until = v.column5, last_seen_at = v.column6
		FROM (SELECT v.* FROM (VALUES `+strings.Join(rows, ", ")+`) v
			JOIN pool_agents a ON a.pool_id = v.column1 AND a.agent_id = v.column2 AND a.session_id = v.column3
			ORDER BY v.column1, v.column2`+tx.InOrder("a")+`) v
		WHERE pool_id = v.column1 AND agent_id = v.column2 AND session_id = v.column3 RETURNING pool_id, agent_id`, args...)
	for _, a := range list {
		if slices.Contains(found, key{a.PoolID, a.AgentID}) {
			renewed = append(renewed, a)
		}
	}
	return renewed, err
}

// SeePools records, with a precision of a second, a sign of life of agents of pools. Like [Tx.RenewAgents], it
// locks the rows in the order of their keys.
func (tx *Tx) SeePools(at time.Time, ids ...string) error {
	where, args := among("p.id", ids, []any{at, at.Add(-time.Second)})
	_, err := tx.Exec("UPDATE agent_pools SET last_seen_at = $1 WHERE id IN (SELECT p.id FROM agent_pools p WHERE p.last_seen_at <= $2 AND "+
		where+" ORDER BY p.id"+tx.InOrder("p")+")", args...)
	return err
}

// Agent returns a pool's agent by its id.
func (tx *Tx) Agent(poolID, agentID string) (PoolAgent, error) {
	return agents.One(tx.Tx, "WHERE pool_id = $1 AND agent_id = $2", poolID, agentID)
}

// Agents returns the agents of a pool, ordered by host name.
func (tx *Tx) Agents(poolID string) ([]PoolAgent, error) {
	return agents.All(tx.Tx, "WHERE pool_id = $1 ORDER BY hostname, agent_id", poolID)
}

// EndSession records that the session of a has ended, unless another write has renewed it since a was read, or
// another session has replaced it. It reports whether it has.
func (tx *Tx) EndSession(a PoolAgent) (bool, error) {
	n, err := tx.Exec("UPDATE pool_agents SET live_until = 0 WHERE pool_id = $1 AND agent_id = $2 AND session_id = $3 AND live_until = $4",
		a.PoolID, a.AgentID, a.SessionID, a.LiveUntil)
	return n > 0, err
}

// TouchAgent records a sign of life of an agent that sent a job callback.
func (tx *Tx) TouchAgent(poolID, agentID string, at time.Time) error {
	_, err := tx.Exec("UPDATE pool_agents SET last_seen_at = $3 WHERE pool_id = $1 AND agent_id = $2 AND last_seen_at < $3", poolID, agentID, at)
	return err
}

// ForgetAgents removes up to limit agents that were last seen before a time, and returns their
// number.
func (tx *Tx) ForgetAgents(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM pool_agents WHERE (pool_id, agent_id) IN (
		SELECT pool_id, agent_id FROM pool_agents WHERE last_seen_at < $1 LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// CountAgents returns the number of a pool's agents, but at most limit.
func (tx *Tx) CountAgents(poolID string, limit int) (int64, error) {
	return database.Scalar[int64](tx.Tx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT agent_id FROM pool_agents WHERE pool_id = $1 LIMIT %d) a", limit), poolID)
}

// ForgetOffline removes up to limit agents of a pool that are offline, those first that were seen least
// recently, and returns their number. See [Tx.SilentPools] for silence.
func (tx *Tx) ForgetOffline(poolID string, silence time.Duration, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM pool_agents WHERE (pool_id, agent_id) IN (SELECT pool_id, agent_id FROM pool_agents WHERE pool_id = $1
		AND (live_until = 0 OR last_seen_at + CASE WHEN 2 * every_us > $3 THEN 2 * every_us ELSE $3 END < $2)
		ORDER BY last_seen_at LIMIT %d%s)`, limit, tx.SkipLocked()), poolID, tx.Now(), silence)
}

// DeleteAgents removes up to limit agents of a pool, and returns their number.
func (tx *Tx) DeleteAgents(poolID string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM pool_agents WHERE (pool_id, agent_id) IN (
		SELECT pool_id, agent_id FROM pool_agents WHERE pool_id = $1 LIMIT %d)`, limit), poolID)
}

// DeploymentSettings are a stack's stored deployment settings.
type DeploymentSettings struct {
	StackID   string
	Document  string   // workflow.Settings as JSON with encrypted secrets
	Source    string   // kind of client that wrote the settings
	Version   int64    // incremented by every change
	PoolID    string   // copied from Document for queries
	Warnings  []string // what the last change contained without effect
	UpdatedAt time.Time
}

var (
	deploymentSettings = database.NewTable[DeploymentSettings]("deployment_settings")
	stackQueues        = database.NewTable[StackQueue]("stack_queues")
)

// DeploymentSettings returns a stack's settings, or [ErrNotFound].
func (tx *Tx) DeploymentSettings(stackID string) (DeploymentSettings, error) {
	return deploymentSettings.One(tx.Tx, "WHERE stack_id = $1", stackID)
}

// SettingsOfPool returns up to limit settings that name a pool, also of deleted stacks.
func (tx *Tx) SettingsOfPool(poolID string, limit int) ([]DeploymentSettings, error) {
	return deploymentSettings.All(tx.Tx, fmt.Sprintf("WHERE pool_id = $1 LIMIT %d", limit), poolID)
}

// SettingsWithRepository returns the settings of an organization's stacks that can name a repository
// of an integration.
func (tx *Tx) SettingsWithRepository(orgID string) ([]DeploymentSettings, error) {
	return deploymentSettings.All(tx.Tx, `WHERE stack_id IN (SELECT s.id FROM live_stacks s WHERE s.org_id = $1)
		AND (document LIKE '%"vcs"%' OR document LIKE '%"gitHub"%') ORDER BY stack_id`, orgID)
}

// CloudCredentials reports whether the settings of a stack can request cloud credentials.
func (tx *Tx) CloudCredentials() (bool, error) {
	return database.Scalar[bool](tx.Tx, `SELECT EXISTS (SELECT 1 FROM deployment_settings WHERE document LIKE '%"oidc":{%')`)
}

// SaveDeploymentSettings stores the settings of a stack.
func (tx *Tx) SaveDeploymentSettings(s DeploymentSettings) error {
	return deploymentSettings.Save(tx.Tx, s, "stack_id")
}

// DeleteDeploymentSettings removes the settings of a stack, or returns [ErrNotFound].
func (tx *Tx) DeleteDeploymentSettings(stackID string) error {
	return tx.ExecOne("DELETE FROM deployment_settings WHERE stack_id = $1", stackID)
}

// StackQueue is the state of a stack's queue.
type StackQueue struct {
	StackID     string
	LastVersion int64 // version of the stack's newest deployment
	Paused      bool
	BlockedBy   string // lost deployment whose update might still be running
	PausedBy    string // name of the user who paused the queue; "" if it is not paused, or if it is not recorded
	PausedAt    time.Time
	// CacheGeneration increases when what earlier deployments have kept must no longer be used.
	CacheGeneration int64
	// ConcurrencyGroup is the group in the stack's settings; see [Job].
	ConcurrencyGroup string
}

// StackQueue returns a stack's queue, or the zero queue if none is stored.
func (tx *Tx) StackQueue(stackID string) (StackQueue, error) {
	q, err := stackQueues.One(tx.Tx, "WHERE stack_id = $1", stackID)
	q.StackID = stackID
	return q, IgnoreMissing(err)
}

// BlockedQueues returns the queues that a lost deployment blocks.
func (tx *Tx) BlockedQueues() ([]StackQueue, error) {
	return stackQueues.All(tx.Tx, "WHERE blocked_by <> ''")
}

// SaveStackQueue stores the queue of a stack.
func (tx *Tx) SaveStackQueue(q StackQueue) error {
	if err := stackQueues.Save(tx.Tx, q, "stack_id"); err != nil {
		return err
	}
	return tx.queueOfEstate(q)
}

// PausedStacks returns the paused stacks that a caller can see, in the form "project/stack".
func (tx *Tx) PausedStacks(reach Reach) ([]string, error) {
	visible, args := reach.query()
	if visible == "" {
		return nil, nil
	}
	return database.Scalars[string](tx.Tx, `SELECT s.project || '/' || s.name FROM stack_queues q JOIN live_stacks s ON s.id = q.stack_id
		JOIN organizations o ON o.id = s.org_id WHERE q.paused = 1 AND `+visible+" ORDER BY s.project, s.name", args...)
}
