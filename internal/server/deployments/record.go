package deployments

import (
	"encoding/json"

	"workflowagent/internal/server/deployments/drift"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
	"workflowagent/internal/workflow"
)

// recordEnd records for webhooks that a job has ended. It records nothing for a skipped deployment,
// which neither succeeded nor failed. It sets in the job whether a detection found drift.
func (s *Service) recordEnd(tx *store.Tx, job *store.Job) error {
	name := webhooks.DeploymentSucceeded
	switch job.Status {
	case workflow.StatusSucceeded:
	case workflow.StatusFailed:
		name = webhooks.DeploymentFailed
	default:
		return nil
	}
	if err := s.record(tx, *job, name); err != nil {
		return err
	}
	if job.Operation != workflow.OperationDetectDrift && job.Operation != workflow.OperationRemediateDrift {
		return nil
	}
	run, err := drift.Of(tx, *job)
	if err != nil {
		return err
	}
	job.DriftFound = run.Detected && !run.Remediates && run.Status == workflow.StatusSucceeded
	for _, name := range driftEvents(run) {
		if err := s.recordDrift(tx, *job, run, name); err != nil {
			return err
		}
	}
	return nil
}

// driftEvents returns the events of a finished drift run.
func driftEvents(run drift.Run) []webhooks.Name {
	remediated := webhooks.DriftRemediationFailed
	if run.Status == workflow.StatusSucceeded {
		remediated = webhooks.DriftRemediationSucceeded
	}
	if run.Operation == workflow.OperationRemediateDrift {
		return []webhooks.Name{remediated}
	}
	remediates := run.Detected && run.Remediates
	names := []webhooks.Name{webhooks.DriftDetectionFailed}
	if run.Status == workflow.StatusSucceeded || remediates {
		names[0] = webhooks.DriftDetectionSucceeded
	}
	if run.Detected {
		names = append(names, webhooks.DriftDetected)
	}
	if remediates {
		names = append(names, remediated)
	}
	return names
}

func (s *Service) recordDrift(tx *store.Tx, job store.Job, run drift.Run, name webhooks.Name) error {
	return webhooks.Record(tx, webhooks.Event{
		Name: name, OrgID: job.OrgID, StackID: job.StackID, DeploymentID: job.DeploymentID,
		Describe: func(org string) (webhooks.Description, error) {
			d, err := tx.Deployment(job.DeploymentID)
			if err != nil {
				return webhooks.Description{}, err
			}
			fields := map[string]any{
				"status": run.Status, "resourceChanges": map[string]int64{},
				"referenceUrl": s.opts.Console.Deployment(org, d.Project, d.Stack, d.Version),
			}
			update := run.Remediate
			if name != webhooks.DriftRemediationSucceeded && name != webhooks.DriftRemediationFailed {
				update = run.Detect
				fields["driftDetected"], fields["driftRunId"] = run.Detected, run.ID
			}
			if update != nil && update.ResourceChanges != "" {
				fields["resourceChanges"] = json.RawMessage(update.ResourceChanges) // the domain encoded it
			}
			return webhooks.Description{Project: d.Project, Stack: d.Stack, UserID: d.RequestedBy, Fields: fields}, nil
		},
	})
}

// record records an event of a job for webhooks.
func (s *Service) record(tx *store.Tx, job store.Job, name webhooks.Name) error {
	return webhooks.Record(tx, webhooks.Event{
		Name: name, OrgID: job.OrgID, StackID: job.StackID, DeploymentID: job.DeploymentID,
		Describe: func(org string) (webhooks.Description, error) {
			d, err := tx.Deployment(job.DeploymentID) // has the names of a deleted stack
			if err != nil {
				return webhooks.Description{}, err
			}
			return webhooks.Description{Project: d.Project, Stack: d.Stack, UserID: d.RequestedBy, Fields: map[string]any{
				"deploymentUrl": s.opts.Console.Deployment(org, d.Project, d.Stack, d.Version),
				"version":       d.Version, "operation": d.Operation, "status": job.Status,
			}}, nil
		},
	})
}
