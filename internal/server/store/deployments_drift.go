package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// DriftRun is a run that compares a stack's resources with its state: a deployment that detects or
// remediates drift, or a preview of a refresh that does not belong to such a deployment.
type DriftRun struct {
	ID           string // of the deployment or of the preview
	DeploymentID string // "" if no deployment ran the preview
	UpdateID     string // the preview; "" if the run is a deployment
	CreatedAt    time.Time

	// Of the deployment; zero if none exists.
	Version    int64              `read:"COALESCE(d.version, 0)"`
	Operation  workflow.Operation `read:"COALESCE(d.operation, '')"`
	Status     workflow.Status    `read:"COALESCE(j.status, '')"`
	Reason     workflow.Reason    `read:"COALESCE(j.reason, '')"`
	Remediates bool               `read:"COALESCE(b.remediates, 0)"`
	Cause      *Cause             `read:"COALESCE(j.cause, '')"` // of a failure; nil if it is unknown
}

const driftDeployment = "operation IN ('detect-drift', 'remediate-drift')"

// The two kinds of drift runs of a stack.
const (
	driftDeployments = "FROM deployments d WHERE d.stack_id = $1 AND d." + driftDeployment
	driftPreviews    = `FROM updates u WHERE u.stack_id = $1 AND u.kind = 'refresh' AND u.preview = 1 AND u.started_at > 0
		AND NOT EXISTS (SELECT 1 FROM deployments p WHERE p.id = u.deployment_id AND p.` + driftDeployment + ")"
	driftRuns = `SELECT d.id, d.id AS deployment_id, '' AS update_id, d.created_at ` + driftDeployments +
		` UNION ALL SELECT u.id, u.deployment_id, u.id, u.created_at ` + driftPreviews
)

var driftRunRows = database.NewTable[DriftRun](`drift_runs r LEFT JOIN deployments d ON d.id = r.deployment_id
	LEFT JOIN jobs j ON j.deployment_id = d.id LEFT JOIN deployment_briefs b ON b.deployment_id = d.id`)

// withDriftRuns makes the drift runs of stack $1 available as a table.
const withDriftRuns = "WITH drift_runs AS (" + driftRuns + ") "

// DriftRuns returns a page of a stack's drift runs, newest first.
func (tx *Tx) DriftRuns(stackID string, limit, offset int) ([]DriftRun, error) {
	return database.Collect(tx.Tx, driftRunRows.Scan, withDriftRuns+driftRunRows.Query(
		fmt.Sprintf("ORDER BY r.created_at DESC, r.id LIMIT %d OFFSET %d", limit, offset),
	), stackID)
}

// DriftRun returns a drift run of a stack by its id.
func (tx *Tx) DriftRun(stackID, id string) (DriftRun, error) {
	return database.One(tx.Tx, driftRunRows.Scan, withDriftRuns+driftRunRows.Query("WHERE r.id = $2"), stackID, id)
}

// CountDriftRuns returns the number of a stack's drift runs.
func (tx *Tx) CountDriftRuns(stackID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT (SELECT COUNT(*) "+driftDeployments+") + (SELECT COUNT(*) "+driftPreviews+")", stackID)
}

// LatestDriftRun returns the id of a stack's newest drift run that was not skipped, or
// [ErrNotFound].
func (tx *Tx) LatestDriftRun(stackID string) (string, error) {
	return database.Scalar[string](tx.Tx, withDriftRuns+`SELECT r.id FROM drift_runs r WHERE NOT EXISTS (
		SELECT 1 FROM jobs j WHERE j.deployment_id = r.id AND j.status = 'skipped') ORDER BY r.created_at DESC, r.id LIMIT 1`, stackID)
}

// DriftRunning reports whether a drift run of a stack is in progress.
func (tx *Tx) DriftRunning(stackID string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM (
		SELECT j.id FROM jobs j WHERE j.stack_id = $1 AND j.status IN ('accepted', 'running') AND j.`+driftDeployment+`
		UNION ALL SELECT u.id `+driftPreviews+` AND u.status = 'running') r`, stackID)
	return n > 0, err
}

// DriftOf returns the newest detection of a stack, and the first update after it that ended the drift that it found.
// Each is nil if there is none.
func (tx *Tx) DriftOf(stackID string) (detection, decided *Update, err error) {
	latest, err := updates.One(tx.Tx, "WHERE updates.stack_id = $1 AND "+detects+" ORDER BY updates.created_at DESC, updates.id LIMIT 1", stackID)
	if err != nil {
		return nil, nil, IgnoreMissing(err)
	}
	if !Drifted(latest.ResourceChanges) {
		return &latest, nil, nil
	}
	first, err := updates.One(tx.Tx, "WHERE updates.stack_id = $1 AND updates.created_at > $2 AND "+decidesDrift+
		" ORDER BY updates.created_at, updates.id LIMIT 1", stackID, latest.CreatedAt)
	if err != nil {
		return &latest, nil, IgnoreMissing(err)
	}
	return &latest, &first, nil
}

// detects selects the detections that say whether a stack has drift: previews of a refresh of all resources, whose
// result is known.
const detects = `updates.kind = 'refresh' AND updates.preview = 1 AND updates.status = 'succeeded' AND updates.resource_changes <> '' AND updates.targeted = 0`

// decidesDrift selects the updates after which a stack's resources are as its state: of deployments that put back what
// is declared, and refreshes, which write what they find to the state. Those of only some resources leave other drift.
const decidesDrift = `updates.preview = 0 AND updates.status = 'succeeded' AND updates.targeted = 0 AND (updates.kind = 'refresh' OR updates.kind = 'update'
	AND EXISTS (SELECT 1 FROM deployments d WHERE d.id = updates.deployment_id AND d.` + driftDeployment + `))`
