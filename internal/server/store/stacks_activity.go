package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// Activity is a deployment of a stack, or a started update that no deployment ran. One of the ids
// is "".
type Activity struct {
	DeploymentID, UpdateID string
	CreatedAt              time.Time
}

// The two kinds of activity of a stack.
const (
	activeDeployments = "SELECT id AS deployment_id, '' AS update_id, created_at FROM deployments WHERE stack_id = $1"
	activeUpdates     = "SELECT '' AS deployment_id, id AS update_id, created_at FROM updates WHERE stack_id = $1 AND deployment_id = '' AND started_at > 0"
	activityOfStack   = "(" + activeDeployments + " UNION ALL " + activeUpdates + ") activity"
)

var activities = database.NewTable[Activity](activityOfStack)

// ActivityFilter selects a part of the activity of a stack.
type ActivityFilter struct {
	StackID string
	// After is the entry before the selected ones. If it has no id, they begin with the newest entry
	// that is not newer than After.CreatedAt.
	After  Activity
	Offset int // number of entries to skip
	Limit  int
}

// Activity returns the selected entries, newest first. Each of the two tables contributes as many
// rows as the page could need, which an index finds and sorts.
func (tx *Tx) Activity(f ActivityFilter) ([]Activity, error) {
	// Entries of the same time are in the order of their ids, updates before deployments.
	older := "created_at <= $2"
	args := []any{f.StackID, f.After.CreatedAt}
	deployments, updates := older, older
	switch {
	case f.After.DeploymentID != "":
		deployments, updates = older+" AND (created_at < $2 OR id > $3)", "created_at < $2"
		args = append(args, f.After.DeploymentID)
	case f.After.UpdateID != "":
		updates = older + " AND (created_at < $2 OR id > $3)"
		args = append(args, f.After.UpdateID)
	}
	half := func(query, where string) string {
		return fmt.Sprintf("SELECT * FROM (%s AND %s ORDER BY created_at DESC, id LIMIT %d) half", query, where, f.Offset+f.Limit)
	}
	return database.Collect(tx.Tx, activities.Scan, fmt.Sprintf(
		"SELECT deployment_id, update_id, created_at FROM (%s UNION ALL %s) activity ORDER BY created_at DESC, deployment_id, update_id LIMIT %d OFFSET %d",
		half(activeDeployments, deployments), half(activeUpdates, updates), f.Limit, f.Offset,
	), args...)
}

// NewestActivity returns the number of a stack's entries, and the time of the newest.
func (tx *Tx) NewestActivity(stackID string) (n int64, at time.Time, err error) {
	newest, err := tx.Activity(ActivityFilter{StackID: stackID, After: Activity{CreatedAt: time.UnixMicro(1 << 62)}, Limit: 1})
	if err != nil || len(newest) == 0 {
		return 0, at, err
	}
	n, err = database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+activityOfStack, stackID)
	return n, newest[0].CreatedAt, err
}
