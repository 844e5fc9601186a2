package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// QueueEntry is a job that is queued, claimed or running, as lists and explanations show it.
type QueueEntry struct {
	JobID         string `read:"j.id"`
	DeploymentID  string `read:"j.deployment_id"`
	StackID       string `read:"j.stack_id"`
	PoolID        string `read:"j.pool_id"`
	Project       string `read:"COALESCE(s.project, d.project)"`
	Stack         string `read:"COALESCE(s.name, d.stack)"`
	Version       int64  `read:"j.version"`
	Operation     workflow.Operation
	Status        workflow.Status `read:"j.status"`
	Requester     string          `read:"d.requester"`
	AgentID       string          `read:"j.agent_id"`
	AgentHostname string          `read:"j.agent_hostname"`
	QueuedAt      time.Time       `read:"j.queued_at"`
	ClaimedAt     time.Time       `read:"j.claimed_at"`
	StartedAt     time.Time       `read:"j.started_at"`
	Group         string          `read:"j.concurrency_group"` // see [Job]
}

const fromQueue = "jobs j JOIN deployments d ON d.id = j.deployment_id LEFT JOIN live_stacks s ON s.id = j.stack_id"

var queueEntries = database.NewTable[QueueEntry](fromQueue)

// among returns an IN condition for a column, and the arguments with the values.
func among(column string, values []string, args []any) (string, []any) {
	if len(values) == 0 {
		return "1 = 0", args
	}
	marks := make([]string, len(values))
	for i, value := range values {
		args = append(args, value)
		marks[i] = fmt.Sprintf("$%d", len(args))
	}
	return column + " IN (" + strings.Join(marks, ", ") + ")", args
}

// FirstOfStacks returns, for each of the stacks, the claimed and running jobs. For a stack without
// one, it returns the first queued job.
func (tx *Tx) FirstOfStacks(stackIDs []string) ([]QueueEntry, error) {
	where, args := among("j.stack_id", stackIDs, nil)
	active, err := queueEntries.All(tx.Tx, "WHERE "+where+" AND j.status IN ('accepted', 'running') ORDER BY j.version", args...)
	if err != nil {
		return nil, err
	}
	queued, err := queueEntries.All(tx.Tx, "WHERE "+where+` AND j.status = 'not-started'
		AND NOT EXISTS (SELECT 1 FROM jobs q WHERE q.stack_id = j.stack_id AND q.status = 'not-started' AND q.version < j.version)
		AND NOT EXISTS (SELECT 1 FROM jobs a WHERE a.stack_id = j.stack_id AND a.status IN ('accepted', 'running'))`, args...)
	return append(active, queued...), err
}

// HoldersOfGroups returns the jobs because of which no other job of groups of an organization can start: the
// claimed and running ones, and lost ones that block their stacks. A reach selects those that a caller can
// see; nil selects all.
func (tx *Tx) HoldersOfGroups(orgID string, groups []string, reach *Reach) ([]QueueEntry, error) {
	where, args := "WHERE j.org_id = $1", []any{orgID}
	if reach != nil {
		if where, args = ofOrg("j", orgID, *reach); where == "" {
			return nil, nil
		}
	}
	in, args := among("j.concurrency_group", groups, args)
	where += " AND " + in + " AND j.concurrency_group <> '' AND "
	active, err := queueEntries.All(tx.Tx, where+"j.status IN ('accepted', 'running') ORDER BY j.claimed_at, j.id", args...)
	if err != nil {
		return nil, err
	}
	lost, err := queueEntries.All(tx.Tx, where+"j.deployment_id IN (SELECT blocked_by FROM stack_queues WHERE blocked_by <> '') ORDER BY j.claimed_at, j.id", args...)
	return append(active, lost...), err
}

// QueuedOfGroups returns the first queued jobs of groups of an organization, in the order of their requests,
// by the name of the group. It omits those of paused stacks.
func (tx *Tx) QueuedOfGroups(orgID string, groups []string, limit int) (map[string][]QueuedJob, error) {
	in, args := among("j.concurrency_group", groups, []any{orgID})
	list, err := queuedJobs.All(tx.Tx, "WHERE j.org_id = $1 AND j.status = 'not-started' AND "+in+fmt.Sprintf(` AND j.concurrency_group <> ''
		AND NOT EXISTS (SELECT 1 FROM stack_queues w WHERE w.stack_id = j.stack_id AND w.paused = 1) ORDER BY j.queued_at, j.id LIMIT %d`, limit), args...)
	out := map[string][]QueuedJob{}
	for _, job := range list {
		out[job.ConcurrencyGroup] = append(out[job.ConcurrencyGroup], job)
	}
	return out, err
}

