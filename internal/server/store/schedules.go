package store

import (
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
)

// ScheduleKind determines what a schedule does.
type ScheduleKind string

// The kinds of schedules. They are also the initiators of the deployments.
const (
	CustomSchedule ScheduleKind = "schedule" // runs a deployment, repeatedly or once
	DriftSchedule  ScheduleKind = "drift"    // detects drift repeatedly
	TTLSchedule    ScheduleKind = "ttl"      // destroys the stack's resources once
)

// Schedule creates deployments of a stack at given times. Either Cron or OnceAt is set.
type Schedule struct {
	ID, StackID    string
	Kind           ScheduleKind
	Cron           string
	OnceAt         time.Time
	Request        string // body of a deployment's request as JSON, with encrypted secrets
	Actor          string // identity.Actor
	Paused         bool
	NextAt         time.Time // zero if the schedule never fires again
	TryAt          time.Time // NextAt, or the time of the next attempt after an unexpected error
	Tries          int64     // failed attempts for NextAt
	ArmedAt        time.Time // time at which NextAt was computed
	Fired          bool      // a one-time schedule that has created its deployment
	LastAt         time.Time // time of the last event; zero if there is none
	LastDeployment string    // id of the last deployment, or ""
	CreatedAt      time.Time
	ModifiedAt     time.Time
	OrgID          string `db:"-" read:"s.org_id"`  // of the stack
	Project        string `db:"-" read:"s.project"` // of the stack
	Stack          string `db:"-" read:"s.name"`
}

// ScheduleResult is what a schedule did at a time at which it was due.
type ScheduleResult string

// The results of schedules.
const (
	ScheduleSucceeded ScheduleResult = "succeeded" // it created a deployment
	ScheduleSkipped   ScheduleResult = "skipped"   // it was too late, or its previous deployment was still queued
	ScheduleFailed    ScheduleResult = "failed"    // it could not create a deployment
)

// ScheduleEvent records what a schedule did at a time at which it was due.
type ScheduleEvent struct {
	ID, ScheduleID string
	DueAt          time.Time
	HappenedAt     time.Time
	Result         ScheduleResult
	Message        string // reason for a result other than succeeded
	DeploymentID   string // "" if there is none
	Version        int64  // of the deployment, or 0
}

var (
	schedules      = database.NewTable[Schedule]("schedules c JOIN live_stacks s ON s.id = c.stack_id")
	scheduleEvents = database.NewTable[ScheduleEvent]("schedule_events")
)

// InsertSchedule adds a schedule.
func (tx *Tx) InsertSchedule(s Schedule) error { return schedules.Insert(tx.Tx, s) }

// UpdateSchedule stores a schedule. It must have been read in the same transaction.
func (tx *Tx) UpdateSchedule(s Schedule) error { return schedules.Update(tx.Tx, s) }

// Schedule returns a schedule by its id, or [ErrNotFound].
func (tx *Tx) Schedule(id string) (Schedule, error) {
	return schedules.One(tx.Tx, "WHERE c.id = $1", id)
}

// Schedules returns a stack's schedules, except one-time schedules that have fired, oldest first.
func (tx *Tx) Schedules(stackID string) ([]Schedule, error) {
	return schedules.All(tx.Tx, "WHERE c.stack_id = $1 AND c.fired = 0 ORDER BY c.created_at, c.id", stackID)
}

// CountSchedules returns the number of the schedules that [Tx.Schedules] returns.
func (tx *Tx) CountSchedules(stackID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM schedules WHERE stack_id = $1 AND fired = 0", stackID)
}

// ScheduleBytes returns the size of the requests of the schedules that [Tx.Schedules] returns.
func (tx *Tx) ScheduleBytes(stackID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT CAST(COALESCE(SUM(LENGTH(request)), 0) AS BIGINT) FROM schedules WHERE stack_id = $1 AND fired = 0", stackID)
}

// OrgScheduleFilter selects schedules of an organization, except one-time schedules that have fired.
// An empty field selects all.
type OrgScheduleFilter struct {
	OrgID string // required
	Reach Reach
	Kind  ScheduleKind
	// Contains is a part of the stack's name in the form project/stack, regardless of case.
	Contains string
	// Active selects only schedules that are not paused.
	Active bool
	// After is the schedule before the selected ones, with its Paused, NextAt and ID.
	After Schedule
	Limit int
}

// query returns the condition, the order and the limit of a filter; "" means that it selects nothing.
func (f OrgScheduleFilter) query() (text string, args []any) {
	where, args := f.Reach.query(f.OrgID)
	if where == "" {
		return "", nil
	}
	where = "JOIN organizations o ON o.id = s.org_id WHERE c.fired = 0 AND s.org_id = $1 AND " + where
	arg := argumentsOf(&args)
	if f.Kind != "" {
		where += " AND c.kind = " + arg(f.Kind)
	}
	if f.Contains != "" {
		where += " AND lower(s.project || '/' || s.name) LIKE " + arg("%"+likeText.Replace(strings.ToLower(f.Contains))+"%") + ` ESCAPE '\'`
	}
	if f.Active {
		where += " AND c.paused = 0"
	}
	if f.After.ID != "" {
		paused, next, id := arg(f.After.Paused), arg(f.After.NextAt), arg(f.After.ID)
		where += fmt.Sprintf(" AND c.paused >= %s AND (c.paused > %[1]s OR c.next_at > %[2]s OR c.next_at = %[2]s AND c.id > %[3]s)", paused, next, id)
	}
	return where + fmt.Sprintf(" ORDER BY c.paused, c.next_at, c.id LIMIT %d", f.Limit), args
}

