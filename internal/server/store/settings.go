package store

import (
	"fmt"
	"time"
)

// DeploymentSettings are the stored deployment settings of a stack.
type DeploymentSettings struct {
	StackID   string
	Document  string // JSON of workflow.Settings, secrets encrypted
	Source    string // the kind of client that wrote them
	Version   int64  // counts the changes
	PoolID    string // as in Document, for queries
	UpdatedAt time.Time
}

const settingsColumns = "stack_id, document, source, version, pool_id, updated_at"

func readSettings(scan scanFunc) (DeploymentSettings, error) {
	var s DeploymentSettings
	var updated int64
	err := scan(&s.StackID, &s.Document, &s.Source, &s.Version, &s.PoolID, &updated)
	s.UpdatedAt = fromMicros(updated)
	return s, err
}

// DeploymentSettings returns the settings of a stack or [ErrNotFound].
func (tx *Tx) DeploymentSettings(stackID string) (DeploymentSettings, error) {
	return one(tx, readSettings, "SELECT "+settingsColumns+" FROM deployment_settings WHERE stack_id = $1", stackID)
}

// SettingsOfPool returns at most limit settings that name a pool.
func (tx *Tx) SettingsOfPool(poolID string, limit int) ([]DeploymentSettings, error) {
	return collect(tx, readSettings, fmt.Sprintf("SELECT "+settingsColumns+" FROM deployment_settings WHERE pool_id = $1 LIMIT %d", limit), poolID)
}

// SaveDeploymentSettings stores the settings of a stack.
func (tx *Tx) SaveDeploymentSettings(s DeploymentSettings) error {
	_, err := tx.exec("INSERT INTO deployment_settings ("+settingsColumns+`) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (stack_id) DO UPDATE SET document = excluded.document, source = excluded.source,
		version = excluded.version, pool_id = excluded.pool_id, updated_at = excluded.updated_at`,
		s.StackID, s.Document, s.Source, s.Version, s.PoolID, micros(s.UpdatedAt))
	return err
}

// DeleteDeploymentSettings removes the settings of a stack, if any.
func (tx *Tx) DeleteDeploymentSettings(stackID string) error {
	_, err := tx.exec("DELETE FROM deployment_settings WHERE stack_id = $1", stackID)
	return err
}

// StackQueue is the state of a stack's queue.
type StackQueue struct {
	StackID     string
	LastVersion int64 // of its newest deployment
	Paused      bool
	BlockedBy   string // a lost deployment whose update may still be running
}

// StackQueue returns the queue of a stack, the zero queue if it has none yet.
func (tx *Tx) StackQueue(stackID string) (StackQueue, error) {
	return optional(tx, StackQueue{StackID: stackID}, readStackQueue,
		"SELECT stack_id, last_version, paused, blocked_by FROM stack_queues WHERE stack_id = $1", stackID)
}

func readStackQueue(scan scanFunc) (StackQueue, error) {
	var q StackQueue
	var paused int64
	err := scan(&q.StackID, &q.LastVersion, &paused, &q.BlockedBy)
	q.Paused = paused != 0
	return q, err
}

// BlockedQueues returns the queues blocked by a lost deployment.
func (tx *Tx) BlockedQueues() ([]StackQueue, error) {
	return collect(tx, readStackQueue, "SELECT stack_id, last_version, paused, blocked_by FROM stack_queues WHERE blocked_by <> ''")
}

// SaveStackQueue stores the queue of a stack.
func (tx *Tx) SaveStackQueue(q StackQueue) error {
	_, err := tx.exec(`INSERT INTO stack_queues (stack_id, last_version, paused, blocked_by) VALUES ($1, $2, $3, $4)
		ON CONFLICT (stack_id) DO UPDATE SET last_version = excluded.last_version,
		paused = excluded.paused, blocked_by = excluded.blocked_by`,
		q.StackID, q.LastVersion, flag(q.Paused), q.BlockedBy)
	return err
}

// PausedStacks returns "project/stack" of the paused stacks of an organization.
func (tx *Tx) PausedStacks(orgID string) ([]string, error) {
	return collect(tx, func(scan scanFunc) (string, error) {
		var project, name string
		err := scan(&project, &name)
		return project + "/" + name, err
	}, `SELECT s.project, s.name FROM stack_queues q JOIN stacks s ON s.id = q.stack_id
		WHERE s.org_id = $1 AND q.paused = 1 ORDER BY s.project, s.name`, orgID)
}