// QueuedBefore returns the number of queued jobs of the same stack before each of the queued jobs,
// by the id of the job. It omits jobs that are the first of their stack.
func (tx *Tx) QueuedBefore(jobIDs []string) (map[string]int64, error) {
	where, args := among("j.id", jobIDs, nil)
	return database.Pairs[string, int64](tx.Tx, `SELECT j.id, COUNT(*) FROM jobs j JOIN jobs q ON q.stack_id = j.stack_id
		AND q.status = 'not-started' AND q.version < j.version WHERE j.status = 'not-started' AND `+where+" GROUP BY j.id", args...)
}

// StackQueues returns the stored queues of stacks.
func (tx *Tx) StackQueues(stackIDs []string) ([]StackQueue, error) {
	where, args := among("stack_id", stackIDs, nil)
	return stackQueues.All(tx.Tx, "WHERE "+where, args...)
}

// Presence summarizes the agents and the queue of a pool.
type Presence struct {
	PoolID   string
	Agents   int64
	Online   int64
	Slots    int64 // jobs that the online agents can run at once, except those of drained agents
	Busy     int64 // online agents that run jobs, are drained or cannot start jobs
	Drained  int64 // online agents that are drained
	LastSeen time.Time
	Active   int64 // claimed and running jobs, also policy evaluations
	Queued   int64
	Oldest   time.Time // time at which the first queued job was queued; zero without one
}

// isDrained is the condition that the agent a is drained.
const isDrained = "EXISTS (SELECT 1 FROM drained_agents d WHERE d.pool_id = a.pool_id AND d.agent_id = a.agent_id)"

// Presences returns a summary of each pool of an organization, by the id of the pool. An agent is
// online if its session has not ended, and if it has been silent for at most silence or for at most
// twice its announced pause.
func (tx *Tx) Presences(orgID string, silence time.Duration) (map[string]Presence, error) {
	out := map[string]Presence{}
	list, err := database.Collect(tx.Tx, func(scan database.Scan) (p Presence, err error) {
		var seen int64
		err = scan(&p.PoolID, &p.Agents, &p.Online, &p.Slots, &p.Drained, &p.Busy, &seen)
		p.LastSeen = micro(seen)
		return p, err
	}, `SELECT a.pool_id, COUNT(*), CAST(SUM(CASE WHEN `+online+` THEN 1 ELSE 0 END) AS BIGINT), CAST(SUM(CASE WHEN `+online+` AND NOT `+isDrained+` THEN a.slots ELSE 0 END) AS BIGINT),
		CAST(SUM(CASE WHEN `+online+` AND `+isDrained+` THEN 1 ELSE 0 END) AS BIGINT),
		CAST(SUM(CASE WHEN `+online+` AND (a.slots = 0 OR `+isDrained+` OR EXISTS (SELECT 1 FROM jobs j WHERE j.org_id = p.org_id AND j.status IN ('accepted', 'running')
			AND j.pool_id = a.pool_id AND j.agent_id = a.agent_id) OR EXISTS (SELECT 1 FROM policy_evaluations e WHERE e.org_id = p.org_id AND e.status IN ('accepted', 'running')
			AND e.pool_id = a.pool_id AND e.agent_id = a.agent_id)) THEN 1 ELSE 0 END) AS BIGINT), MAX(a.last_seen_at)
		FROM agent_pools p JOIN pool_agents a ON a.pool_id = p.id WHERE p.org_id = $1 GROUP BY a.pool_id`,
		orgID, tx.Now(), silence)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		out[p.PoolID] = p
	}
	active, err := database.Pairs[string, int64](tx.Tx, `SELECT n.pool_id, COUNT(*) FROM (
		SELECT pool_id FROM jobs WHERE org_id = $1 AND status IN ('accepted', 'running')
		UNION ALL SELECT pool_id FROM policy_evaluations WHERE org_id = $1 AND status IN ('accepted', 'running')) n GROUP BY n.pool_id`, orgID)
	if err != nil {
		return nil, err
	}
	for id, n := range active {
		p := out[id]
		p.PoolID, p.Active = id, n
		out[id] = p
	}
	queued, err := database.Collect(tx.Tx, func(scan database.Scan) (p Presence, err error) {
		var oldest int64
		err = scan(&p.PoolID, &p.Queued, &oldest)
		p.Oldest = micro(oldest)
		return p, err
	}, "SELECT pool_id, COUNT(*), MIN(queued_at) FROM jobs WHERE org_id = $1 AND status = 'not-started' GROUP BY pool_id", orgID)
	for _, q := range queued {
		p := out[q.PoolID]
		p.PoolID, p.Queued, p.Oldest = q.PoolID, q.Queued, q.Oldest
		out[q.PoolID] = p
	}
	return out, err
}

