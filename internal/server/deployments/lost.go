package deployments

import (
	"errors"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// overtaken returns the number of a newer deployment of the stack that was
// claimed after a job was given up as lost, 0 for none. From then on the job
// begins nothing: its stack belongs to others. What it has done until then it
// still reports.
func overtaken(tx *store.Tx, job store.Job) (int64, error) {
	if job.Reason != workflow.ReasonLost {
		return 0, nil
	}
	return tx.NewestClaim(job.StackID, job.Version)
}

// MayWrite is to be asked, in the same transaction, before a deployment starts
// an update or writes to its stack in another way. A lost deployment may while
// no newer one was claimed, and then none is until its update has ended.
func (s *Service) MayWrite(tx *store.Tx, deploymentID string) error {
	job, err := tx.JobOfDeployment(deploymentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && job.Reason != workflow.ReasonLost {
		return nil
	}
	if err != nil {
		return err
	}
	newer, err := overtaken(tx, job)
	if err != nil {
		return err
	}
	if newer > 0 {
		return fault.Forbidden("Forbidden: deployment #%d was given up as lost, and deployment #%d of the stack has begun since: it must not change the stack any more", job.Version, newer)
	}
	return block(tx, job)
}

// block lets the queue of a stack wait for a lost deployment. The job may have
// removed the stack.
func block(tx *store.Tx, job store.Job) error {
	queue, err := tx.StackQueue(job.StackID)
	if err != nil || queue.BlockedBy == job.DeploymentID {
		return err
	}
	if _, err := tx.Stack(job.StackID); errors.Is(err, store.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	queue.BlockedBy = job.DeploymentID
	return tx.SaveStackQueue(queue)
}

// unblock resumes the queue of a stack that waits for a lost deployment.
func unblock(tx *store.Tx, stackID, deploymentID string) error {
	queue, err := tx.StackQueue(stackID)
	if err != nil || queue.BlockedBy != deploymentID || deploymentID == "" {
		return err
	}
	queue.BlockedBy = ""
	return tx.SaveStackQueue(queue)
}
