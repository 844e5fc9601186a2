package store

import (
	"fmt"
	"time"
)

// AgentPool is a group of agents that share a token and a queue.
type AgentPool struct {
	ID, OrgID, Name, Description string
	CreatedAt                    time.Time
	LastSeenAt                   time.Time // of any of its agents
	LastJobAt                    time.Time // when the pool last claimed a job
}

const poolColumns = "id, org_id, name, description, created_at, last_seen_at, last_job_at"

func readPool(scan scanFunc) (AgentPool, error) {
	var p AgentPool
	var created, seen, job int64
	err := scan(&p.ID, &p.OrgID, &p.Name, &p.Description, &created, &seen, &job)
	p.CreatedAt, p.LastSeenAt, p.LastJobAt = fromMicros(created), fromMicros(seen), fromMicros(job)
	return p, err
}

// InsertPool adds a pool.
func (tx *Tx) InsertPool(p AgentPool) error {
	_, err := tx.exec("INSERT INTO agent_pools ("+poolColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7)",
		p.ID, p.OrgID, p.Name, p.Description, micros(p.CreatedAt), micros(p.LastSeenAt), micros(p.LastJobAt))
	return err
}

// Pool returns a pool of an organization.
func (tx *Tx) Pool(orgID, id string) (AgentPool, error) {
	return one(tx, readPool, "SELECT "+poolColumns+" FROM agent_pools WHERE id = $1 AND org_id = $2", id, orgID)
}

// Pools returns the pools of an organization, oldest first.
func (tx *Tx) Pools(orgID string) ([]AgentPool, error) {
	return collect(tx, readPool, "SELECT "+poolColumns+" FROM agent_pools WHERE org_id = $1 ORDER BY created_at, id", orgID)
}

// RenamePool updates a pool's name and description.
func (tx *Tx) RenamePool(orgID, id, name, description string) error {
	return tx.execOne("UPDATE agent_pools SET name = $3, description = $4 WHERE id = $1 AND org_id = $2", id, orgID, name, description)
}

// DeletePool removes a pool and its agents. The caller removes its tokens.
func (tx *Tx) DeletePool(orgID, id string) error {
	return tx.execOne("DELETE FROM agent_pools WHERE id = $1 AND org_id = $2", id, orgID)
}

// TouchPool records when a pool last claimed a job.
func (tx *Tx) TouchPool(id string, at time.Time) error {
	return tx.execOne("UPDATE agent_pools SET last_job_at = $2 WHERE id = $1", id, micros(at))
}

// PoolUse counts what depends on a pool.
type PoolUse struct {
	Settings int64 // stacks whose settings name it
	Queued   int64 // queued deployments that request it by name
	Active   int64 // deployments it runs
}

// PoolUse counts what depends on a pool.
func (tx *Tx) PoolUse(id string) (PoolUse, error) {
	var u PoolUse
	err := tx.queryOne(`SELECT
		(SELECT COUNT(*) FROM deployment_settings WHERE pool_id = $1),
		(SELECT COUNT(*) FROM jobs WHERE pool_id = $1 AND status = 'not-started'),
		(SELECT COUNT(*) FROM jobs WHERE pool_id = $1 AND status IN ('accepted', 'running'))`,
		[]any{id}, &u.Settings, &u.Queued, &u.Active)
	return u, err
}

// OrgQueue holds an organization's settings for all its queues.
type OrgQueue struct {
	OrgID       string
	Paused      bool
	DefaultPool string // "" for none
}

// OrgQueue returns an organization's queue settings, the zero settings if it has none.
func (tx *Tx) OrgQueue(orgID string) (OrgQueue, error) {
	return optional(tx, OrgQueue{OrgID: orgID}, func(scan scanFunc) (OrgQueue, error) {
		q := OrgQueue{OrgID: orgID}
		var paused int64
		err := scan(&paused, &q.DefaultPool)
		q.Paused = paused != 0
		return q, err
	}, "SELECT paused, default_pool FROM org_queues WHERE org_id = $1", orgID)
}

// SaveOrgQueue stores an organization's queue settings.
func (tx *Tx) SaveOrgQueue(q OrgQueue) error {
	_, err := tx.exec(`INSERT INTO org_queues (org_id, paused, default_pool) VALUES ($1, $2, $3)
		ON CONFLICT (org_id) DO UPDATE SET paused = excluded.paused, default_pool = excluded.default_pool`,
		q.OrgID, flag(q.Paused), q.DefaultPool)
	return err
}

