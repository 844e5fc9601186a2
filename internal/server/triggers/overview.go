package triggers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Overview is a part of the schedules of an organization.
type Overview struct {
	List []store.Schedule
	// More reports whether further schedules follow.
	More bool
	// OrgPaused reports whether all deployments of the organization are paused.
	OrgPaused bool
	// PausedStacks are the paused stacks of the organization, in the form project/stack.
	PausedStacks map[string]bool
}

// OfOrg returns up to f.Limit schedules of the stacks of an organization that a caller can see, in
// the order in which they are due, paused ones last.
func (s *Service) OfOrg(ctx context.Context, p identity.Principal, f store.OrgScheduleFilter) (Overview, error) {
	o := Overview{PausedStacks: map[string]bool{}}
	if p.Role(f.OrgID) == "" {
		return o, fault.Forbidden("%s does not belong to the organization", p.Name())
	}
	limit := f.Limit
	f.Reach, f.Limit = p.Reach(f.OrgID), limit+1
	size, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) { return tx.SchedulesOfOrgBytes(f) })
	if err != nil {
		return o, fmt.Errorf("measuring schedules: %w", err)
	}
	if err := budget.Of(ctx).Take(ctx, requestCopies*size); err != nil {
		return o, err
	}
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		o.List, err = tx.SchedulesOfOrg(f)
		if err != nil {
			return err
		}
		queue, err := tx.OrgQueue(f.OrgID)
		if err != nil {
			return err
		}
		paused, err := tx.PausedStacks(f.Reach)
		o.OrgPaused = queue.Paused
		for _, name := range paused {
			o.PausedStacks[name] = true
		}
		return err
	})
	if err != nil {
		return o, fmt.Errorf("listing the schedules of an organization: %w", err)
	}
	o.More = len(o.List) > limit
	o.List = o.List[:min(limit, len(o.List))]
	return o, nil
}

// stored is what [Purpose] reads of the request of a schedule.
type stored struct {
	Operation        string
	OperationContext struct {
		Options struct{ RemediateIfDriftDetected, DeleteAfterDestroy bool }
	}
}

func requestOf(c store.Schedule) (r stored) {
	_ = json.Unmarshal([]byte(c.Request), &r) // Create encoded it
	return r
}

// Remediates reports whether a schedule puts back the drift that it finds.
func Remediates(c store.Schedule) bool {
	return requestOf(c).OperationContext.Options.RemediateIfDriftDetected
}

// Purpose says what a schedule does.
func Purpose(c store.Schedule) string {
	request := requestOf(c)
	text := strings.ReplaceAll(request.Operation, "-", " ")
	if c.Kind == store.TTLSchedule {
		text = "time to live: " + text
	}
	switch {
	case request.OperationContext.Options.RemediateIfDriftDetected:
		text += " and remediate"
	case request.OperationContext.Options.DeleteAfterDestroy:
		text += " and delete the stack"
	}
	return text
}

// Outcome is the newest event of a schedule, and the status of the deployment that it created, or "".
type Outcome struct {
	store.ScheduleEvent
	Status workflow.Status
}

// Outcomes returns the newest events of those schedules that have one, by the ids of the schedules.
func (s *Service) Outcomes(ctx context.Context, list []store.Schedule) (map[string]Outcome, error) {
	out := map[string]Outcome{}
	err := s.db.Read(ctx, func(tx *store.Tx) error {
		for _, c := range list {
			events, err := tx.ScheduleEvents(c.ID, 1)
			if err != nil {
				return err
			}
			if len(events) == 0 {
				continue
			}
			o := Outcome{ScheduleEvent: events[0]}
			if o.DeploymentID != "" {
				d, err := tx.DeploymentSummary(o.DeploymentID)
				if store.IgnoreMissing(err) != nil {
					return err
				}
				o.Status = d.Job.Status
			}
			out[c.ID] = o
		}
		return nil
	})
	return out, fault.While(err, "reading what schedules did")
}
