package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// AgentRun is a finished deployment of an agent.
type AgentRun struct {
	AgentID string
	Run
}

// RunsOfAgents returns the last finished deployments of a pool's agents, newest first, of the stacks that a caller can see.
// It reads at most limit deployments.
func (tx *Tx) RunsOfAgents(p AgentPool, reach Reach, limit int) ([]AgentRun, error) {
	where, args := ofOrgEach("j", p.OrgID, reach)
	if where == "" {
		return nil, nil
	}
	args = append(args, p.ID)
	return database.Collect(tx.Tx, func(scan database.Scan) (r AgentRun, err error) {
		var status workflow.Status
		var reason workflow.Reason
		var drift, took int64
		err = scan(&r.AgentID, &r.Number, &status, &reason, &drift, &took)
		r.Deployment, r.Took, r.Result = true, time.Duration(took)*time.Microsecond, RunFailed
		switch {
		case reason == workflow.ReasonCancelled || status == workflow.StatusSkipped:
			r.Result = RunCancelled
		case drift > 0:
			r.Result = RunDrift
		case status == workflow.StatusSucceeded:
			r.Result = RunSucceeded
		}
		return r, err
	}, fmt.Sprintf(`SELECT j.agent_id, j.version, j.status, j.reason, j.drift_found, j.ended_at - j.started_at
		FROM (SELECT org_id, stack_id, agent_id, version, status, reason, drift_found, started_at, ended_at FROM jobs
			WHERE pool_id = $%d AND started_at > 0 AND ended_at > 0 ORDER BY ended_at DESC LIMIT %d) j %s ORDER BY j.ended_at DESC`, len(args), limit, where), args...)
}

// movable is the condition on a job j that [Tx.MoveQueue] moves it from the pool $1. The code of a pull request is not
// reviewed, and must not get to agents that nobody has chosen for it.
const movable = "j.pool_id = $1 AND j.status = 'not-started' AND NOT " + ofPull

const ofPull = "EXISTS (SELECT 1 FROM vcs_checkouts c WHERE c.deployment_id = j.deployment_id AND c.pull > 0)"

// MoveQueue moves up to limit queued jobs of a pool to another one, except those of pull requests, and returns their
// number. They no longer follow the default pool.
func (tx *Tx) MoveQueue(fromPool, toPool string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`UPDATE jobs SET pool_id = $2, pool_pinned = 1 WHERE status = 'not-started' AND id IN (SELECT j.id FROM jobs j
		WHERE `+movable+` LIMIT %d)`, limit), fromPool, toPool)
}

// CountQueuedPulls returns the number of queued jobs of a pool that [Tx.MoveQueue] leaves there.
func (tx *Tx) CountQueuedPulls(p AgentPool) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM jobs j WHERE j.org_id = $1 AND j.pool_id = $2 AND j.status = 'not-started' AND "+ofPull, p.OrgID, p.ID)
}
