// Package triggers creates deployments at the times that schedules define. A schedule fires in one
// transaction with the creation of its deployment, and once for each time at which it is due.
package triggers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

const (
	// maxSchedules is the maximum number of schedules of a stack.
	maxSchedules = 100
	// shownEvents is the maximum number of events in a history. Older events are removed.
	shownEvents = 500
	// keepEvents is the time for which events and fired one-time schedules are kept.
	keepEvents = 90 * 24 * time.Hour
	// maxAhead is the longest time until a one-time schedule.
	maxAhead = 100 * 365 * 24 * time.Hour
)

// Service manages and fires schedules.
type Service struct {
	db          *store.DB
	deployments *deployments.Service
	log         *logrus.Entry
}

// New returns a service on a database. The caller must start [Service.Run] on one of the servers
// that share the database.
func New(db *store.DB, d *deployments.Service, log *logrus.Entry) *Service {
	return &Service{db: db, deployments: d, log: log}
}

// Spec describes what a schedule does, and when. Either Cron or Once is set.
type Spec struct {
	Kind    store.ScheduleKind
	Cron    string
	Once    time.Time
	Request *workflow.Request // nil keeps the request of an existing schedule
}

// DriftRequest returns the request of a schedule that detects drift. The option is always present, because
// clients recognize the kind of a schedule by it; likewise in [TTLRequest].
func DriftRequest(remediate bool) *workflow.Request {
	return request(workflow.OperationDetectDrift, &workflow.OptionsSettings{RemediateIfDriftDetected: &remediate})
}

// TTLRequest returns the request of a schedule that destroys the stack's resources.
func TTLRequest(deleteStack bool) *workflow.Request {
	return request(workflow.OperationDestroy, &workflow.OptionsSettings{DeleteAfterDestroy: &deleteStack})
}

func request(op workflow.Operation, o *workflow.OptionsSettings) *workflow.Request {
	set := &workflow.Settings{OperationContext: &workflow.OperationContext{Options: o}}
	return &workflow.Request{Operation: op, Inherit: true, Settings: set}
}

// Create adds a schedule that acts on behalf of p.
func (s *Service) Create(ctx context.Context, p identity.Principal, st store.Stack, spec Spec) (store.Schedule, error) {
	var c store.Schedule
	if err := checkCron(spec); err != nil {
		return c, err
	}
	err := s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		n, err := tx.CountSchedules(st.ID)
		if err != nil {
			return err
		}
		if n >= maxSchedules {
			return fault.Invalid("stack %s has %d schedules, which is the maximum; remove one first", st.Ref(), n)
		}
		c = store.Schedule{ID: identity.NewID(), StackID: st.ID, OrgID: st.OrgID, CreatedAt: tx.Now()}
		if err := s.define(ctx, tx, p, st, &c, spec); err != nil {
			return err
		}
		if err := tx.InsertSchedule(c); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.ScheduleCreated, st, c)
	})
	return c, err
}

// Update replaces the definition of a schedule, which then acts on behalf of p.
func (s *Service) Update(ctx context.Context, p identity.Principal, st store.Stack, id string, spec Spec) (store.Schedule, error) {
	var c store.Schedule
	if err := checkCron(spec); err != nil {
		return c, err
	}
	err := s.db.Write(ctx, st.Scope(), func(tx *store.Tx) (err error) {
		if c, err = find(tx, st, id); err != nil {
			return err
		}
		if err := s.define(ctx, tx, p, st, &c, spec); err != nil {
			return err
		}
		if err := tx.UpdateSchedule(c); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.ScheduleChanged, st, c)
	})
	return c, err
}

func (s *Service) define(ctx context.Context, tx *store.Tx, p identity.Principal, st store.Stack, c *store.Schedule, spec Spec) error {
	_, err := tx.DeploymentSettings(st.ID)
	if err != nil {
		return store.IfMissing(err, fault.Invalid("Stack does not have deployment settings configured; store deployment settings first"))
	}
	now := tx.Now()
	if err := checkOnce(spec, now); err != nil {
		return err
	}
	var stored []byte
	if c.Request != "" {
		stored = []byte(c.Request)
	}
	request, err := s.deployments.Prepare(ctx, tx, p, st, spec.Request, stored)
	if err != nil {
		return err
	}
	c.Kind, c.Cron, c.OnceAt, c.Request, c.Actor = spec.Kind, spec.Cron, spec.Once, string(request), string(p.Actor())
	c.ModifiedAt, c.Fired = now, false
	return arm(c, now)
}

// checkCron checks a cron expression outside a transaction, because it takes long to find out that
// an expression never fires.
func checkCron(spec Spec) error {
	if (spec.Cron == "") == spec.Once.IsZero() {
		return fault.Invalid("a schedule needs scheduleCron or scheduleOnce, and not both")
	}
	if spec.Cron == "" {
		return nil
	}
	_, err := NextTime(spec.Cron, time.Now())
	return err
}

