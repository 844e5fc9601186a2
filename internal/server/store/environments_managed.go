package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// ManagedEnvironment is an environment that a stack manages.
type ManagedEnvironment struct {
	StackID       string // the stack need not exist any more
	EnvironmentID string
	CreatedAt     time.Time
	OrgID         string `db:"-" read:"e.org_id"`
	Project       string `db:"-" read:"e.project"`
	Name          string `db:"-" read:"e.name"`
}

// EnvironmentDraft is a definition with which a command evaluates a managed environment before an update publishes it.
type EnvironmentDraft struct {
	ID, EnvironmentID string
	TokenID           string // of the caller who made it
	Base              int64  // number of the revision that it changes
	Definition        string // YAML, in which secrets are ciphertexts
	Imports           []string
	CreatedAt         time.Time
}

var (
	managedEnvironments = database.NewTable[ManagedEnvironment]("managed_environments m JOIN environments e ON e.id = m.environment_id")
	environmentDrafts   = database.NewTable[EnvironmentDraft]("environment_drafts d")
)

// InsertManagedEnvironment records that a stack manages an environment.
func (tx *Tx) InsertManagedEnvironment(m ManagedEnvironment) error {
	return managedEnvironments.Insert(tx.Tx, m)
}

// ManagedEnvironment returns the environment that a stack manages, or [ErrNotFound].
func (tx *Tx) ManagedEnvironment(stackID string) (ManagedEnvironment, error) {
	return managedEnvironments.One(tx.Tx, "WHERE m.stack_id = $1", stackID)
}

// UnmanagedEnvironments returns up to limit environments that purged stacks managed.
func (tx *Tx) UnmanagedEnvironments(limit int) ([]ManagedEnvironment, error) {
	return managedEnvironments.All(tx.Tx, fmt.Sprintf("WHERE NOT EXISTS (SELECT 1 FROM stacks s WHERE s.id = m.stack_id) ORDER BY m.stack_id LIMIT %d", limit))
}

// ReleaseEnvironment records that no stack manages an environment any more.
func (tx *Tx) ReleaseEnvironment(environmentID string) error {
	_, err := tx.Exec("DELETE FROM managed_environments WHERE environment_id = $1", environmentID)
	return err
}

// InsertEnvironmentDraft adds a draft, and removes the oldest ones of its token and environment, of which it keeps the newest.
func (tx *Tx) InsertEnvironmentDraft(d EnvironmentDraft, keep int) error {
	if err := environmentDrafts.Insert(tx.Tx, d); err != nil {
		return err
	}
	_, err := tx.Exec(fmt.Sprintf(`DELETE FROM environment_drafts WHERE environment_id = $1 AND token_id = $2 AND id NOT IN (SELECT id FROM (
		SELECT id FROM environment_drafts WHERE environment_id = $1 AND token_id = $2 ORDER BY created_at DESC, id DESC LIMIT %d) newest)`, keep), d.EnvironmentID, d.TokenID)
	return err
}

// EnvironmentDraft returns a draft of an environment, or [ErrNotFound].
func (tx *Tx) EnvironmentDraft(environmentID, id string) (EnvironmentDraft, error) {
	return environmentDrafts.One(tx.Tx, "WHERE d.environment_id = $1 AND d.id = $2", environmentID, id)
}

// DeleteOldDrafts removes up to limit drafts that were made before a time, and returns their number.
func (tx *Tx) DeleteOldDrafts(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf("DELETE FROM environment_drafts WHERE id IN (SELECT id FROM environment_drafts WHERE created_at < $1 LIMIT %d%s)", limit, tx.SkipLocked()), before)
}
