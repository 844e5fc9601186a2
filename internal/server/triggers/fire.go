package triggers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

const (
	// interval is the time between checks for due schedules.
	interval = time.Second
	// batch is the number of schedules that are read at once.
	batch = 100
	// late is the delay after which a schedule, except a TTL schedule, no longer fires.
	late = 24 * time.Hour
	// clockSlack is the difference between the clocks of servers that is not taken for a clock that
	// was set back.
	clockSlack = 5 * time.Minute
	// maxTries is the number of attempts to fire after unexpected errors. TTL schedules have no limit.
	maxTries = 5
	// maxText is the maximum length of an event's message.
	maxText = 2000
)

// pauses is the policy of attempts after unexpected errors.
var pauses = retry.Policy{First: 5 * time.Second, Max: 5 * time.Minute, Tries: maxTries}

// Run fires due schedules until ctx is canceled.
func (s *Service) Run(ctx context.Context) error {
	for {
		if err := s.Sweep(ctx); err != nil {
			return err
		}
		if retry.Sleep(ctx, interval) != nil {
			return nil //nolint:nilerr // the end of ctx is not an error
		}
	}
}

// Sweep fires the schedules that are due now. It returns an error only if the database fails.
func (s *Service) Sweep(ctx context.Context) error {
	if err := s.rearm(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		due, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.ScheduleRef, error) { return tx.DueSchedules(tx.Now(), batch) })
		if err != nil {
			return fmt.Errorf("reading due schedules: %w", err)
		}
		for _, c := range due {
			if err := s.fire(ctx, c); err != nil {
				return err
			}
		}
		if len(due) < batch {
			return nil
		}
	}
	return nil
}

// fire fires a schedule. After an unexpected error, it postpones the schedule, so that the others
// need not wait.
func (s *Service) fire(ctx context.Context, due store.ScheduleRef) error {
	err := s.change(ctx, due, func(tx *store.Tx, c *store.Schedule) error { return s.fireIn(ctx, tx, c) })
	if err == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // the end of ctx is not an error: the schedule stays due
	}
	s.log.WithError(err).WithField("schedule_id", due.ID).Error("firing a schedule failed; it is tried again")
	err = s.change(ctx, due, func(tx *store.Tx, c *store.Schedule) error {
		c.Tries++
		c.TryAt = tx.Now().Add(pauses.Pause(int(c.Tries)-1, nil))
		if c.Tries < maxTries || c.Kind == store.TTLSchedule {
			return nil
		}
		return finish(tx, c, store.ScheduleEvent{Result: store.ScheduleFailed, Message: "the server could not create the deployment because of an internal error; the server's log describes it"})
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("postponing a schedule: %w", err)
	}
	return nil
}

// change calls change in a transaction and stores the schedule, if it is still due.
func (s *Service) change(ctx context.Context, due store.ScheduleRef, change func(*store.Tx, *store.Schedule) error) error {
	return s.db.Write(ctx, scope.Stack(due.OrgID, due.StackID), func(tx *store.Tx) error {
		c, err := tx.Schedule(due.ID)
		if errors.Is(err, store.ErrNotFound) {
			return nil // deleted since
		}
		if err != nil {
			return err
		}
		if c.Paused || c.NextAt.IsZero() || c.TryAt.After(tx.Now()) {
			return nil // paused, changed or fired since
		}
		if err := change(tx, &c); err != nil {
			return err
		}
		return tx.UpdateSchedule(c)
	})
}

