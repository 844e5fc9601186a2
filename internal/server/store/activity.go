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

const activityOfStack = `(SELECT id AS deployment_id, '' AS update_id, created_at FROM deployments WHERE stack_id = $1
	UNION ALL SELECT '', id, created_at FROM updates WHERE stack_id = $1 AND deployment_id = '' AND started_at > 0) activity`

var activities = database.NewTable[Activity](activityOfStack)

// ActivityOfStack returns the activity on a stack up to a time, newest first.
func (tx *Tx) ActivityOfStack(stackID string, until time.Time, limit, offset int) ([]Activity, error) {
	return database.Collect(tx.Tx, activities.Scan, "SELECT deployment_id, update_id, created_at FROM "+activityOfStack+
		fmt.Sprintf(" WHERE created_at <= $2 ORDER BY created_at DESC, deployment_id, update_id LIMIT %d OFFSET %d", limit, offset), stackID, until)
}

// NewestActivity returns the number of entries that [Tx.ActivityOfStack] lists, and the time of the
// newest.
func (tx *Tx) NewestActivity(stackID string) (n int64, at time.Time, err error) {
	found, err := database.Collect(tx.Tx, activities.Scan, "SELECT '', '', COALESCE(MAX(created_at), 0) FROM "+activityOfStack, stackID)
	if err != nil || len(found) == 0 {
		return 0, at, err
	}
	n, err = database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM "+activityOfStack, stackID)
	return n, found[0].CreatedAt, err
}