// online is the condition on an agent a that it is online at $2 after at most $3 microseconds of silence.
const online = `(a.live_until > 0 AND ($2 - a.last_seen_at <= $3 OR $2 - a.last_seen_at <= 2 * a.every_us))`

// CountJobsByAgent returns the number of jobs that each agent of a pool has finished since a time.
func (tx *Tx) CountJobsByAgent(p AgentPool, since time.Time) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, `SELECT agent_id, COUNT(*) FROM jobs
		WHERE pool_id = $1 AND ended_at >= $2 AND started_at > 0 GROUP BY agent_id`, p.ID, since)
}

// micro returns a stored time; the zero time for 0.
func micro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// LastAgent returns the agent of a pool that was seen last.
func (tx *Tx) LastAgent(poolID string) (PoolAgent, error) {
	return agents.One(tx.Tx, "WHERE pool_id = $1 ORDER BY last_seen_at DESC, agent_id LIMIT 1", poolID)
}

// usualRuns is the number of a stack's newest deployments from which [Tx.UsualTime] is derived.
const usualRuns = 20

// UsualTime returns the median run time of a stack's newest succeeded deployments of an operation,
// or 0 if there are fewer than three.
func (tx *Tx) UsualTime(stackID string, op workflow.Operation) (time.Duration, error) {
	times, err := database.Scalars[int64](tx.Tx, fmt.Sprintf(`SELECT j.ended_at - j.started_at FROM
		(SELECT id FROM deployments WHERE stack_id = $1 AND created_at >= 0 ORDER BY created_at DESC, id LIMIT %d) d
		JOIN jobs j ON j.deployment_id = d.id WHERE j.status = 'succeeded' AND j.operation = $2 AND j.started_at > 0
		ORDER BY 1`, usualRuns), stackID, op)
	if err != nil || len(times) < 3 {
		return 0, err
	}
	return time.Duration(times[len(times)/2]) * time.Microsecond, nil
}

// ActiveJobs returns an organization's longest claimed and running jobs of the stacks that a caller
// can see. poolID "" selects all pools.
func (tx *Tx) ActiveJobs(orgID, poolID string, reach Reach, limit int) ([]QueueEntry, error) {
	where, args := ofOrgEach("j", orgID, reach)
	if where == "" {
		return nil, nil
	}
	where += " AND j.status IN ('accepted', 'running')"
	if poolID != "" {
		args = append(args, poolID)
		where += fmt.Sprintf(" AND j.pool_id = $%d", len(args))
	}
	return queueEntries.All(tx.Tx, where+fmt.Sprintf(" ORDER BY j.claimed_at, j.id LIMIT %d", limit), args...)
}

// PoolRef names a pool.
type PoolRef struct {
	ID    string `read:"p.id"`
	OrgID string `read:"p.org_id"`
}

var poolRefs = database.NewTable[PoolRef]("agent_pools p")

// SilentPools returns the pools with agents that went offline by silence after one time and not after
// another. See [Tx.Presences] for silence.
func (tx *Tx) SilentPools(after, until time.Time, silence time.Duration) ([]PoolRef, error) {
	return poolRefs.All(tx.Tx, `WHERE p.id IN (SELECT a.pool_id FROM pool_agents a WHERE a.live_until > 0
		AND a.last_seen_at + CASE WHEN 2 * a.every_us > $3 THEN 2 * a.every_us ELSE $3 END BETWEEN $1 AND $2)`, after, until, silence)
}

// StacksByPool returns the number of an organization's stacks whose settings name a pool, by the id
// of the pool.
func (tx *Tx) StacksByPool(orgID string) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, `SELECT d.pool_id, COUNT(*) FROM agent_pools p JOIN deployment_settings d ON d.pool_id = p.id
		JOIN live_stacks s ON s.id = d.stack_id
		WHERE p.org_id = $1 GROUP BY d.pool_id`, orgID)
}
