package store

import (
	"fmt"
	"time"
)

// Update is one run of pulumi against a stack, including previews and imports.
type Update struct {
	ID, StackID  string
	Kind         string // update, preview, refresh, destroy, import, rename
	Preview      bool   // changes nothing: kind preview, or options.dryRun
	Status       string // see package stacks
	Version      int64  // stack version it made; for previews the version it compared with
	RequestedBy  string // user id
	DeploymentID string // deployment that runs it, "" for none
	// Program is the JSON of the request that created it. Reads of updates omit a long one;
	// [Tx.Program] returns it.
	Program         string
	CreatedAt       time.Time
	StartedAt       time.Time
	FinishedAt      time.Time
	LeaseHash       []byte    // SHA-256 of the update token
	LeaseExpiresAt  time.Time // the client renews it while it runs
	Reason          string    // why it ended, "" for none
	StateBlob       string    // newest checkpoint, "" for none
	StateSchema     int64
	ResourceCount   int64
	ResourceChanges string // JSON object operation -> count, "" until known
	// NextSequence is the first missing engine event: all events below it are stored.
	NextSequence int64
}

// Programs may be megabytes long, and most readers of updates do not need them.
const updateColumns = `id, stack_id, kind, preview, status, version, requested_by, deployment_id,
	CASE WHEN octet_length(program) <= 4096 THEN program ELSE '' END,
	created_at, started_at, finished_at, lease_hash, lease_expires_at, reason,
	state_blob, state_schema, resource_count, resource_changes, next_sequence`

func readUpdate(scan scanFunc) (Update, error) {
	var u Update
	var preview, created, started, finished, expires int64
	err := scan(&u.ID, &u.StackID, &u.Kind, &preview, &u.Status, &u.Version, &u.RequestedBy, &u.DeploymentID, &u.Program,
		&created, &started, &finished, &u.LeaseHash, &expires, &u.Reason,
		&u.StateBlob, &u.StateSchema, &u.ResourceCount, &u.ResourceChanges, &u.NextSequence)
	u.Preview = preview != 0
	u.CreatedAt, u.StartedAt, u.FinishedAt = fromMicros(created), fromMicros(started), fromMicros(finished)
	u.LeaseExpiresAt = fromMicros(expires)
	return u, err
}

// InsertUpdate adds an update.
func (tx *Tx) InsertUpdate(u Update) error {
	if u.LeaseHash == nil {
		u.LeaseHash = []byte{}
	}
	_, err := tx.exec(`INSERT INTO updates (id, stack_id, kind, preview, status, version, requested_by, deployment_id, program,
		created_at, started_at, finished_at, lease_hash, lease_expires_at, reason,
		state_blob, state_schema, resource_count, resource_changes, next_sequence)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`,
		u.ID, u.StackID, u.Kind, flag(u.Preview), u.Status, u.Version, u.RequestedBy, u.DeploymentID, u.Program,
		micros(u.CreatedAt), micros(u.StartedAt), micros(u.FinishedAt), u.LeaseHash, micros(u.LeaseExpiresAt), u.Reason,
		u.StateBlob, u.StateSchema, u.ResourceCount, u.ResourceChanges, u.NextSequence)
	return err
}

// Update returns an update by id.
func (tx *Tx) Update(id string) (Update, error) {
	return one(tx, readUpdate, "SELECT "+updateColumns+" FROM updates WHERE id = $1", id)
}

// SaveUpdate writes an update's fields except identity, request and event sequence.
func (tx *Tx) SaveUpdate(u Update) error {
	if u.LeaseHash == nil {
		u.LeaseHash = []byte{}
	}
	return tx.execOne(`UPDATE updates SET status = $2, version = $3, deployment_id = $4, started_at = $5, finished_at = $6,
		lease_hash = $7, lease_expires_at = $8, reason = $9, state_blob = $10, state_schema = $11,
		resource_count = $12, resource_changes = $13 WHERE id = $1`,
		u.ID, u.Status, u.Version, u.DeploymentID, micros(u.StartedAt), micros(u.FinishedAt),
		u.LeaseHash, micros(u.LeaseExpiresAt), u.Reason, u.StateBlob, u.StateSchema,
		u.ResourceCount, u.ResourceChanges)
}

