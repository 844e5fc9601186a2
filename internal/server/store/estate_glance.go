package store

import (
	"fmt"
	"time"
)

// SilentStacks returns the stacks of an organization that the caller sees and that running updates hold whose leases
// expire before a time, the longest silent first, without their configurations.
func (tx *Tx) SilentStacks(orgID string, reach Reach, before time.Time, limit int) ([]Stack, error) {
	visible, args := reach.query(orgID, before)
	if visible == "" {
		return nil, nil
	}
	return tx.stacksWithoutConfig(fmt.Sprintf(`JOIN updates u ON u.id = s.active_update WHERE s.org_id = $1 AND u.status = 'running'
		AND u.lease_expires_at < $2 AND %s ORDER BY u.lease_expires_at LIMIT %d`, visible, limit), args...)
}

// LastChange is what a stack's row lacks of the last run that writes.
type LastChange struct {
	Update    Update // that the run started; zero if it started none
	Initiator string // of the deployment; "" if the run is none
	Cause     *Cause // why the deployment failed; nil if unknown
}

// LastChange returns what a stack's row lacks of the last run that writes.
func (tx *Tx) LastChange(e Estate) (c LastChange, err error) {
	if e.LastVersion > 0 {
		if c.Update, err = tx.UpdateByVersion(e.StackID, e.LastVersion); IgnoreMissing(err) != nil {
			return c, err
		}
	}
	if e.LastDeployment == 0 {
		return c, nil
	}
	d, err := tx.DeploymentByVersion(e.StackID, e.LastDeployment)
	if err != nil || e.LastResult != RunFailed {
		c.Initiator = d.Initiator
		return c, IgnoreMissing(err)
	}
	c.Initiator = d.Initiator
	job, err := tx.JobOfDeployment(d.ID)
	c.Cause = job.Cause
	return c, IgnoreMissing(err)
}
