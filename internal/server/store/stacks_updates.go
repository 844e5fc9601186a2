package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// Update is a run of pulumi against a stack. Previews and imports are updates too.
type Update struct {
	ID, StackID  string
	Kind         string // update, preview, refresh, destroy, import, rename
	Preview      bool   // true for kind preview and with options.dryRun
	Status       string // see package stacks
	Version      int64  // stack version that the update created; for a preview, the version it started from
	RequestedBy  string // user id
	DeploymentID string // id of the deployment that runs the update; "" if none does
	// Program is the JSON of the request that created the update. It can be megabytes long, so
	// queries omit a long program; [Tx.Program] returns it.
	Program         string `read:"CASE WHEN octet_length(program) <= 4096 THEN program ELSE '' END"`
	CreatedAt       time.Time
	StartedAt       time.Time
	FinishedAt      time.Time
	LeaseHash       []byte    // SHA-256 of the update token
	LeaseExpiresAt  time.Time // the client renews the lease while the update runs
	Reason          string    // reason why the update ended; "" if none is recorded
	StateBlob       string    // key of the state that the update stored; "" before it stores one
	StateSchema     int64
	ResourceCount   int64
	ResourceChanges string // JSON object from operations to counts; "" until known
	// NextSequence is the sequence number of the first missing engine event. All events with lower
	// numbers are stored.
	NextSequence   int64
	StateExpired   bool  // the state was removed because of its age
	EventsExpired  bool  // the events were removed because of their age
	JournalVersion int64 // version of the journal that the client can send; 0 if it sends checkpoints
	// CheckpointSequence is the sequence number of the last verbatim checkpoint; 0 before the first.
	CheckpointSequence int64
	TokenID            string // organization or team token that created the update; "" for other callers
	Message            string // what the client says about it, in one line and cut off
	Targeted           bool   // the client has named the only resources to work on, or some to leave out
	// Unevaluated are the names of the required policy packs without which the update ended.
	Unevaluated []string
	OrgID       string `db:"-" read:"(SELECT k.org_id FROM stack_owners k WHERE k.id = updates.stack_id)"` // of the stack
}

var updates = database.NewTable[Update]("updates")

// InsertUpdate adds an update.
func (tx *Tx) InsertUpdate(u Update) error {
	err := updates.Insert(tx.Tx, u)
	if err == nil && !u.StartedAt.IsZero() {
		err = tx.updateStarted(u)
	}
	if err == nil && !u.FinishedAt.IsZero() {
		err = tx.updateFinished(u)
	}
	return err
}

// Update returns an update by its id.
func (tx *Tx) Update(id string) (Update, error) {
	return updates.One(tx.Tx, "WHERE id = $1", id)
}

