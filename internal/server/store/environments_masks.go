package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// EnvironmentMask contains secrets of environments that the job of a deployment has opened.
type EnvironmentMask struct {
	ID           string // a keyed hash of the deployment and the secrets
	DeploymentID string
	Sealed       []byte // the secrets, encrypted
	Size         int64  // of the secrets in bytes
	CreatedAt    time.Time
}

var environmentMasks = database.NewTable[EnvironmentMask]("environment_masks")

// AddEnvironmentMask adds secrets, unless the deployment has them already.
func (tx *Tx) AddEnvironmentMask(m EnvironmentMask) error {
	_, err := tx.Exec(`INSERT INTO environment_masks (id, deployment_id, sealed, size, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO NOTHING`, m.ID, m.DeploymentID, m.Sealed, m.Size, m.CreatedAt)
	return err
}

// EnvironmentMasks returns what the job of a deployment has opened.
func (tx *Tx) EnvironmentMasks(deploymentID string) ([]EnvironmentMask, error) {
	return environmentMasks.All(tx.Tx, "WHERE deployment_id = $1 ORDER BY created_at, id", deploymentID)
}

// CountEnvironmentMasks returns the length of [Tx.EnvironmentMasks].
func (tx *Tx) CountEnvironmentMasks(deploymentID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM environment_masks WHERE deployment_id = $1", deploymentID)
}

// DeleteOldEnvironmentMasks removes up to limit rows from before a time, and returns their number.
func (tx *Tx) DeleteOldEnvironmentMasks(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf("DELETE FROM environment_masks WHERE id IN (SELECT id FROM environment_masks WHERE created_at < $1 LIMIT %d%s)", limit, tx.SkipLocked()), before)
}
