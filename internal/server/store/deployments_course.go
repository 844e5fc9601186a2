package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// considered bounds the newest deployments of a stack among which earlier runs are searched.
const considered = 500

// Course is a finished deployment of a stack, as its later deployments are compared with it.
type Course struct {
	DeploymentID         string
	Version              int64
	Operation            workflow.Operation
	Status               workflow.Status
	Steps                []StepState
	ClaimedAt, StartedAt time.Time
	EndedAt              time.Time
	Requester            string `read:"COALESCE(NULLIF(u.name, ''), d.requester)"` // what the user is called
}

var courses = database.NewTable[Course]("jobs j")

// fromCourses selects from the deployments of the stack $1 before the version $2, newest first.
var fromCourses = "SELECT " + courses.Expressions() + fmt.Sprintf(` FROM
	(SELECT id, version, requester, requested_by, created_at FROM deployments WHERE stack_id = $1 AND created_at >= 0 AND version < $2
		ORDER BY created_at DESC, id LIMIT %d) d
	JOIN jobs j ON j.deployment_id = d.id LEFT JOIN users u ON u.id = d.requested_by `, considered)

func courseOf(scan database.Scan) (c Course, err error) {
	err = scan(courses.Fields(&c)...)
	return c, err
}

// GoodCourses returns the newest succeeded deployments of an operation before a version of a stack, newest first.
func (tx *Tx) GoodCourses(stackID string, before int64, op workflow.Operation, limit int) ([]Course, error) {
	return database.Collect(tx.Tx, courseOf, fromCourses+fmt.Sprintf(
		"WHERE j.status = 'succeeded' AND j.operation = $3 AND j.started_at > 0 ORDER BY d.version DESC LIMIT %d", limit,
	), stackID, before, op)
}

// GoodTimes returns how long the newest succeeded deployments of an operation ran, among the newest deployments of a stack.
func (tx *Tx) GoodTimes(stackID string, op workflow.Operation, among, limit int) ([]time.Duration, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (time.Duration, error) {
		var us int64
		err := scan(&us)
		return time.Duration(us) * time.Microsecond, err
	}, fmt.Sprintf(`SELECT j.ended_at - j.started_at FROM
		(SELECT id, version, created_at FROM deployments WHERE stack_id = $1 AND created_at >= 0 ORDER BY created_at DESC, id LIMIT %d) d
		JOIN jobs j ON j.deployment_id = d.id WHERE j.status = 'succeeded' AND j.operation = $2 AND j.started_at > 0
		ORDER BY d.version DESC LIMIT %d`, among, limit), stackID, op)
}

// WritingCourses returns the newest deployments before a version of a stack that succeeded or failed in an operation that
// changes resources or state, newest first.
func (tx *Tx) WritingCourses(stackID string, before int64, limit int) ([]Course, error) {
	return database.Collect(tx.Tx, courseOf, fromCourses+fmt.Sprintf(
		"WHERE j.status IN ('succeeded', 'failed') AND j.reason <> 'cancelled' AND j.operation IN "+writingOperations+`
		ORDER BY d.version DESC LIMIT %d`, limit,
	), stackID, before)
}

// LastDirectUpdate returns the newest update of a stack that no deployment ran, that has ended, and that is not a
// preview, among those that began before a time.
func (tx *Tx) LastDirectUpdate(stackID string, before time.Time) (Update, error) {
	return updates.One(tx.Tx, `WHERE stack_id = $1 AND created_at < $2 AND preview = 0 AND deployment_id = '' AND finished_at > 0
		AND kind IN ('update', 'refresh', 'destroy', 'import') ORDER BY created_at DESC LIMIT 1`, stackID, before)
}

// EventOfDeployment returns the event at a git host that caused a deployment, as JSON, or [ErrNotFound].
func (tx *Tx) EventOfDeployment(stackID, deploymentID string) (VCSEvent, error) {
	return vcsEvents.One(tx.Tx, "WHERE e.id = (SELECT d.event_id FROM vcs_decisions d WHERE d.stack_id = $1 AND d.deployment_id = $2 LIMIT 1)", stackID, deploymentID)
}
