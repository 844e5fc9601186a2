package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// recordResources records a change of the number of resources in the states of the stacks with a
// value in a column. The caller then stores the number.
func (tx *Tx) recordResources(column, value string, count int64) error {
	_, err := tx.Exec(`INSERT INTO resource_changes (org_id, stack_id, changed_at, change)
		SELECT org_id, id, CAST($2 AS BIGINT), CAST($3 AS BIGINT) - resource_count FROM live_stacks
		WHERE `+column+` = $1 AND `+column+` <> '' AND resource_count <> $3`, value, tx.Now(), count)
	return err
}

// ResourceChange sums up the changes of the number of resources in an hour.
type ResourceChange struct {
	Hour   int64 // since 1970
	Change int64
	// Offset is the sum of the changes, each multiplied by the seconds from the start of the hour.
	Offset int64
}

const (
	microseconds     = 1_000_000
	hourMicroseconds = 3600 * microseconds
)

// ResourceChanges returns, by hour, the changes in a period of the number of resources in an
// organization's stacks within reach.
func (tx *Tx) ResourceChanges(orgID string, reach Reach, from, to time.Time) ([]ResourceChange, error) {
	where, args := ofOrg("c", orgID, reach)
	if where == "" {
		return nil, nil
	}
	n := len(args)
	query := fmt.Sprintf(`SELECT c.changed_at / %[1]d, CAST(SUM(c.change) AS BIGINT), CAST(SUM(c.change * (c.changed_at / %[2]d - c.changed_at / %[1]d * 3600)) AS BIGINT)
		FROM resource_changes c %[3]s AND c.changed_at >= $%[4]d AND c.changed_at < $%[5]d GROUP BY 1 ORDER BY 1`,
		hourMicroseconds, microseconds, where, n+1, n+2)
	return database.Collect(tx.Tx, func(scan database.Scan) (r ResourceChange, err error) {
		err = scan(&r.Hour, &r.Change, &r.Offset)
		return r, err
	}, query, append(args, from, to)...)
}

// CountResources returns the number of resources in an organization's stacks within reach before a
// time.
func (tx *Tx) CountResources(orgID string, reach Reach, before time.Time) (int64, error) {
	where, args := ofOrg("c", orgID, reach)
	if where == "" {
		return 0, nil
	}
	return database.Scalar[int64](tx.Tx, fmt.Sprintf("SELECT CAST(COALESCE(SUM(c.change), 0) AS BIGINT) FROM resource_changes c %s AND c.changed_at < $%d",
		where, len(args)+1), append(args, before)...)
}

// RunTime sums up the deployments that started and ended in the same hour of a period.
type RunTime struct {
	Hour  int64 // since 1970
	Count int64
	Time  time.Duration
}

// RunSpan is the time for which a deployment ran that did not end in the period's hour in which it
// started.
type RunSpan struct {
	StartedAt time.Time
	EndedAt   time.Time // zero while it runs
}

var runSpans = database.NewTable[RunSpan]("jobs j")

// RunTimes returns when deployments of an organization's stacks within reach ran in a period that
// starts with an hour.
func (tx *Tx) RunTimes(orgID string, reach Reach, from, to time.Time) ([]RunTime, []RunSpan, error) {
	where, args := ofOrg("j", orgID, reach)
	if where == "" {
		return nil, nil, nil
	}
	n := len(args)
	args = append(args, from, to)
	where += fmt.Sprintf(" AND j.started_at > 0 AND j.started_at < $%d AND ", n+2)
	started, ended := fmt.Sprintf("j.started_at / %d", hourMicroseconds), fmt.Sprintf("j.ended_at / %d", hourMicroseconds)
	times, err := database.Collect(tx.Tx, func(scan database.Scan) (r RunTime, err error) {
		var us int64
		err = scan(&r.Hour, &r.Count, &us)
		r.Time = time.Duration(us) * time.Microsecond
		return r, err
	}, fmt.Sprintf(`SELECT %s, COUNT(*), CAST(SUM(j.ended_at - j.started_at) AS BIGINT) FROM jobs j
		%sj.ended_at >= $%d AND j.ended_at < $%d AND %s = %s GROUP BY 1`, started, where, n+1, n+2, started, ended), args...)
	if err != nil {
		return nil, nil, err
	}
	spans, err := runSpans.All(tx.Tx, fmt.Sprintf("%s(j.ended_at = 0 OR j.ended_at >= $%d AND (j.ended_at >= $%d OR %s < %s))", where, n+1, n+2, started, ended), args...)
	return times, spans, err
}
