package store

import (
	"time"

	"workflowagent/internal/server/store/database"
)

// ReviewStack is the stack that a template has for a pull request, as it is wanted and as it is.
type ReviewStack struct {
	ID, OrgID             string
	IntegrationID, RepoID string
	Pull                  int64
	TemplateID            string // id of the template's stack
	Project, Name         string
	StackID               string // "" before the stack is created
	Wanted                bool   // whether the stack is to exist
	CommitID              string // the commit that it is to deploy
	Ref                   string // full ref in the repository from which the commit can be fetched, or ""
	Source, Base          string // short names of branches
	Fork                  bool
	Requester             string // the forge's account that opened the pull request
	Deployed              string // the newest commit for which an update was queued
	DeployedAt            time.Time
	TTL                   time.Duration `db:"ttl"` // after DeployedAt, the stack is destroyed; 0 means never
	DestroyID             string        // id of the newest deployment that destroys the stack, or ""
	Tries                 int64         // number of failed deployments that were to destroy the stack
	Problem               string        // why the stack is not as wanted, or ""
	Orphan                bool          // the stack could not be destroyed and is not tried again
	TryAt                 time.Time     // time of the next check
	CreatedAt             time.Time
}

var reviewStacks = database.NewTable[ReviewStack]("review_stacks r")

// InsertReviewStack adds a review stack, or returns [ErrConflict] if the template has one for the pull
// request.
func (tx *Tx) InsertReviewStack(r ReviewStack) error { return reviewStacks.Insert(tx.Tx, r) }

// SaveReviewStack stores a review stack.
func (tx *Tx) SaveReviewStack(r ReviewStack) error { return reviewStacks.Update(tx.Tx, r) }

// ReviewStack returns a review stack by its id.
func (tx *Tx) ReviewStack(id string) (ReviewStack, error) {
	return reviewStacks.One(tx.Tx, "WHERE r.id = $1", id)
}

// ReviewStackOf returns the review stack that is a stack, or [ErrNotFound].
func (tx *Tx) ReviewStackOf(stackID string) (ReviewStack, error) {
	return reviewStacks.One(tx.Tx, "WHERE r.stack_id = $1 AND r.stack_id <> ''", stackID)
}

// ReviewStacksOfPull returns the review stacks of a pull request.
func (tx *Tx) ReviewStacksOfPull(repoID string, pull int64) ([]ReviewStack, error) {
	return reviewStacks.All(tx.Tx, "WHERE r.repo_id = $1 AND r.pull = $2 ORDER BY r.project, r.name, r.id", repoID, pull)
}

// DueReviewStacks returns the ids of up to limit review stacks that are to be checked.
func (tx *Tx) DueReviewStacks(now time.Time, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT id FROM review_stacks WHERE try_at <= $1 ORDER BY try_at, id LIMIT $2", now, limit)
}

// PostponeReviewStack sets the time of the next check of a review stack, if it exists.
func (tx *Tx) PostponeReviewStack(id string, until time.Time) error {
	_, err := tx.Exec("UPDATE review_stacks SET try_at = $2 WHERE id = $1", id, until)
	return err
}

// DeleteReviewStack removes the row of a review stack.
func (tx *Tx) DeleteReviewStack(id string) error {
	return tx.ExecOne("DELETE FROM review_stacks WHERE id = $1", id)
}