// SchedulesOfOrg returns the selected schedules in the order in which they are due, paused ones last.
func (tx *Tx) SchedulesOfOrg(f OrgScheduleFilter) ([]Schedule, error) {
	query, args := f.query()
	if query == "" {
		return nil, nil
	}
	return schedules.All(tx.Tx, query, args...)
}

// SchedulesOfOrgBytes returns the size of the requests of the schedules that [Tx.SchedulesOfOrg]
// returns.
func (tx *Tx) SchedulesOfOrgBytes(f OrgScheduleFilter) (int64, error) {
	query, args := f.query()
	if query == "" {
		return 0, nil
	}
	return database.Scalar[int64](tx.Tx, "SELECT CAST(COALESCE(SUM(n), 0) AS BIGINT) FROM (SELECT LENGTH(c.request) AS n FROM schedules c JOIN live_stacks s ON s.id = c.stack_id "+
		query+") sizes", args...)
}

// ScheduleRef names a schedule and its stack.
type ScheduleRef struct {
	ID, StackID string
	OrgID       string `read:"s.org_id"` // of the stack
}

var scheduleRefs = database.NewTable[ScheduleRef]("schedules c JOIN live_stacks s ON s.id = c.stack_id")

// DueSchedules returns up to limit schedules that are due, the longest due first.
func (tx *Tx) DueSchedules(now time.Time, limit int) ([]ScheduleRef, error) {
	return scheduleRefs.All(tx.Tx, "WHERE c.next_at > 0 AND c.paused = 0 AND c.try_at <= $1 ORDER BY c.try_at, c.id LIMIT $2", now, limit)
}

// EarlySchedules returns up to limit schedules that were armed after a time.
func (tx *Tx) EarlySchedules(after time.Time, limit int) ([]ScheduleRef, error) {
	return scheduleRefs.All(tx.Tx, "WHERE c.armed_at > $1 ORDER BY c.armed_at, c.id LIMIT $2", after, limit)
}

// DeleteSchedule removes a stack's schedule and its history, if it exists.
func (tx *Tx) DeleteSchedule(stackID, id string) error {
	_, err := tx.Exec("DELETE FROM schedules WHERE id = $1 AND stack_id = $2", id, stackID)
	return err
}

// InsertScheduleEvent records an event, or returns [ErrConflict] if an event for the same due time
// exists.
func (tx *Tx) InsertScheduleEvent(e ScheduleEvent) error { return scheduleEvents.Insert(tx.Tx, e) }

// ScheduleEvent returns the event of a schedule for a due time, or [ErrNotFound].
func (tx *Tx) ScheduleEvent(scheduleID string, due time.Time) (ScheduleEvent, error) {
	return scheduleEvents.One(tx.Tx, "WHERE schedule_id = $1 AND due_at = $2", scheduleID, due)
}

// DeleteScheduleEvent removes an event.
func (tx *Tx) DeleteScheduleEvent(id string) error {
	return tx.ExecOne("DELETE FROM schedule_events WHERE id = $1", id)
}

// TrimScheduleEvents removes the events of a schedule that precede the newest keep events up to a due
// time.
func (tx *Tx) TrimScheduleEvents(scheduleID string, due time.Time, keep int) error {
	_, err := tx.Exec(fmt.Sprintf(`DELETE FROM schedule_events WHERE schedule_id = $1 AND due_at <= (SELECT due_at FROM schedule_events
		WHERE schedule_id = $1 AND due_at <= $2 ORDER BY due_at DESC LIMIT 1 OFFSET %d)`, keep), scheduleID, due)
	return err
}

// ScheduleEvents returns up to limit events of a schedule, newest first.
func (tx *Tx) ScheduleEvents(scheduleID string, limit int) ([]ScheduleEvent, error) {
	return scheduleEvents.All(tx.Tx, "WHERE schedule_id = $1 ORDER BY due_at DESC LIMIT $2", scheduleID, limit)
}

// DeleteOldScheduleEvents removes up to limit events that happened before a time, and returns their
// number.
func (tx *Tx) DeleteOldScheduleEvents(before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM schedule_events WHERE id IN
		(SELECT id FROM schedule_events WHERE happened_at < $1 ORDER BY happened_at LIMIT $2`+tx.SkipLocked()+")", before, limit)
}

// DeleteFiredSchedules removes up to limit one-time schedules that fired before a time, and returns
// their number.
func (tx *Tx) DeleteFiredSchedules(before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM schedules WHERE id IN
		(SELECT id FROM schedules WHERE fired = 1 AND armed_at < $1 ORDER BY armed_at LIMIT $2`+tx.SkipLocked()+")", before, limit)
}
