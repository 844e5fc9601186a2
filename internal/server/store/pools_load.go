package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// QueueLoad describes the queue of a pool.
type QueueLoad struct {
	Queued    int64     // queued jobs
	Claimable int64     // queued jobs that an agent could claim now
	Oldest    time.Time // time at which the oldest claimable job was queued; zero without one
}

// QueueLoad returns the load of a pool's queue. It counts at most limit queued jobs, oldest first.
func (tx *Tx) QueueLoad(poolID string, limit int) (QueueLoad, error) {
	return database.One(tx.Tx, func(scan database.Scan) (l QueueLoad, err error) {
		var oldest int64
		if err = scan(&l.Queued, &l.Claimable, &oldest); oldest > 0 {
			l.Oldest = time.UnixMicro(oldest)
		}
		return l, err
	}, fmt.Sprintf(`WITH j AS (SELECT stack_id, org_id, version, queued_at, concurrency_group FROM jobs
			WHERE status = 'not-started' AND pool_id = $1 ORDER BY queued_at, id LIMIT %d)
		SELECT (SELECT COUNT(*) FROM j), COUNT(DISTINCT CASE WHEN j.concurrency_group = '' THEN j.stack_id ELSE 'group ' || j.concurrency_group END), COALESCE(MIN(j.queued_at), 0) FROM j WHERE `, limit)+claimable, poolID)
}

// AllPools returns up to limit pools of all organizations, each with its organization's name.
func (tx *Tx) AllPools(limit int) ([]NamedPool, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (p NamedPool, err error) {
		err = scan(&p.ID, &p.OrgID, &p.Name, &p.OrgName)
		return p, err
	}, fmt.Sprintf(`SELECT p.id, p.org_id, p.name, o.name FROM agent_pools p JOIN organizations o ON o.id = p.org_id
		ORDER BY p.created_at, p.id LIMIT %d`, limit))
}

// NamedPool identifies a pool to operators.
type NamedPool struct{ ID, OrgID, Name, OrgName string }

// CountSilentPools returns the number of an organization's pools without an online agent that have work or had agents. See
// [Tx.Presences] for silence.
func (tx *Tx) CountSilentPools(orgID string, silence time.Duration) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM agent_pools p WHERE p.org_id = $1
		AND NOT EXISTS (SELECT 1 FROM pool_agents a WHERE a.pool_id = p.id AND `+online+`)
		AND (EXISTS (SELECT 1 FROM pool_agents a WHERE a.pool_id = p.id) OR EXISTS (SELECT 1 FROM jobs j WHERE j.pool_id = p.id AND j.status = 'not-started'))`,
		orgID, tx.Now(), silence)
}