func checkOnce(spec Spec, now time.Time) error {
	switch {
	case spec.Cron != "":
		return nil
	case !spec.Once.After(now):
		return fault.Invalid("the time %s is in the past; it is %s", spec.Once.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case spec.Once.Sub(now) > maxAhead:
		return fault.Invalid("the time %s is more than 100 years ahead", spec.Once.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}

// arm sets the time at which a schedule is due, after a time.
func arm(c *store.Schedule, after time.Time) error {
	c.NextAt = c.OnceAt
	if c.Cron != "" {
		var err error
		if c.NextAt, err = NextTime(c.Cron, after); err != nil {
			return err
		}
	}
	c.TryAt, c.Tries, c.ArmedAt = c.NextAt, 0, after
	return nil
}

func find(tx *store.Tx, st store.Stack, id string) (store.Schedule, error) {
	c, err := tx.Schedule(id)
	if errors.Is(err, store.ErrNotFound) || err == nil && c.StackID != st.ID {
		return store.Schedule{}, fault.NotFound("stack %s has no schedule %q", st.Ref(), termtext.OneLine(id, 100))
	}
	return c, err
}

// requestCopies is the number of copies in memory of the requests in a list.
const requestCopies = 3

// List returns a stack's schedules, except one-time schedules that have fired.
func (s *Service) List(ctx context.Context, st store.Stack) ([]store.Schedule, error) {
	size, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.ScheduleBytes(st.ID) })
	if err != nil {
		return nil, fmt.Errorf("measuring schedules: %w", err)
	}
	if err := budget.Of(ctx).Take(ctx, requestCopies*size); err != nil {
		return nil, err
	}
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.Schedule, error) { return tx.Schedules(st.ID) })
	return list, fault.While(err, "listing schedules")
}

// Get returns a schedule of a stack.
func (s *Service) Get(ctx context.Context, st store.Stack, id string) (store.Schedule, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (store.Schedule, error) { return find(tx, st, id) })
}

// Delete removes a schedule of a stack and its history.
func (s *Service) Delete(ctx context.Context, st store.Stack, id string) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		c, err := find(tx, st, id)
		if err != nil {
			return err
		}
		if err := tx.DeleteSchedule(st.ID, id); err != nil {
			return err
		}
		return recordChange(ctx, tx, audit.ScheduleDeleted, st, c)
	})
}

// Pause pauses or resumes a schedule. A resumed recurring schedule ignores the times that it missed;
// a resumed one-time schedule whose time has passed is due at once.
func (s *Service) Pause(ctx context.Context, st store.Stack, id string, paused bool) error {
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		c, err := find(tx, st, id)
		if err != nil || c.Paused == paused {
			return err
		}
		if !paused {
			if _, err := identity.ActAs(tx, st, identity.Actor(c.Actor)); fault.KindOf(err) == fault.KindForbidden {
				return fault.Conflict("the schedule cannot be resumed: %v; change the schedule, so that it runs on your behalf", err)
			} else if err != nil {
				return err
			}
		}
		c.Paused, c.ModifiedAt = paused, tx.Now()
		if !paused && c.Cron != "" {
			if err := arm(&c, c.ModifiedAt); err != nil {
				return err
			}
		}
		if err := tx.UpdateSchedule(c); err != nil {
			return err
		}
		action := audit.ScheduleResumed
		if paused {
			action = audit.SchedulePaused
		}
		return recordChange(ctx, tx, action, st, c)
	})
}

func recordChange(ctx context.Context, tx *store.Tx, action audit.Action, st store.Stack, c store.Schedule) error {
	detail := map[string]any{"schedule": c.ID, "kind": c.Kind}
	if c.Cron != "" {
		detail["cron"] = c.Cron
	} else {
		detail["once"] = c.OnceAt.UTC().Format(time.RFC3339)
	}
	return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: action, Subject: audit.Stack(st), Detail: detail})
}

// History returns the newest events of a schedule, newest first.
func (s *Service) History(ctx context.Context, st store.Stack, id string) ([]store.ScheduleEvent, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]store.ScheduleEvent, error) {
		if _, err := find(tx, st, id); err != nil {
			return nil, err
		}
		return tx.ScheduleEvents(id, shownEvents)
	})
}

// Forget removes old events, and one-time schedules that fired long ago.
func (s *Service) Forget(ctx context.Context) error {
	return errors.Join(
		s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
			return tx.DeleteOldScheduleEvents(tx.Now().Add(-keepEvents), limit)
		}),
		s.db.WriteInPieces(ctx, scope.Free, func(tx *store.Tx, limit int) (int64, error) {
			return tx.DeleteFiredSchedules(tx.Now().Add(-keepEvents), limit)
		}),
	)
}
