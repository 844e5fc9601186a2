package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// LatestVersion is the name of an environment's newest revision.
const LatestVersion = "latest"

// EnvironmentRevision is a revision of an environment.
type EnvironmentRevision struct {
	EnvironmentID string
	Number        int64
	Definition    string // YAML, in which secrets are ciphertexts
	CreatedBy     string // name of the caller
	CreatedAt     time.Time
	Replacement   int64 // number of the revision that replaces it, if it is retracted
	RetractedBy   string
	RetractedAt   time.Time // zero unless it is retracted
	Reason        string    // of the retraction
}

// RevisionInfo is a revision without its definition.
type RevisionInfo struct {
	EnvironmentID string
	Number        int64
	CreatedBy     string
	CreatedAt     time.Time
	Replacement   int64
	RetractedBy   string
	RetractedAt   time.Time
	Reason        string
}

// RevisionTag is a name of a revision.
type RevisionTag struct {
	EnvironmentID         string
	Name                  string
	Number                int64
	EditedBy              string // name of the caller
	CreatedAt, ModifiedAt time.Time
}

// EnvironmentTag is a tag of an environment.
type EnvironmentTag struct {
	EnvironmentID, Name, Value string
	EditedBy                   string // name of the caller
	CreatedAt, ModifiedAt      time.Time
}

var (
	environmentRevisions = database.NewTable[EnvironmentRevision]("environment_revisions r")
	revisionInfos        = database.NewTable[RevisionInfo]("environment_revisions r")
	revisionTags         = database.NewTable[RevisionTag]("environment_revision_tags t")
	environmentTags      = database.NewTable[EnvironmentTag]("environment_tags t")
)

// InsertRevision adds a revision.
func (tx *Tx) InsertRevision(r EnvironmentRevision) error {
	return environmentRevisions.Insert(tx.Tx, r)
}

// Revision returns a revision of an environment.
func (tx *Tx) Revision(environmentID string, number int64) (EnvironmentRevision, error) {
	return environmentRevisions.One(tx.Tx, "WHERE r.environment_id = $1 AND r.number = $2", environmentID, number)
}

// RevisionInfo returns a revision of an environment without its definition.
func (tx *Tx) RevisionInfo(environmentID string, number int64) (RevisionInfo, error) {
	return revisionInfos.One(tx.Tx, "WHERE r.environment_id = $1 AND r.number = $2", environmentID, number)
}

// RevisionInfos returns up to limit revisions of an environment with lower numbers than before, the newest first.
func (tx *Tx) RevisionInfos(environmentID string, before int64, limit int) ([]RevisionInfo, error) {
	return revisionInfos.All(tx.Tx, fmt.Sprintf("WHERE r.environment_id = $1 AND r.number < $2 ORDER BY r.number DESC LIMIT %d", limit), environmentID, before)
}

// DeleteOldestRevisions removes up to limit revisions of an environment, the oldest first, but keeps a number of the newest ones.
// It returns how many it removed.
func (tx *Tx) DeleteOldestRevisions(environmentID string, keep, limit int) (int64, error) {
	numbers, err := database.Scalars[int64](tx.Tx, fmt.Sprintf(`SELECT number FROM environment_revisions WHERE environment_id = $1
		AND number NOT IN (SELECT number FROM environment_revisions WHERE environment_id = $1 ORDER BY number DESC LIMIT %d) ORDER BY number LIMIT %d`, keep, limit), environmentID)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	last := numbers[len(numbers)-1]
	if _, err := tx.Exec("DELETE FROM environment_imports WHERE environment_id = $1 AND number <= $2", environmentID, last); err != nil {
		return 0, err
	}
	return tx.Exec("DELETE FROM environment_revisions WHERE environment_id = $1 AND number <= $2", environmentID, last)
}

// LastRevisionBefore returns the highest number below another one of a revision that is not retracted, or [ErrNotFound].
func (tx *Tx) LastRevisionBefore(environmentID string, number int64) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT number FROM environment_revisions WHERE environment_id = $1 AND number < $2 AND replacement = 0 ORDER BY number DESC LIMIT 1",
		environmentID, number)
}