// Program returns the JSON of the request that created an update.
func (tx *Tx) Program(updateID string) (string, error) {
	var text string
	err := tx.queryOne("SELECT program FROM updates WHERE id = $1", []any{updateID}, &text)
	return text, err
}

// UpdatesOfStack returns the started updates of a stack, newest first: either previews or all
// others. The list begins behind the update after, or, if after is nil, after offset updates.
func (tx *Tx) UpdatesOfStack(stackID string, previews bool, after *Update, limit, offset int) ([]Update, error) {
	query := "SELECT " + updateColumns + ` FROM updates
		WHERE stack_id = $1 AND preview = $2 AND started_at > 0`
	args := []any{stackID, flag(previews)}
	if after != nil {
		query += ` AND (version < $3 OR version = $3 AND (created_at < $4 OR created_at = $4 AND id > $5))`
		args = append(args, after.Version, micros(after.CreatedAt), after.ID)
		offset = 0
	}
	query += fmt.Sprintf(" ORDER BY version DESC, created_at DESC, id LIMIT %d OFFSET %d", limit, offset)
	return collect(tx, readUpdate, query, args...)
}

// CountUpdates counts the updates that [Tx.UpdatesOfStack] lists.
func (tx *Tx) CountUpdates(stackID string, previews bool) (int64, error) {
	var n int64
	err := tx.queryOne("SELECT COUNT(*) FROM updates WHERE stack_id = $1 AND preview = $2 AND started_at > 0",
		[]any{stackID, flag(previews)}, &n)
	return n, err
}

// UpdateByVersion returns the update that made a version of a stack.
func (tx *Tx) UpdateByVersion(stackID string, version int64) (Update, error) {
	return one(tx, readUpdate, "SELECT "+updateColumns+` FROM updates
		WHERE stack_id = $1 AND version = $2 AND preview = 0 AND started_at > 0`, stackID, version)
}

// UpdatesOfDeployment returns the newest updates that a deployment started.
func (tx *Tx) UpdatesOfDeployment(deploymentID string, limit int) ([]Update, error) {
	return collect(tx, readUpdate, "SELECT "+updateColumns+` FROM updates
		WHERE deployment_id = $1 AND started_at > 0 ORDER BY created_at DESC, id`+fmt.Sprintf(" LIMIT %d", limit), deploymentID)
}

// RunningUpdatesOfDeployment returns a deployment's running updates, oldest first.
func (tx *Tx) RunningUpdatesOfDeployment(deploymentID string) ([]Update, error) {
	return collect(tx, readUpdate, "SELECT "+updateColumns+` FROM updates
		WHERE deployment_id = $1 AND status = 'running' ORDER BY created_at, id`, deploymentID)
}

// UpdateKind is the operation of an update.
type UpdateKind struct {
	Kind    string
	Preview bool
}

// UpdateKindsOfDeployment returns the kinds of updates that a deployment started.
func (tx *Tx) UpdateKindsOfDeployment(deploymentID string) ([]UpdateKind, error) {
	return collect(tx, func(scan scanFunc) (UpdateKind, error) {
		var k UpdateKind
		var preview int64
		err := scan(&k.Kind, &preview)
		k.Preview = preview != 0
		return k, err
	}, "SELECT DISTINCT kind, preview FROM updates WHERE deployment_id = $1 AND started_at > 0", deploymentID)
}

// ExpiredUpdates returns running updates whose lease ended before a time.
func (tx *Tx) ExpiredUpdates(now time.Time) ([]Update, error) {
	return collect(tx, readUpdate, "SELECT "+updateColumns+` FROM updates
		WHERE status = 'running' AND lease_expires_at < $1 ORDER BY lease_expires_at`, micros(now))
}
