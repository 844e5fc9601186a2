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
	RunFilter
}

// RunFilter selects deployments, and updates that no deployment ran. An empty field selects all.
type RunFilter struct {
	// Kind is the operation of a deployment, or the kind of an update: "preview" for those that change nothing.
	Kind        string
	RequestedBy string // user id
	// Outcome selects deployments, and Status updates. NoUpdates selects no update.
	Outcome   Outcome
	Status    string
	NoUpdates bool
}

// where returns the conditions on deployments and those on updates, each after AND.
func (f RunFilter) where(arg func(any) string) (deployments, updates string) {
	if f.Kind != "" {
		kind := arg(f.Kind)
		deployments += " AND operation = " + kind
		if f.Kind == "preview" {
			updates += " AND preview = 1"
		} else {
			updates += " AND preview = 0 AND kind = " + kind
		}
	}
	if f.RequestedBy != "" {
		by := " AND requested_by = " + arg(f.RequestedBy)
		deployments, updates = deployments+by, updates+by
	}
	if of := f.Outcome.where(arg); of != "" {
		deployments += " AND EXISTS (SELECT 1 FROM jobs j WHERE j.deployment_id = deployments.id" + of + ")"
	}
	if f.Status != "" {
		updates += " AND status = " + arg(f.Status)
	}
	if f.NoUpdates {
		updates += " AND 1 = 0"
	}
	return deployments, updates
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
	ofDeployments, ofUpdates := f.RunFilter.where(argumentsOf(&args))
	deployments, updates = deployments+ofDeployments, updates+ofUpdates
	half := func(query, where string) string {
		return fmt.Sprintf("SELECT * FROM (%s AND %s ORDER BY created_at DESC, id LIMIT %d) half", query, where, f.Offset+f.Limit)
	}
	return database.Collect(tx.Tx, activities.Scan, fmt.Sprintf(
		"SELECT deployment_id, update_id, created_at FROM (%s UNION ALL %s) activity ORDER BY created_at DESC, deployment_id, update_id LIMIT %d OFFSET %d",
		half(activeDeployments, deployments), half(activeUpdates, updates), f.Limit, f.Offset,
	), args...)
}

// CountActivity returns the number of a stack's entries, up to a limit.
func (tx *Tx) CountActivity(stackID string, limit int) (int64, error) {
	half := func(query string) string { return fmt.Sprintf("SELECT * FROM (%s LIMIT %d) half", query, limit) }
	return database.Scalar[int64](tx.Tx, fmt.Sprintf("SELECT COUNT(*) FROM (%s UNION ALL %s LIMIT %d) activity", half(activeDeployments), half(activeUpdates), limit), stackID)
}

// UpdatesByID returns updates by their ids, in any order.
func (tx *Tx) UpdatesByID(ids []string) ([]Update, error) {
	where, args := among("id", ids, nil)
	return updates.All(tx.Tx, "WHERE "+where, args...)
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