// optional is one, but returns none if no row matches.
func optional[T any](tx *Tx, none T, read func(scanFunc) (T, error), query string, args ...any) (T, error) {
	all, err := collect(tx, read, query, args...)
	if err != nil || len(all) == 0 {
		return none, err
	}
	return all[0], nil
}

// PoolAgent is the last known state of an agent.
type PoolAgent struct {
	PoolID, AgentID, SessionID string
	Hostname, IP, PID          string
	Platform, Version          string
	Every                      time.Duration // the longest pause it announced
	LiveUntil                  time.Time     // until then, another session of the id is refused
	LastSeenAt                 time.Time
}

const agentColumns = "pool_id, agent_id, session_id, hostname, ip, pid, platform, version, every_us, live_until, last_seen_at"

func readAgent(scan scanFunc) (PoolAgent, error) {
	var a PoolAgent
	var every, live, seen int64
	err := scan(&a.PoolID, &a.AgentID, &a.SessionID, &a.Hostname, &a.IP, &a.PID, &a.Platform, &a.Version, &every, &live, &seen)
	a.Every, a.LiveUntil, a.LastSeenAt = time.Duration(every)*time.Microsecond, fromMicros(live), fromMicros(seen)
	return a, err
}

// SaveAgent stores an agent and its pool's sign of life, or returns [ErrNotFound] without the pool.
func (tx *Tx) SaveAgent(a PoolAgent) error {
	if err := tx.execOne("UPDATE agent_pools SET last_seen_at = $2 WHERE id = $1", a.PoolID, micros(a.LastSeenAt)); err != nil {
		return err
	}
	_, err := tx.exec("INSERT INTO pool_agents ("+agentColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (pool_id, agent_id) DO UPDATE SET session_id = excluded.session_id, hostname = excluded.hostname,
		ip = excluded.ip, pid = excluded.pid, platform = excluded.platform, version = excluded.version,
		every_us = excluded.every_us, live_until = excluded.live_until, last_seen_at = excluded.last_seen_at`,
		a.PoolID, a.AgentID, a.SessionID, a.Hostname, a.IP, a.PID, a.Platform, a.Version,
		a.Every.Microseconds(), micros(a.LiveUntil), micros(a.LastSeenAt))
	return err
}

// Agent returns an agent of a pool.
func (tx *Tx) Agent(poolID, agentID string) (PoolAgent, error) {
	return one(tx, readAgent, "SELECT "+agentColumns+" FROM pool_agents WHERE pool_id = $1 AND agent_id = $2", poolID, agentID)
}

// Agents returns the agents of a pool, ordered by host name.
func (tx *Tx) Agents(poolID string) ([]PoolAgent, error) {
	return collect(tx, readAgent, "SELECT "+agentColumns+" FROM pool_agents WHERE pool_id = $1 ORDER BY hostname, agent_id", poolID)
}

// EndSession records the end of one session of an agent; other sessions continue.
func (tx *Tx) EndSession(poolID, agentID, sessionID string) error {
	_, err := tx.exec("UPDATE pool_agents SET live_until = 0 WHERE pool_id = $1 AND agent_id = $2 AND session_id = $3", poolID, agentID, sessionID)
	return err
}

// TouchAgent records a sign of life of an agent that reports a job.
func (tx *Tx) TouchAgent(poolID, agentID string, at time.Time) error {
	_, err := tx.exec("UPDATE pool_agents SET last_seen_at = $3 WHERE pool_id = $1 AND agent_id = $2 AND last_seen_at < $3", poolID, agentID, micros(at))
	return err
}

// ForgetAgents removes at most limit agents last seen before a time and returns their number.
func (tx *Tx) ForgetAgents(before time.Time, limit int) (int64, error) {
	return tx.exec(fmt.Sprintf(`DELETE FROM pool_agents WHERE (pool_id, agent_id) IN (
		SELECT pool_id, agent_id FROM pool_agents WHERE last_seen_at < $1 LIMIT %d)`, limit), micros(before))
}

// DeleteAgents removes at most limit agents of a pool and returns their number.
func (tx *Tx) DeleteAgents(poolID string, limit int) (int64, error) {
	return tx.exec(fmt.Sprintf(`DELETE FROM pool_agents WHERE (pool_id, agent_id) IN (
		SELECT pool_id, agent_id FROM pool_agents WHERE pool_id = $1 LIMIT %d)`, limit), poolID)
}
