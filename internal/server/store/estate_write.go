package store

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// writingOperations are the operations for which [workflow.Operation.Changes] reports true.
const writingOperations = "('update', 'destroy', 'refresh', 'remediate-drift')"

// The kinds and statuses of updates; see package stacks.
const (
	kindUpdate      = "update"
	kindRefresh     = "refresh"
	updateSucceeded = "succeeded"
	updateCancelled = "cancelled"
)

// updateStarted records in a stack's row that an update has started. A preview marks the run, not the stack.
func (tx *Tx) updateStarted(u Update) error {
	if u.Preview {
		return nil
	}
	by, who, number, kind := u.RequestedBy, "", int64(0), u.Kind
	listed := false // whether the entry of a deployment in the activity stands for the update
	if u.DeploymentID != "" {
		d, err := tx.runOf(u.DeploymentID)
		if err != nil {
			return err
		}
		if d.ID != "" {
			by, who, number, kind = d.RequestedBy, d.Requester, d.Version, string(d.Operation)
			listed = d.Operation.Changes()
		}
	}
	if !listed {
		if err := tx.listUpdate(u); err != nil {
			return err
		}
	}
	return tx.changeEstate(u.StackID, func(e *Estate) {
		if number == 0 || e.LastDeployment != number {
			e.LastStartedAt = u.StartedAt
		}
		e.LastKind, e.LastDeployment, e.LastVersion, e.LastResult = kind, number, u.Version, RunRunning
		e.LastBy, e.LastWho, e.LastMessage, e.LastEndedAt = by, who, u.Message, time.Time{}
	})
}

// updateFinished records in a stack's row how an update has ended. That of a deployment is a part of its run.
func (tx *Tx) updateFinished(u Update) error {
	if u.Status == updateSucceeded && (u.Kind == kindRefresh || u.Kind == kindUpdate && !u.Preview && u.DeploymentID != "") {
		if err := tx.driftChanged(u.StackID); err != nil {
			return err
		}
	}
	if err := tx.evaluationChanged(u); err != nil {
		return err
	}
	if u.Preview || u.DeploymentID != "" {
		return nil
	}
	result := resultOf(u.Status)
	return tx.changeEstate(u.StackID, func(e *Estate) {
		e.Runs = e.Runs.with(Run{Result: result, Took: u.FinishedAt.Sub(u.StartedAt), Number: u.Version})
		if e.LastDeployment == 0 && e.LastVersion == u.Version {
			e.LastResult, e.LastEndedAt = result, u.FinishedAt
		}
	})
}

func resultOf(status string) RunResult {
	switch status {
	case updateSucceeded:
		return RunSucceeded
	case updateCancelled:
		return RunCancelled
	default:
		return RunFailed
	}
}

// driftChanged records whether a stack has drift, after an update that may have found or ended some.
func (tx *Tx) driftChanged(stackID string) error {
	detection, decided, err := tx.DriftOf(stackID)
	if err != nil || detection == nil {
		return err
	}
	return tx.changeEstate(stackID, func(e *Estate) {
		e.Drift, e.DriftAt, e.DriftChanges = NoDrift, detection.FinishedAt, detection.ResourceChanges
		switch {
		case decided != nil:
			e.DriftAt = decided.FinishedAt
		case Drifted(detection.ResourceChanges):
			e.Drift = DriftFound
		}
	})
}

// Drifted reports whether the resource changes of a detection contain drift, by the rule of pulumi refresh
// --expect-no-changes.
func Drifted(changes string) bool {
	var counts map[string]int64
	if json.Unmarshal([]byte(changes), &counts) != nil {
		return false
	}
	for op, n := range counts {
		if n > 0 && Drifts(op) {
			return true
		}
	}
	return false
}

// Drifts reports whether an operation of the engine in a detection stands for a resource that differs from the state.
func Drifts(op string) bool { return !slices.Contains(unchanging, op) }

// unchanging are the operations of the engine that change nothing.
var unchanging = []string{"same", "read", "read-discard", "read-replacement"}

var estateWithJobs = "SELECT " + estates.Expressions() + strings.NewReplacer("COUNT", "(SELECT COUNT(*) FROM jobs j WHERE j.stack_id = e.stack_id AND j.operation IN "+writingOperations+" AND j.status").
	Replace(", COUNT IN ('accepted', 'running')), COUNT = 'not-started') FROM estate e WHERE e.stack_id = $1")

// jobChanged records a job's status in its stack's row.
func (tx *Tx) jobChanged(j Job) error {
	var active, queued int64
	e, err := database.One(tx.Tx, func(scan database.Scan) (e Estate, err error) {
		err = scan(append(estates.Fields(&e), &active, &queued)...)
		return e, err
	}, estateWithJobs, j.StackID)
	if err != nil {
		return IgnoreMissing(err)
	}
	before := e
	e.Active, e.Queued = active, queued
	switch {
	case j.Status == workflow.StatusRunning && j.Operation.Changes():
		err = tx.deploymentRuns(&e, j)
	case j.Status == workflow.StatusSucceeded || j.Status == workflow.StatusFailed:
		err = tx.deploymentEnded(&e, j)
	}
	if err != nil {
		return err
	}
	return tx.saveEstate(before, e)
}

// deploymentRuns records that a deployment that writes has started.
func (tx *Tx) deploymentRuns(e *Estate, j Job) error {
	if e.LastDeployment == j.Version || e.LastStartedAt.After(j.StartedAt) {
		return nil
	}
	return tx.lastDeployment(e, j, j.StartedAt)
}

// lastDeployment makes a deployment the last run of a stack, as it is before its update starts.
func (tx *Tx) lastDeployment(e *Estate, j Job, from time.Time) error {
	d, err := tx.runOf(j.DeploymentID)
	if err != nil {
		return err
	}
	e.LastKind, e.LastDeployment, e.LastVersion, e.LastResult = string(j.Operation), j.Version, 0, RunRunning
	e.LastBy, e.LastWho, e.LastMessage, e.LastStartedAt, e.LastEndedAt = d.RequestedBy, d.Requester, "", from, time.Time{}
	return nil
}

// deploymentEnded records how a deployment has ended. One that was cancelled before its start changed nothing.
func (tx *Tx) deploymentEnded(e *Estate, j Job) error {
	cancelled := j.Reason == workflow.ReasonCancelled
	if cancelled && j.StartedAt.IsZero() {
		return nil
	}
	last := e.LastDeployment == j.Version
	writes := last || j.Operation.Changes()
	if !writes && !j.DriftFound {
		return nil
	}
	run := Run{Result: RunSucceeded, Deployment: true, Number: j.Version}
	switch {
	case j.DriftFound:
		run.Result = RunDrift
	case cancelled:
		run.Result = RunCancelled
	case j.Status == workflow.StatusFailed:
		run.Result = RunFailed
	}
	from := j.StartedAt
	if from.IsZero() {
		from = j.EndedAt
	}
	run.Took = j.EndedAt.Sub(from)
	e.Runs = e.Runs.with(run)
	if writes && !last && !e.LastStartedAt.After(from) {
		if err := tx.lastDeployment(e, j, from); err != nil {
			return err
		}
		last = true
	}
	if writes && last {
		e.LastResult, e.LastEndedAt = run.Result, j.EndedAt
	}
	return nil
}
