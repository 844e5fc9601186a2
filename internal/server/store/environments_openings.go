package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// EnvironmentOpening is the last opening of an environment.
type EnvironmentOpening struct {
	EnvironmentID string
	OpenedAt      time.Time
	OpenedBy      string // name of the caller
}

var environmentOpenings = database.NewTable[EnvironmentOpening]("environment_openings u")

// openedEvery is the time in which only one opening of an environment is recorded, so that openings of an environment by many
// jobs do not wait for each other.
const openedEvery = time.Minute

// SaveEnvironmentOpening records the last opening of an environment that exists, to the minute.
func (tx *Tx) SaveEnvironmentOpening(o EnvironmentOpening) error {
	last, err := environmentOpenings.One(tx.Tx, "WHERE u.environment_id = $1", o.EnvironmentID)
	if IgnoreMissing(err) != nil || err == nil && o.OpenedAt.Sub(last.OpenedAt) < openedEvery {
		return IgnoreMissing(err)
	}
	_, err = tx.Exec(`INSERT INTO environment_openings (environment_id, opened_at, opened_by)
		SELECT e.id, CAST($2 AS BIGINT), CAST($3 AS TEXT) FROM environments e WHERE e.id = $1
		ON CONFLICT (environment_id) DO UPDATE SET opened_at = excluded.opened_at, opened_by = excluded.opened_by`, o.EnvironmentID, o.OpenedAt, o.OpenedBy)
	return err
}
