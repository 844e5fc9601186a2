// Package drift reports which drift runs found that a stack's resources differ from its state. A
// run's result is derived from the run's deployment and updates, so that it is never older than
// they are.
package drift

import (
	"context"
	"errors"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Run is a drift run with its result.
type Run struct {
	store.DriftRun
	Status    workflow.Status // of the run, which can differ from the deployment's
	Known     bool            // the detection has a result
	Detected  bool            // the detection found drift
	Detect    *store.Update   // the preview of a refresh; nil before it starts
	Remediate *store.Update   // nil unless the run started to remediate
}

// Status is what the drift runs of a stack found.
type Status struct {
	// Detected reports that the newest detection found drift, and that neither a deployment has put back what
	// is declared nor a refresh has stored what it found since. Runs on only some resources do not count.
	Detected bool
	// Detection is the newest detection with a result for all resources; nil if none exists.
	Detection *store.Update
	// Decided is the update after the detection that ended the drift; nil if none did.
	Decided *store.Update
	Latest  string // id of the newest run that was not skipped; "" if none exists
	Running bool
}

// Service reads drift runs.
type Service struct{ db *store.DB }

// New returns a service on a database.
func New(db *store.DB) *Service { return &Service{db} }

// runMemory is the memory needed for a run with its updates, in bytes.
const runMemory = 128 << 10

// List returns a page of a stack's drift runs, newest first, and the number of all runs.
func (s *Service) List(ctx context.Context, st store.Stack, page, size int) ([]Run, int64, error) {
	if page < 1 || page > 1<<20 || size < 1 || size > 100 {
		return nil, 0, fault.Invalid("Invalid query parameter: page starts at 1, pageSize is 1 to 100")
	}
	if err := budget.Of(ctx).Take(ctx, int64(size)*runMemory); err != nil {
		return nil, 0, err
	}
	var out []Run
	total, err := store.Read(ctx, s.db, func(tx *store.Tx) (int64, error) {
		runs, err := tx.DriftRuns(st.ID, size, (page-1)*size)
		if err != nil {
			return 0, err
		}
		out = make([]Run, 0, len(runs))
		for _, r := range runs {
			run, err := assess(tx, r)
			if err != nil {
				return 0, err
			}
			out = append(out, run)
		}
		return tx.CountDriftRuns(st.ID)
	})
	return out, total, fault.While(err, "listing drift runs")
}

// Get returns a drift run of a stack.
func (s *Service) Get(ctx context.Context, st store.Stack, id string) (Run, error) {
	run, err := store.Read(ctx, s.db, func(tx *store.Tx) (Run, error) { return find(tx, st.ID, id) })
	return run, store.IfMissing(err, fault.NotFound("Drift run not found: stack '%s' has no drift run %q", st.Ref(), id))
}

func find(tx *store.Tx, stackID, id string) (Run, error) {
	r, err := tx.DriftRun(stackID, id)
	if err != nil {
		return Run{}, err
	}
	return assess(tx, r)
}

// Of returns the drift run of a job's deployment. The job's status need not be stored yet.
func Of(tx *store.Tx, job store.Job) (Run, error) {
	r, err := tx.DriftRun(job.StackID, job.DeploymentID)
	if err != nil {
		return Run{}, err
	}
	r.Status, r.Reason = job.Status, job.Reason
	return assess(tx, r)
}

// Status returns what the drift runs of a stack found.
func (s *Service) Status(ctx context.Context, st store.Stack) (Status, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) (out Status, err error) {
		if out.Latest, err = tx.LatestDriftRun(st.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return out, err
		}
		if out.Running, err = tx.DriftRunning(st.ID); err != nil {
			return out, err
		}
		out.Detection, out.Decided, err = tx.DriftOf(st.ID)
		out.Detected = out.Detection != nil && out.Decided == nil && found(*out.Detection)
		return out, err
	})
}

// linked is the maximum number of a deployment's updates that are considered, newest first. Only
// pre-run commands run more updates, before the detection.
const linked = 10

// assess returns a drift run with its result.
func assess(tx *store.Tx, r store.DriftRun) (Run, error) {
	run := Run{DriftRun: r, Status: r.Status}
	if r.UpdateID != "" {
		u, err := tx.Update(r.UpdateID)
		run.Detect, run.Status, run.Known, run.Detected = &u, previewStatus(u), known(u), found(u)
		return run, err
	}
	updates, err := tx.UpdatesOfDeployment(r.DeploymentID, linked)
	if err != nil {
		return run, err
	}
	run.pick(updates)
	run.Known = run.Detect != nil && known(*run.Detect)
	run.Detected = run.Known && found(*run.Detect)
	if r.Operation == workflow.OperationDetectDrift && (r.Status == workflow.StatusSucceeded || r.Status == workflow.StatusFailed) {
		run.Status = run.conclude()
	}
	return run, nil
}

// pick selects the updates that detected and remediated drift from a deployment's updates, newest
// first. Updates before the detection belong to pre-run commands.
func (r *Run) pick(updates []store.Update) {
	for _, u := range updates {
		switch {
		case r.Remediate == nil && u.Kind == string(stacks.KindUpdate) && !u.Preview:
			r.Remediate = &u
		case r.Operation == workflow.OperationDetectDrift && detects(u):
			r.Detect = &u
			return
		}
	}
	if r.Operation == workflow.OperationDetectDrift {
		r.Remediate = nil
	}
}

// conclude returns the status of a finished run that detects drift. Without remediation, the
// deployment fails when it finds drift, because pulumi then ends with an error; the detection has
// succeeded. A detection without a result has failed, whatever its deployment reports.
func (r *Run) conclude() workflow.Status {
	succeeded := r.DriftRun.Status == workflow.StatusSucceeded
	if r.Detected && !r.Remediates {
		succeeded = succeeded || r.Reason == workflow.ReasonExitCode
	}
	if r.Detected && r.Remediates {
		succeeded = succeeded && r.Remediate != nil && UpdateStatus(*r.Remediate) == workflow.StatusSucceeded
	}
	if succeeded && r.Known {
		return workflow.StatusSucceeded
	}
	return workflow.StatusFailed
}

func previewStatus(u store.Update) workflow.Status {
	if s := UpdateStatus(u); s != workflow.StatusSucceeded || known(u) {
		return s
	}
	return workflow.StatusFailed
}

// UpdateStatus returns an update's status as a drift run names it.
func UpdateStatus(u store.Update) workflow.Status {
	switch stacks.Status(u.Status) {
	case stacks.NotStarted:
		return workflow.StatusNotStarted
	case stacks.Running:
		return workflow.StatusRunning
	case stacks.Succeeded:
		return workflow.StatusSucceeded
	default:
		return workflow.StatusFailed
	}
}

func detects(u store.Update) bool { return u.Kind == string(stacks.KindRefresh) && u.Preview }

// known reports whether a detection's result is known. Without pulumi's summary, it is unknown.
func known(u store.Update) bool {
	return stacks.Status(u.Status) == stacks.Succeeded && u.ResourceChanges != ""
}

// found reports whether a detection found drift.
func found(u store.Update) bool { return known(u) && store.Drifted(u.ResourceChanges) }
