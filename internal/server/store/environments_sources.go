package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// EnvironmentSource is the repository from which an organization's environments come.
type EnvironmentSource struct {
	OrgID         string
	IntegrationID string
	Repository    string // name
	RemoteID      string // the forge's id of the repository; "" until it is known
	Branch        string // short name
	Folder        string // "" is the root
	// Deletes is set if environments that came from the repository are deleted when it no longer contains them, and Checks
	// if pull requests are checked.
	Deletes, Checks bool
	CreatedBy       string // name of the caller who set it last
	CreatedAt       time.Time
	ModifiedAt      time.Time
	DueAt           time.Time // of the next poll
	HookAt          time.Time // of the last delivery; zero for none
	HookedAt        time.Time // when the integration had changed last before its webhook was registered
	Failures        int64     // polls that failed since one succeeded
	Problem         string    // of the last poll, or of the newest commit
	Tried           string    // the newest commit whose definitions were read
	Applied         string    // the last commit whose definitions were applied
	AppliedAt       time.Time
	PullCursor      string
}

var environmentSources = database.NewTable[EnvironmentSource]("environment_sources s")

// SaveEnvironmentSource adds or replaces the source of an organization's environments.
func (tx *Tx) SaveEnvironmentSource(s EnvironmentSource) error {
	return environmentSources.Save(tx.Tx, s, "org_id")
}

// EnvironmentSource returns the source of an organization's environments.
func (tx *Tx) EnvironmentSource(orgID string) (EnvironmentSource, error) {
	return environmentSources.One(tx.Tx, "WHERE s.org_id = $1", orgID)
}

// EnvironmentSources returns the sources in the repositories of an integration.
func (tx *Tx) EnvironmentSources(integrationID string) ([]EnvironmentSource, error) {
	return environmentSources.All(tx.Tx, "WHERE s.integration_id = $1", integrationID)
}

// DueEnvironmentSources returns up to limit sources that must be polled now, of organizations that exist.
func (tx *Tx) DueEnvironmentSources(now time.Time, limit int) ([]EnvironmentSource, error) {
	return environmentSources.All(tx.Tx, `WHERE s.due_at <= $1 AND EXISTS (SELECT 1 FROM organizations o WHERE o.id = s.org_id AND o.deleted_at = 0)
		ORDER BY s.due_at, s.org_id LIMIT $2`, now, limit)
}

// HeardOfEnvironmentSource makes the poll of a source due because of a delivery.
func (tx *Tx) HeardOfEnvironmentSource(orgID string, now time.Time) error {
	_, err := tx.Exec("UPDATE environment_sources SET due_at = $2, hook_at = $2 WHERE org_id = $1 AND hook_at < $2", orgID, now)
	return err
}

// PostponeEnvironmentSource sets the time of the next poll of a source, unless it was changed since it was read.
func (tx *Tx) PostponeEnvironmentSource(s EnvironmentSource, until time.Time) error {
	_, err := tx.Exec("UPDATE environment_sources SET due_at = $2 WHERE org_id = $1 AND due_at = $3 AND modified_at = $4", s.OrgID, until, s.DueAt, s.ModifiedAt)
	return err
}

// DeleteEnvironmentSource removes the source of an organization's environments, which remain.
func (tx *Tx) DeleteEnvironmentSource(orgID string) error {
	return tx.ExecOne("DELETE FROM environment_sources WHERE org_id = $1", orgID)
}

// EnvironmentOrigin is the file from which an environment came.
type EnvironmentOrigin struct {
	EnvironmentID string
	Path          string
	CommitID      string // that made the last change
}

var environmentOrigins = database.NewTable[EnvironmentOrigin]("environment_origins g")

// SaveEnvironmentOrigin records from which file an environment came.
func (tx *Tx) SaveEnvironmentOrigin(o EnvironmentOrigin) error {
	return environmentOrigins.Save(tx.Tx, o, "environment_id")
}

// EnvironmentOrigins returns the files from which an organization's environments came.
func (tx *Tx) EnvironmentOrigins(orgID string) ([]EnvironmentOrigin, error) {
	return environmentOrigins.All(tx.Tx, "WHERE g.environment_id IN (SELECT e.id FROM environments e WHERE e.org_id = $1) ORDER BY g.environment_id", orgID)
}

// DeleteEnvironmentOrigins forgets from which files an organization's environments came.
func (tx *Tx) DeleteEnvironmentOrigins(orgID string) error {
	_, err := tx.Exec("DELETE FROM environment_origins WHERE environment_id IN (SELECT e.id FROM environments e WHERE e.org_id = $1)", orgID)
	return err
}

// EnvironmentCheck is the checked commit of an open pull request.
type EnvironmentCheck struct {
	OrgID    string
	Pull     int64
	CommitID string
	ReportID string // of the forge
}

var environmentChecks = database.NewTable[EnvironmentCheck]("environment_checks c")

// SaveEnvironmentCheck records that a commit of a pull request was checked.
func (tx *Tx) SaveEnvironmentCheck(c EnvironmentCheck) error {
	return environmentChecks.Save(tx.Tx, c, "org_id, pull")
}

// EnvironmentCheck returns the checked commit of a pull request.
func (tx *Tx) EnvironmentCheck(orgID string, pull int64) (EnvironmentCheck, error) {
	return environmentChecks.One(tx.Tx, "WHERE c.org_id = $1 AND c.pull = $2", orgID, pull)
}

// DeleteEnvironmentChecks removes the check of a closed pull request, or those of all if pull is 0.
func (tx *Tx) DeleteEnvironmentChecks(orgID string, pull int64) error {
	_, err := tx.Exec("DELETE FROM environment_checks WHERE org_id = $1 AND ($2 = 0 OR pull = $2)", orgID, pull)
	return err
}
