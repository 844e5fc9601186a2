package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// OldUpdate is an update of which a part can be removed.
type OldUpdate struct {
	ID, StackID string
	OrgID       string `read:"s.org_id"`
	FinishedAt  time.Time
}

// OldJob is a job whose log can be removed.
type OldJob struct {
	ID, OrgID, StackID string
	EndedAt            time.Time
}

// StackOwner is a stack and its organization.
type StackOwner struct{ ID, OrgID string }

var (
	stackOwners = database.NewTable[StackOwner]("stack_owners")
	oldUpdates  = database.NewTable[OldUpdate]("updates u JOIN stack_owners s ON s.id = u.stack_id")
	oldJobs     = database.NewTable[OldJob]("jobs j")
)

// The conditions under which data is never removed because of its age: a job j waits, runs or is
// its stack's newest, unless the stack was deleted; an update u belongs to such a job.
const (
	jobKept = `(j.status IN ('not-started', 'accepted', 'running') OR EXISTS (SELECT 1 FROM stacks k WHERE k.id = j.stack_id)
		AND NOT EXISTS (SELECT 1 FROM deployments n WHERE n.stack_id = j.stack_id AND n.version > j.version))`
	updateKept = `EXISTS (SELECT 1 FROM jobs j WHERE j.deployment_id = u.deployment_id AND ` + jobKept + `)`
)

// StackOwners returns up to limit stacks that follow the id after, in order.
func (tx *Tx) StackOwners(after string, limit int) ([]StackOwner, error) {
	return stackOwners.All(tx.Tx, fmt.Sprintf("WHERE id > $1 ORDER BY id LIMIT %d", limit), after)
}

// OldStates returns the ids of a stack's updates, oldest first, that finished before a time and
// whose states can be removed. It omits the newest versions that have a state; keep is their
// number.
func (tx *Tx) OldStates(stackID string, keep int64, before time.Time, limit int) ([]string, error) {
	return database.Scalars[string](tx.Tx, fmt.Sprintf(`SELECT u.id FROM updates u JOIN stacks s ON s.id = u.stack_id
		WHERE u.stack_id = $1 AND u.preview = 0 AND u.state_blob <> '' AND u.state_blob <> s.state_blob
		AND u.finished_at > 0 AND u.finished_at < $2
		AND u.version <= (SELECT version FROM updates WHERE stack_id = $1 AND preview = 0 AND state_blob <> ''
			ORDER BY version DESC LIMIT 1 OFFSET %d)
		AND NOT `+updateKept+` ORDER BY u.version LIMIT %d`, keep, limit), stackID, before)
}

// ExpireState records that an update's state is no longer available.
func (tx *Tx) ExpireState(updateID string) error {
	_, err := tx.Exec("UPDATE updates SET state_blob = '', state_expired = 1 WHERE id = $1", updateID)
	return err
}

// replaced is the condition that an update later than u exists, of the same kind, and that no deployment
// needs u.
const replaced = `EXISTS (SELECT 1 FROM updates n WHERE n.stack_id = u.stack_id AND n.preview = u.preview AND n.created_at > u.created_at)
		AND NOT ` + updateKept

// OldEvents returns updates whose events can be removed, in the order in which the updates
// finished. It selects updates with from <= finish time < before.
func (tx *Tx) OldEvents(from, before time.Time, limit int) ([]OldUpdate, error) {
	return oldUpdates.All(tx.Tx, fmt.Sprintf(`WHERE u.events_expired = 0 AND u.finished_at > 0
		AND u.finished_at >= $1 AND u.finished_at < $2
		AND `+replaced+` ORDER BY u.finished_at LIMIT %d`, limit), from, before)
}

// OldPrograms returns updates that finished before a time and whose long programs can be shortened.
func (tx *Tx) OldPrograms(before time.Time, limit int) ([]OldUpdate, error) {
	return oldUpdates.All(tx.Tx, fmt.Sprintf(`WHERE octet_length(u.program) > 4096
		AND u.finished_at > 0 AND u.finished_at < $1 AND `+replaced+" LIMIT %d", limit), before)
}

