package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// DeploymentKey identifies a request for a new deployment, which its client can repeat.
type DeploymentKey struct {
	StackID      string
	KeyHash      string // of the key and its caller
	BodyHash     string
	DeploymentID string
	CreatedAt    time.Time
}

var deploymentKeys = database.NewTable[DeploymentKey]("deployment_keys")

// DeploymentKey returns the request with a key, or [ErrNotFound].
func (tx *Tx) DeploymentKey(stackID, keyHash string) (DeploymentKey, error) {
	return deploymentKeys.One(tx.Tx, "WHERE stack_id = $1 AND key_hash = $2", stackID, keyHash)
}

// InsertDeploymentKey adds a request, and removes the stack's requests from before a time.
func (tx *Tx) InsertDeploymentKey(k DeploymentKey, before time.Time) error {
	if _, err := tx.Exec("DELETE FROM deployment_keys WHERE stack_id = $1 AND created_at < $2", k.StackID, before); err != nil {
		return err
	}
	return deploymentKeys.Insert(tx.Tx, k)
}