// RetractRevision records that another revision replaces one. The tags of that one then name the other.
func (tx *Tx) RetractRevision(r RevisionInfo) error {
	if err := tx.ExecOne("UPDATE environment_revisions SET replacement = $3, retracted_by = $4, retracted_at = $5, reason = $6 WHERE environment_id = $1 AND number = $2",
		r.EnvironmentID, r.Number, r.Replacement, r.RetractedBy, r.RetractedAt, r.Reason); err != nil {
		return err
	}
	_, err := tx.Exec("UPDATE environment_revision_tags SET number = $3, edited_by = $4, modified_at = $5 WHERE environment_id = $1 AND number = $2",
		r.EnvironmentID, r.Number, r.Replacement, r.RetractedBy, r.RetractedAt)
	return err
}

// SaveRevisionTag adds a name of a revision, or lets it name another one.
func (tx *Tx) SaveRevisionTag(t RevisionTag) error {
	return revisionTags.Merge(tx.Tx, t, "environment_id, name", "number = excluded.number, edited_by = excluded.edited_by, modified_at = excluded.modified_at")
}

// RevisionTag returns a name of a revision.
func (tx *Tx) RevisionTag(environmentID, name string) (RevisionTag, error) {
	return revisionTags.One(tx.Tx, "WHERE t.environment_id = $1 AND t.name = $2", environmentID, name)
}

// RevisionTags returns up to limit names of an environment's revisions that follow a name, by name; only those of one
// revision if number is not 0.
func (tx *Tx) RevisionTags(environmentID string, number int64, after string, limit int) ([]RevisionTag, error) {
	key := tx.Bytewise("t.name")
	return revisionTags.All(tx.Tx, fmt.Sprintf("WHERE t.environment_id = $1 AND ($2 = 0 OR t.number = $2) AND %[1]s > $3 ORDER BY %[1]s LIMIT %[2]d", key, limit),
		environmentID, number, after)
}

// TagsOfRevisions returns the names of an environment's revisions with numbers from first to last, by name.
func (tx *Tx) TagsOfRevisions(environmentID string, first, last int64) ([]RevisionTag, error) {
	return revisionTags.All(tx.Tx, "WHERE t.environment_id = $1 AND t.number >= $2 AND t.number <= $3 ORDER BY "+tx.Bytewise("t.name"), environmentID, first, last)
}

// CountRevisionTags returns the number of the names of an environment's revisions.
func (tx *Tx) CountRevisionTags(environmentID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM environment_revision_tags WHERE environment_id = $1", environmentID)
}

// DeleteRevisionTag removes a name of a revision, or returns [ErrNotFound].
func (tx *Tx) DeleteRevisionTag(environmentID, name string) error {
	return tx.ExecOne("DELETE FROM environment_revision_tags WHERE environment_id = $1 AND name = $2", environmentID, name)
}

// SaveEnvironmentTag adds a tag, or replaces its value.
func (tx *Tx) SaveEnvironmentTag(t EnvironmentTag) error {
	return environmentTags.Merge(tx.Tx, t, "environment_id, name", "value = excluded.value, edited_by = excluded.edited_by, modified_at = excluded.modified_at")
}

// EnvironmentTag returns a tag of an environment.
func (tx *Tx) EnvironmentTag(environmentID, name string) (EnvironmentTag, error) {
	return environmentTags.One(tx.Tx, "WHERE t.environment_id = $1 AND t.name = $2", environmentID, name)
}

// EnvironmentTags returns the tags of environments, by name.
func (tx *Tx) EnvironmentTags(environmentIDs ...string) ([]EnvironmentTag, error) {
	if len(environmentIDs) == 0 {
		return nil, nil
	}
	where, args := among("t.environment_id", environmentIDs, nil)
	return environmentTags.All(tx.Tx, "WHERE "+where+" ORDER BY "+tx.Bytewise("t.name")+", t.environment_id", args...)
}

// DeleteEnvironmentTag removes a tag of an environment, or returns [ErrNotFound].
func (tx *Tx) DeleteEnvironmentTag(environmentID, name string) error {
	return tx.ExecOne("DELETE FROM environment_tags WHERE environment_id = $1 AND name = $2", environmentID, name)
}