// SetProgram replaces the JSON of the request that created an update.
func (tx *Tx) SetProgram(updateID, program string) error {
	_, err := tx.Exec("UPDATE updates SET program = $2 WHERE id = $1", updateID, program)
	return err
}

// ExpireEvents removes up to limit batches of an update's events and returns their number. After it
// has removed the last batch, it records that the events are no longer available.
func (tx *Tx) ExpireEvents(updateID string, limit int) (int64, error) {
	n, err := tx.Exec(fmt.Sprintf(`DELETE FROM engine_events WHERE update_id = $1 AND sequence IN (
		SELECT sequence FROM engine_events WHERE update_id = $1 ORDER BY sequence LIMIT %d)`, limit), updateID)
	if err != nil || n >= int64(limit) {
		return n, err
	}
	if _, err := tx.Exec("DELETE FROM policy_violations WHERE update_id = $1", updateID); err != nil { // at most 1000
		return n, err
	}
	// The numbers of violations remain, and whether the pack ran. Its counts can be the only sign of that.
	if _, err := tx.Exec(`UPDATE policy_runs SET levels = '', counts = '', ran = CASE WHEN counts IN ('', 'null', '[]') THEN ran ELSE 1 END
		WHERE update_id = $1`, updateID); err != nil {
		return n, err
	}
	_, err = tx.Exec("UPDATE updates SET events_expired = 1, event_bytes = 0 WHERE id = $1", updateID)
	return n, err
}

// DeleteUnstarted removes up to limit updates that were created before a time and never started, and
// returns their number.
func (tx *Tx) DeleteUnstarted(before time.Time, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`DELETE FROM updates WHERE id IN (
		SELECT id FROM updates WHERE status = 'not started' AND created_at < $1 ORDER BY created_at LIMIT %d%s)`, limit, tx.SkipLocked()), before)
}

// OldLogs returns jobs whose logs can be removed, in the order in which the jobs ended. It selects
// jobs with from <= end time < before.
func (tx *Tx) OldLogs(from, before time.Time, limit int) ([]OldJob, error) {
	return oldJobs.All(tx.Tx, fmt.Sprintf(`WHERE j.log_expired = 0 AND j.ended_at > 0 AND j.ended_at >= $1 AND j.ended_at < $2
		AND NOT `+jobKept+` ORDER BY j.ended_at LIMIT %d`, limit), from, before)
}

// ExpiredConfiguration replaces the long configuration of a deployment whose log was removed. The space
// distinguishes it from the configuration of a deployment without settings.
const ExpiredConfiguration = "{ }"

// ExpireLog records that a job's log is no longer available, and removes the configuration of its
// deployment if it is long.
func (tx *Tx) ExpireLog(jobID string) error {
	if _, err := tx.Exec("UPDATE jobs SET log_expired = 1, log_bytes = 0 WHERE id = $1", jobID); err != nil {
		return err
	}
	_, err := tx.Exec(`UPDATE deployments SET configuration = $2 WHERE octet_length(configuration) > 4096
		AND id = (SELECT deployment_id FROM jobs WHERE id = $1)`, jobID, ExpiredConfiguration)
	return err
}

// sparePages determines the free space that remains for later rows: one in sparePages pages of a
// SQLite database.
const sparePages = 4

// FreePages returns up to limit unused pages of a SQLite database to the file system, and returns
// their number. It keeps some unused pages for later rows.
func (tx *Tx) FreePages(limit int) (int64, error) {
	var values [3]int64
	for i, name := range []string{"auto_vacuum", "page_count", "freelist_count"} {
		var err error
		if values[i], err = database.Scalar[int64](tx.Tx, "PRAGMA "+name); err != nil {
			return 0, err
		}
	}
	const incremental = 2
	pages, free := values[1], values[2]
	// Each returned page is one of pages, too. So as many are returned with a low limit as with a high one.
	n := min(int64(limit), (sparePages*free-pages)/(sparePages-1))
	if values[0] != incremental || n <= 0 {
		return 0, nil
	}
	_, err := tx.Exec(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", n))
	return n, err
}
