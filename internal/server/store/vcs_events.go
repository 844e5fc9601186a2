package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// VCSEvent is something that a delivery or a poll says about a repository.
type VCSEvent struct {
	ID, OrgID     string
	IntegrationID string
	RepoID        string // "" if no stack watches the repository
	RepoName      string
	DeliveryID    string
	Source        string // webhook, poll or api
	Kind          string
	Subject       string // the full ref, or "pull/N"
	BeforeID      string
	AfterID       string
	Document      string // vcs.Event as JSON, with the numbers of its failed attempts
	Done          bool
	Reason        string // why the event has no decisions, or why it waits
	Detail        string
	ReceivedAt    time.Time
	TryAt         time.Time // time of the next attempt
	Tries         int64     // failed attempts of all kinds
	DoneAt        time.Time // zero until it is done
}

// VCSDecision is what an event means for a stack.
type VCSDecision struct {
	ID, EventID  string
	StackID      string
	Action       string
	Reason       string
	Detail       string
	CommitID     string
	DeploymentID string // "" if the decision caused no deployment
	Version      int64  // of the deployment, or 0
	DecidedAt    time.Time
	Project      string `db:"-" read:"COALESCE(s.project, '')"` // "" if the stack was deleted
	Stack        string `db:"-" read:"COALESCE(s.name, '')"`
}

const fromDecisions = "vcs_decisions d LEFT JOIN live_stacks s ON s.id = d.stack_id"

var (
	vcsEvents    = database.NewTable[VCSEvent]("vcs_events e")
	vcsDecisions = database.NewTable[VCSDecision](fromDecisions)
)

// InsertVCSEvent adds an event, or returns [ErrConflict] if the same delivery was received before.
func (tx *Tx) InsertVCSEvent(e VCSEvent) error { return vcsEvents.Insert(tx.Tx, e) }

// SaveVCSEvent stores an event.
func (tx *Tx) SaveVCSEvent(e VCSEvent) error { return vcsEvents.Update(tx.Tx, e) }

// VCSEvent returns an event by its id.
func (tx *Tx) VCSEvent(id string) (VCSEvent, error) {
	return vcsEvents.One(tx.Tx, "WHERE e.id = $1", id)
}

// HasVCSEvent reports whether an event of a delivery exists.
func (tx *Tx) HasVCSEvent(integrationID, deliveryID, kind, subject string) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM vcs_events WHERE integration_id = $1 AND delivery_id = $2 AND kind = $3 AND subject = $4",
		integrationID, deliveryID, kind, subject)
	return n > 0, err
}

// DueVCSEvents returns the ids of up to limit events that are due: those of a repository in the order
// in which they arrived, while organizations, and the repositories of each, take turns. So many events
// of one do not hide those of the others.
func (tx *Tx) DueVCSEvents(now time.Time, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, `SELECT id FROM (
			SELECT id, received_at, ROW_NUMBER() OVER (PARTITION BY org_id ORDER BY of_repo, received_at, id) AS of_org FROM (
				SELECT id, org_id, received_at, ROW_NUMBER() OVER (PARTITION BY integration_id, repo_id ORDER BY received_at, id) AS of_repo
				FROM vcs_events WHERE done = 0 AND try_at <= $1) AS due) AS ranked
		ORDER BY of_org, received_at, id LIMIT $2`, now, limit)
}

// PendingVCSEvents returns the number of events of a kind about a ref or pull request that are not
// done. The kind "" means all.
func (tx *Tx) PendingVCSEvents(repoID, subject, kind string) (int64, error) {
	return database.Scalar[int64](tx.Tx, "SELECT COUNT(*) FROM vcs_events WHERE repo_id = $1 AND subject = $2 AND done = 0 AND ($3 = '' OR kind = $3)", repoID, subject, kind)
}

// PendingVCSSubjects returns the refs and pull requests of a repository about which events are not done.
func (tx *Tx) PendingVCSSubjects(repoID string) ([]string, error) {
	return database.Scalars[string](tx.Tx, "SELECT DISTINCT subject FROM vcs_events WHERE repo_id = $1 AND done = 0", repoID)
}

// RepeatsVCSEvent reports whether another event moved the same ref from the same commit to the same
// commit, and caused a decision.
func (tx *Tx) RepeatsVCSEvent(e VCSEvent) (bool, error) {
	n, err := database.Scalar[int64](tx.Tx, `SELECT COUNT(*) FROM vcs_events WHERE repo_id = $1 AND subject = $2 AND before_id = $3 AND after_id = $4
		AND id <> $5 AND done = 1 AND reason = ''`, e.RepoID, e.Subject, e.BeforeID, e.AfterID, e.ID)
	return n > 0, err
}

// VCSEventsOfIntegration returns the newest events of an integration, the newest first.
func (tx *Tx) VCSEventsOfIntegration(integrationID string, limit int) ([]VCSEvent, error) {
	return vcsEvents.All(tx.Tx, fmt.Sprintf("WHERE e.integration_id = $1 ORDER BY e.received_at DESC, e.id LIMIT %d", limit), integrationID)
}

// VCSEventsOfStack returns the newest events that have a decision about a stack, the newest first.
func (tx *Tx) VCSEventsOfStack(stackID string, limit int) ([]VCSEvent, error) {
	return vcsEvents.All(tx.Tx, fmt.Sprintf(`WHERE e.id IN (SELECT d.event_id FROM vcs_decisions d WHERE d.stack_id = $1)
		ORDER BY e.received_at DESC, e.id LIMIT %d`, limit), stackID)
}

// InsertVCSDecision adds a decision.
func (tx *Tx) InsertVCSDecision(d VCSDecision) error { return vcsDecisions.Insert(tx.Tx, d) }

// VCSDecisions returns the decisions of an event, by project and stack.
func (tx *Tx) VCSDecisions(eventID string) ([]VCSDecision, error) {
	return vcsDecisions.All(tx.Tx, "WHERE d.event_id = $1 ORDER BY s.project, s.name, d.id", eventID)
}

// DeleteOldVCSEvents removes up to limit events that were received before a time, and returns their
// number.
func (tx *Tx) DeleteOldVCSEvents(before time.Time, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM vcs_events WHERE id IN (SELECT id FROM vcs_events WHERE done = 1 AND received_at < $1 LIMIT $2`+tx.SkipLocked()+")", before, limit)
}

// DeleteExcessVCSEvents removes up to limit of the oldest processed events about pull requests and
// about repositories that no stack watches, of the integrations that have more than keep of them. It
// returns the number of removed events.
func (tx *Tx) DeleteExcessVCSEvents(keep, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM vcs_events WHERE id IN (SELECT id FROM vcs_events WHERE id IN (SELECT id FROM (
		SELECT id, ROW_NUMBER() OVER (PARTITION BY integration_id ORDER BY received_at DESC, id) AS place
		FROM vcs_events WHERE done = 1 AND (kind = 'pull' OR repo_id = '')) AS ranked
		WHERE place > $1 ORDER BY place DESC LIMIT $2)`+tx.SkipLocked()+")", keep, limit)
}
