package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store/blob"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/workflow"
)

type (
	// Relation is a table whose rows are copied; see [database.Relation].
	Relation = database.Relation
	// Column is a column of a [Relation].
	Column = database.Column
	// Kind is the kind of a [Column].
	Kind = database.Kind
	// Receiver is a new database that receives the content of another one; see [database.Receiver].
	Receiver = database.Receiver
	// NotEmptyError means that nothing may be restored to a database; see [database.NotEmptyError].
	NotEmptyError = database.NotEmptyError
	// NewerSchemaError means that this program does not know a schema; see [database.NewerSchemaError].
	NewerSchemaError = database.NewerSchemaError
)

// The kinds of columns.
const (
	Bigint = database.Bigint
	Text   = database.Text
	Bytea  = database.Bytea
)

// Snapshot is the content of the database at one time; see [database.Snapshot].
type Snapshot struct {
	*Tx
	Blobs blob.Reader
}

// Snapshot runs fn on a snapshot of the database; see [database.DB.Snapshot].
func (db *DB) Snapshot(ctx context.Context, fn func(*Snapshot) error) error {
	return db.DB.Snapshot(ctx, func(s *database.Snapshot) error {
		return fn(&Snapshot{Tx: &Tx{Tx: s.Tx, log: db.log}, Blobs: s.Blobs})
	})
}

// Receive creates a database with the migrations of a schema; see [database.Receive].
func Receive(ctx context.Context, dsn string, opts Options, schema []int64, check func() error, fill func(*Receiver) error) error {
	opts, err := withMigrations(opts)
	if err != nil {
		return err
	}
	return database.Receive(ctx, dsn, opts, schema, check, fill)
}

// TablesOf returns the tables of a schema; see [database.TablesOf].
func TablesOf(ctx context.Context, schema []int64) ([]Relation, error) {
	opts, err := withMigrations(Options{})
	if err != nil {
		return nil, err
	}
	return database.TablesOf(ctx, opts, schema)
}

// BeforeUpdate returns a function for [Options].BeforeUpdate. The schema of its database is an earlier one.
func BeforeUpdate(log *logrus.Entry, do func(ctx context.Context, db *DB) error) func(ctx context.Context, db *database.DB) error {
	return func(ctx context.Context, db *database.DB) error { return do(ctx, &DB{DB: db, log: log}) }
}

const installationID = "id"

// InstallationID returns an id that all servers and backups of the installation have. It sets the id to fresh if the
// installation has none.
func (db *DB) InstallationID(ctx context.Context, fresh string) (string, error) {
	read := func(tx *Tx) ([]byte, error) { return tx.Installation(installationID) }
	id, err := Read(ctx, db, read)
	if IgnoreMissing(err) == nil && err != nil {
		id, err = Write(ctx, db, scope.Server(), func(tx *Tx) ([]byte, error) {
			if err := tx.AddInstallation(installationID, []byte(fresh)); err != nil {
				return nil, err
			}
			return read(tx)
		})
	}
	return string(id), fault.While(err, "reading the id of the installation")
}

// LoggedJobs returns, in bytewise order, the jobs that follow an id and whose logs have not been removed. evaluations is
// set to return policy evaluations, too, which schemas before migration 820 do not have.
func (tx *Tx) LoggedJobs(after string, limit int, evaluations bool) ([]string, error) {
	id := tx.Bytewise("id")
	all := fmt.Sprintf("SELECT id FROM jobs WHERE log_expired = 0 AND %s > $1", id)
	if evaluations {
		all += fmt.Sprintf(" UNION ALL SELECT id FROM policy_evaluations WHERE claimed_at > 0 AND %s > $1", id)
	}
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM (%s) n ORDER BY %s LIMIT %d", all, id, limit), after)
}

// StackIDs returns, in bytewise order, the ids of stacks, also of deleted ones, that follow an id.
func (tx *Tx) StackIDs(after string, limit int) ([]string, error) {
	id := tx.Bytewise("id")
	return database.Scalars[string](tx.Tx, fmt.Sprintf("SELECT id FROM stacks WHERE %[1]s > $1 ORDER BY %[1]s LIMIT %[2]d", id, limit), after)
}

// StateBlobs returns the keys of the blobs of a stack's states, in the order of [blob.Compare].
func (tx *Tx) StateBlobs(stackID string) ([]string, error) {
	// A state from before migration 90 has no row: its key is that of its blob.
	const old = " <> '' AND NOT EXISTS (SELECT 1 FROM states o WHERE o.state_key = "
	keys, err := database.Scalars[string](tx.Tx, `SELECT blob_key FROM states WHERE stack_id = $1 AND blob_key <> ''
		UNION SELECT parent FROM states p WHERE stack_id = $1 AND parent`+old+`p.parent)
		UNION SELECT state_blob FROM stacks n WHERE id = $1 AND state_blob`+old+`n.state_blob)
		UNION SELECT state_blob FROM updates u WHERE stack_id = $1 AND state_blob`+old+`u.state_blob)`, stackID)
	slices.SortFunc(keys, blob.Compare)
	return keys, err
}

// Unfinished names a deployment that has not ended.
type Unfinished struct {
	JobID        string `db:"id"`
	DeploymentID string
	OrgID        string
	StackID      string
	Status       workflow.Status
}

var unfinished = database.NewTable[Unfinished]("jobs")

// Unfinished returns, in the order of their jobs, the deployments that follow a job and have not ended.
func (tx *Tx) Unfinished(after string, limit int) ([]Unfinished, error) {
	return unfinished.All(tx.Tx, fmt.Sprintf("WHERE status IN ('not-started', 'accepted', 'running') AND id > $1 ORDER BY id LIMIT %d", limit), after)
}
