package store

import (
	"fmt"

	"workflowagent/internal/server/store/database"
)

// EstateNumbers are numbers of stacks, which are counted up to a limit, those first that need attention.
type EstateNumbers struct {
	All, Attention, Running int64
}

// EstateNumbers counts the stacks of an organization up to a limit, if the caller sees all of them. It reports whether the
// caller does: to count the others, the permissions on each stack would have to be checked.
func (tx *Tx) EstateNumbers(orgID string, reach Reach, limit int) (n EstateNumbers, all bool, err error) {
	if all, err = tx.reachesAll(orgID, reach); err != nil || !all {
		return n, false, err
	}
	n, err = database.One(tx.Tx, func(scan database.Scan) (n EstateNumbers, err error) {
		err = scan(&n.All, &n.Attention, &n.Running)
		return n, err
	}, fmt.Sprintf(`SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN r.rank IN (%d, %d) THEN 1 ELSE 0 END), 0) AS BIGINT),
		CAST(COALESCE(SUM(CASE WHEN r.rank = %d THEN 1 ELSE 0 END), 0) AS BIGINT)
		FROM (SELECT e.rank FROM estate e WHERE e.org_id = $1 ORDER BY e.rank LIMIT %d) r`, RankFailed, RankDrift, RankRunning, limit), orgID)
	return n, true, err
}

// CountOpenJobs returns the number of an organization's queued, claimed and running jobs, up to a limit. It is 0 for callers
// who do not see all stacks of the organization.
func (tx *Tx) CountOpenJobs(orgID string, reach Reach, limit int) (open int64, err error) {
	if all, err := tx.reachesAll(orgID, reach); err != nil || !all {
		return 0, err
	}
	for _, stage := range []Stage{Active, Queued} {
		n, err := database.Scalar[int64](tx.Tx, fmt.Sprintf("SELECT COUNT(*) FROM (SELECT j.id FROM jobs j WHERE j.org_id = $1 AND %s LIMIT %d) n", stageConditions[stage], limit), orgID)
		if err != nil {
			return 0, err
		}
		open += n
	}
	return min(open, int64(limit)), nil
}