// fireIn creates the deployment of a due schedule, unless the schedule is too late, its previous
// deployment is still queued, or it has already fired for this time.
func (s *Service) fireIn(ctx context.Context, tx *store.Tx, c *store.Schedule) error {
	now := tx.Now()
	if _, err := tx.ScheduleEvent(c.ID, c.NextAt); !errors.Is(err, store.ErrNotFound) {
		if err != nil {
			return err
		}
		return advance(c, now) // the clock was set back
	}
	if d := now.Sub(c.NextAt); d > late && c.Kind != store.TTLSchedule {
		if err := record(tx, c, store.ScheduleEvent{Result: store.ScheduleSkipped, Message: fmt.Sprintf("missed: the server could fire the schedule only %s after its time", words.Duration(d))}); err != nil {
			return err
		}
		if c.Cron != "" {
			return arm(c, now.Add(-late)) // it fires once for the times that are not too late
		}
		return advance(c, now)
	}
	if c.LastDeployment != "" {
		job, err := tx.JobOfDeployment(c.LastDeployment)
		if err == nil && job.Status == workflow.StatusNotStarted {
			return finish(tx, c, store.ScheduleEvent{Result: store.ScheduleSkipped, Message: fmt.Sprintf("deployment #%d of this schedule is still queued", job.Version)})
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	st, err := tx.Stack(c.StackID)
	if err != nil {
		return err
	}
	d, err := s.create(ctx, tx, st, *c)
	if fault.Refuses(err) {
		return finish(tx, c, store.ScheduleEvent{Result: store.ScheduleFailed, Message: termtext.OneLine(err.Error(), maxText)})
	}
	if err != nil {
		return err
	}
	c.LastDeployment = d.ID
	tx.OnCommit(func() {
		s.log.WithFields(logrus.Fields{"schedule_id": c.ID, "deployment_id": d.ID, "stack": st.Ref()}).Info("schedule fired")
	})
	return finish(tx, c, store.ScheduleEvent{Result: store.ScheduleSucceeded, DeploymentID: d.ID, Version: d.Version})
}

func (s *Service) create(ctx context.Context, tx *store.Tx, st store.Stack, c store.Schedule) (store.Deployment, error) {
	p, err := identity.ActAs(tx, st, identity.Actor(c.Actor))
	if err != nil {
		return store.Deployment{}, err
	}
	return s.deployments.CreateStored(audit.By(ctx, audit.WaySchedule, p.AuditActor()), tx, p, st, []byte(c.Request), string(c.Kind))
}

// finish records an event for the time at which a schedule is due, and advances the schedule.
func finish(tx *store.Tx, c *store.Schedule, e store.ScheduleEvent) error {
	if err := record(tx, c, e); err != nil {
		return err
	}
	return advance(c, c.LastAt)
}

func record(tx *store.Tx, c *store.Schedule, e store.ScheduleEvent) error {
	e.ID, e.ScheduleID, e.DueAt, e.HappenedAt = identity.NewID(), c.ID, c.NextAt, tx.Now()
	c.LastAt = e.HappenedAt
	c.Fired = c.Cron == "" && e.Result == store.ScheduleSucceeded
	if err := tx.InsertScheduleEvent(e); err != nil {
		return err
	}
	return tx.TrimScheduleEvents(c.ID, c.NextAt, shownEvents)
}

// advance sets the next time after now at which a schedule is due. A one-time schedule is never due
// again.
func advance(c *store.Schedule, now time.Time) error {
	if c.Cron != "" {
		// The clock can be behind the time that was due.
		if c.NextAt.After(now) {
			now = c.NextAt
		}
		return arm(c, now)
	}
	c.NextAt, c.TryAt, c.Tries, c.ArmedAt = time.Time{}, time.Time{}, 0, now
	return nil
}

// rearm repairs schedules whose next time was computed while the clock was ahead. Otherwise they
// would not be due until the clock reaches that time again, or never, if they were skipped because
// they seemed late.
func (s *Service) rearm(ctx context.Context) error {
	early, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.ScheduleRef, error) {
		return tx.EarlySchedules(tx.Now().Add(clockSlack), batch)
	})
	if err != nil {
		return fmt.Errorf("reading schedules from the future: %w", err)
	}
	for _, ref := range early {
		err := s.db.Write(ctx, scope.Stack(ref.OrgID, ref.StackID), func(tx *store.Tx) error {
			c, err := tx.Schedule(ref.ID)
			now := tx.Now()
			if err != nil || !c.ArmedAt.After(now.Add(clockSlack)) {
				return store.IgnoreMissing(err)
			}
			return rearmIn(tx, c, now)
		})
		if err != nil {
			return fmt.Errorf("rearming a schedule after the clock was set back: %w", err)
		}
		s.log.WithField("schedule_id", ref.ID).Warn("the clock was set back; computed the next time of a schedule again")
	}
	return nil
}

func rearmIn(tx *store.Tx, c store.Schedule, now time.Time) error {
	if c.Fired {
		c.ArmedAt = now
		return tx.UpdateSchedule(c)
	}
	if c.Cron == "" && c.NextAt.IsZero() {
		// Only an event that did nothing may be repeated.
		e, err := tx.ScheduleEvent(c.ID, c.OnceAt)
		if err == nil {
			err = tx.DeleteScheduleEvent(e.ID)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	if err := arm(&c, now); err != nil {
		return err
	}
	return tx.UpdateSchedule(c)
}