// UpdatedSince reports whether an operation that brings a stack's state up to date has succeeded since a time.
func (tx *Tx) UpdatedSince(stackID string, at time.Time) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM updates
		WHERE stack_id = $1 AND finished_at > $2 AND preview = 0 AND status = 'succeeded' AND kind IN ('update', 'refresh', 'destroy', 'import')`, stackID, at)
	return n > 0, err
}

// UpdateOnStack returns an update by its id if it runs on the named stack.
func (tx *Tx) UpdateOnStack(id, org, project, name string) (Update, error) {
	return updates.One(tx.Tx, "JOIN live_stacks s ON s.id = updates.stack_id WHERE updates.id = $1 AND s.org_id = "+named("$2")+
		" AND s.project = $3 AND s.name = $4", id, org, project, name)
}

// StartUpdate writes the fields of an update that change when it starts. It returns [ErrConflict] if
// another update than a preview runs on the stack.
func (tx *Tx) StartUpdate(u Update) error {
	err := updates.Update(tx.Tx, u, "status", "version", "started_at", "lease_hash", "lease_expires_at", "state_schema", "resource_count", "journal_version")
	if err != nil {
		return err
	}
	return tx.updateStarted(u)
}

// RenewUpdate sets the time at which an update's lease expires.
func (tx *Tx) RenewUpdate(id string, expires time.Time) error {
	return updates.Update(tx.Tx, Update{ID: id, LeaseExpiresAt: expires}, "lease_expires_at")
}

// StoreUpdateState writes the state of a running update.
func (tx *Tx) StoreUpdateState(u Update) error {
	return updates.Update(tx.Tx, u, "state_blob", "state_schema", "resource_count", "checkpoint_sequence")
}

// SetResourceChanges sets the JSON object of an update's changes.
func (tx *Tx) SetResourceChanges(id, changes string) error {
	if err := updates.Update(tx.Tx, Update{ID: id, ResourceChanges: changes}, "resource_changes"); err != nil {
		return err
	}
	// The summary of a detection can arrive after its end.
	u, err := updates.One(tx.Tx, "WHERE id = $1 AND kind = 'refresh' AND preview = 1 AND finished_at > 0", id)
	if err != nil {
		return IgnoreMissing(err)
	}
	return tx.driftChanged(u.StackID)
}

// FinishUpdate writes the fields of an update that change when it ends.
func (tx *Tx) FinishUpdate(u Update) error {
	if err := updates.Update(tx.Tx, u, "status", "reason", "finished_at", "state_blob", "state_schema", "resource_count", "unevaluated"); err != nil {
		return err
	}
	return tx.updateFinished(u)
}

// Program returns the JSON of the request that created an update.
func (tx *Tx) Program(updateID string) (string, error) {
	return database.Scalar[string](tx.Tx, "SELECT program FROM updates WHERE id = $1", updateID)
}

// UpdateFilter selects the started updates of a stack: either the previews or all other updates.
type UpdateFilter struct {
	StackID  string
	Previews bool
	Version  *int64 // of the updates; nil selects all versions
	Asc      bool   // oldest first
	After    *Update
	Limit    int
	Offset   int // number of updates to skip; ignored if After is set
}

func (f UpdateFilter) where() (query string, args []any) {
	query, args = "WHERE stack_id = $1 AND preview = $2 AND started_at > 0", []any{f.StackID, f.Previews}
	if f.Version != nil {
		query, args = query+" AND version = $3", append(args, *f.Version)
	}
	return query, args
}

// UpdatesOfStack returns the selected updates, newest first unless f.Asc is set.
func (tx *Tx) UpdatesOfStack(f UpdateFilter) ([]Update, error) {
	query, args := f.where()
	before, desc := "<", " DESC"
	if f.Asc {
		before, desc = ">", ""
	}
	if f.After != nil {
		n := len(args)
		query += fmt.Sprintf(" AND (version %s $%d OR version = $%d AND (created_at %s $%d OR created_at = $%d AND id > $%d))",
			before, n+1, n+1, before, n+2, n+2, n+3)
		args = append(args, f.After.Version, f.After.CreatedAt, f.After.ID)
		f.Offset = 0
	}
	order := "version" + desc
	if f.Previews { // other updates of a stack have different versions, which an index sorts
		order += ", created_at" + desc + ", id"
	}
	query += fmt.Sprintf(" ORDER BY %s LIMIT %d OFFSET %d", order, f.Limit, f.Offset)
	return updates.All(tx.Tx, query, args...)
}

// CountUpdates returns the number of updates that [Tx.UpdatesOfStack] lists without a limit.
func (tx *Tx) CountUpdates(f UpdateFilter) (int64, error) {
	where, args := f.where()
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM updates "+where, args...)
}

// UpdateByVersion returns the update that created a version of a stack.
func (tx *Tx) UpdateByVersion(stackID string, version int64) (Update, error) {
	return updates.One(tx.Tx, `WHERE stack_id = $1 AND version = $2 AND preview = 0 AND started_at > 0`, stackID, version)
}

// UpdateOfState returns the update that stored a state. Later updates can share the state.
func (tx *Tx) UpdateOfState(key string) (Update, error) {
	return updates.One(tx.Tx, `WHERE state_blob = $1 AND state_blob <> '' ORDER BY version LIMIT 1`, key)
}

// UpdatesOfDeployment returns the updates that a deployment started, newest first.
func (tx *Tx) UpdatesOfDeployment(deploymentID string, limit int) ([]Update, error) {
	return updates.All(tx.Tx, `WHERE deployment_id = $1 AND started_at > 0 ORDER BY created_at DESC, id`+fmt.Sprintf(" LIMIT %d", limit), deploymentID)
}

// RunningUpdatesOfDeployment returns a deployment's running updates, oldest first.
func (tx *Tx) RunningUpdatesOfDeployment(deploymentID string) ([]Update, error) {
	return updates.All(tx.Tx, `WHERE deployment_id = $1 AND status = 'running' ORDER BY created_at, id`, deploymentID)
}

// RunningPreviews returns the running previews of a stack, oldest first.
func (tx *Tx) RunningPreviews(stackID string) ([]Update, error) {
	return updates.All(tx.Tx, `WHERE stack_id = $1 AND status = 'running' AND preview = 1 ORDER BY created_at, id`, stackID)
}

// UpdateKind is an update's operation, whether the update is a preview, and its status.
type UpdateKind struct {
	Kind    string
	Preview bool
	Status  string
}

// UpdateKindsOfDeployment returns the kinds of the last 100 updates that a deployment started, newest
// first.
func (tx *Tx) UpdateKindsOfDeployment(deploymentID string) ([]UpdateKind, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (k UpdateKind, err error) {
		err = scan(&k.Kind, &k.Preview, &k.Status)
		return k, err
	}, "SELECT kind, preview, status FROM updates WHERE deployment_id = $1 AND started_at > 0 ORDER BY created_at DESC LIMIT 100", deploymentID)
}

// ExpiredUpdates returns the running updates whose leases expired before a time.
func (tx *Tx) ExpiredUpdates(now time.Time) ([]Update, error) {
	return updates.All(tx.Tx, `WHERE status = 'running' AND lease_expires_at < $1 ORDER BY lease_expires_at`, now)
}

// EndLeases makes the update tokens of a user's running updates invalid, except those of deployments that the user has
// requested, which have their own rights.
func (tx *Tx) EndLeases(userID string) error {
	_, err := tx.Exec(`UPDATE updates SET lease_hash = $2 WHERE status = 'running' AND requested_by = $1 AND token_id = ''
		AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.id = updates.deployment_id AND d.requested_by = $1)`, userID, []byte{})
	return err
}

// DeleteUpdates removes up to limit batches of events and updates of a stack, which is being purged. done reports whether none
// remain.
func (tx *Tx) DeleteUpdates(stackID string, limit int) (done bool, err error) {
	n, err := tx.Exec(fmt.Sprintf(`DELETE FROM engine_events WHERE (update_id, sequence) IN (
		SELECT e.update_id, e.sequence FROM updates u JOIN engine_events e ON e.update_id = u.id
		WHERE u.stack_id = $1 LIMIT %d)`, limit), stackID)
	if err != nil || n >= int64(limit) {
		return false, err
	}
	n, err = tx.Exec(fmt.Sprintf("DELETE FROM updates WHERE id IN (SELECT id FROM updates WHERE stack_id = $1 LIMIT %d)", limit), stackID)
	return n < int64(limit), err
}
