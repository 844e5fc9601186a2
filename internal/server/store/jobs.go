package store

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// StepState is the progress of a step of a job.
type StepState struct {
	Name       string              `json:"name"`
	Status     workflow.StepStatus `json:"status"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	StartedAt  time.Time           `json:"startedAt,omitzero"`
	FinishedAt time.Time           `json:"finishedAt,omitzero"`
	UpdatedAt  time.Time           `json:"updatedAt,omitzero"` // by the database's clock
}

// Note is a line that the server adds to a deployment's log.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// JobResult is a recorded result of a job. A lost job may get a second one; both are kept.
type JobResult struct {
	At     time.Time              `json:"at"`
	Epoch  int64                  `json:"epoch"`
	Result protocol.ResultRequest `json:"result"`
}

// jsonList is a column that holds a list as JSON; the empty list is "".
type jsonList[T any] []T

// Scan implements [database/sql.Scanner].
func (l *jsonList[T]) Scan(src any) error {
	var text []byte
	switch src := src.(type) {
	case string:
		text = []byte(src)
	case []byte:
		text = src
	}
	*l = nil
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, l); err != nil {
		return fmt.Errorf("decoding a column of a job: %w", err)
	}
	return nil
}

// Value implements [driver.Valuer]. JSON escapes NUL, which PostgreSQL's text type refuses.
func (l jsonList[T]) Value() (driver.Value, error) {
	if len(l) == 0 {
		return "", nil
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encoding a column of a job: %w", err)
	}
	return string(text), nil
}

// Job is the execution of a deployment and its position in the queue.
type Job struct {
	ID, DeploymentID string
	OrgID, StackID   string
	PoolID           string // "" while the job has no pool
	PoolPinned       bool   // requested by name: a new default pool does not move the job
	Operation        workflow.Operation
	Version          int64
	SkipIntermediate bool

	Status  workflow.Status
	Reason  workflow.Reason
	Message string
	Epoch   int64 // of the current or next claim, from 1

	AgentID, AgentHostname, AgentVersion string
	PollID                               string
	Stock                                bool // claimed by an agent that knows only the stock calls

	CancelRequested, ForceRequested bool

	Steps   []StepState
	Results []JobResult
	Notes   []Note

	QueuedAt   time.Time
	ClaimedAt  time.Time
	StartedAt  time.Time // when the server permitted the start
	LastSeenAt time.Time // last sign of life, shifted by the time the servers were down
	EndedAt    time.Time
	ModifiedAt time.Time
}

var jobColumnNames = []string{
	"id", "deployment_id", "org_id", "stack_id", "pool_id", "pool_pinned", "operation", "version", "skip_intermediate",
	"status", "reason", "message", "epoch", "agent_id", "agent_hostname", "agent_version", "poll_id", "stock",
	"cancel_requested", "force_requested", "steps", "result", "notes",
	"queued_at", "claimed_at", "started_at", "last_seen_at", "ended_at", "modified_at",
}

// jobColumns lists a job's columns in the order of jobTimes.fields.
func jobColumns(prefix string) string { return prefix + strings.Join(jobColumnNames, ", "+prefix) }

type jobTimes struct {
	pinned, skip, stock, cancel, force                     int64
	queued, claimed, started, lastSeen, ended, modifiedRaw int64
}

func (t *jobTimes) fields(j *Job) []any {
	return []any{
		&j.ID, &j.DeploymentID, &j.OrgID, &j.StackID, &j.PoolID, &t.pinned, &j.Operation, &j.Version, &t.skip,
		&j.Status, &j.Reason, &j.Message, &j.Epoch, &j.AgentID, &j.AgentHostname, &j.AgentVersion, &j.PollID, &t.stock,
		&t.cancel, &t.force, (*jsonList[StepState])(&j.Steps), (*jsonList[JobResult])(&j.Results), (*jsonList[Note])(&j.Notes),
		&t.queued, &t.claimed, &t.started, &t.lastSeen, &t.ended, &t.modifiedRaw,
	}
}

func (t *jobTimes) apply(j *Job) {
	j.PoolPinned, j.SkipIntermediate, j.Stock = t.pinned != 0, t.skip != 0, t.stock != 0
	j.CancelRequested, j.ForceRequested = t.cancel != 0, t.force != 0
	j.QueuedAt, j.ClaimedAt, j.StartedAt = fromMicros(t.queued), fromMicros(t.claimed), fromMicros(t.started)
	j.LastSeenAt, j.EndedAt, j.ModifiedAt = fromMicros(t.lastSeen), fromMicros(t.ended), fromMicros(t.modifiedRaw)
}

func readJob(scan scanFunc) (Job, error) {
	var j Job
	var t jobTimes
	err := scan(t.fields(&j)...)
	t.apply(&j)
	return j, err
}

func (j Job) values() []any {
	return []any{
		j.ID, j.DeploymentID, j.OrgID, j.StackID, j.PoolID, flag(j.PoolPinned), string(j.Operation), j.Version, flag(j.SkipIntermediate),
		string(j.Status), string(j.Reason), j.Message, j.Epoch, j.AgentID, j.AgentHostname, j.AgentVersion, j.PollID, flag(j.Stock),
		flag(j.CancelRequested), flag(j.ForceRequested), jsonList[StepState](j.Steps), jsonList[JobResult](j.Results), jsonList[Note](j.Notes),
		micros(j.QueuedAt), micros(j.ClaimedAt), micros(j.StartedAt), micros(j.LastSeenAt), micros(j.EndedAt), micros(j.ModifiedAt),
	}
}

// InsertJob adds a job.
func (tx *Tx) InsertJob(j Job) error {
	marks := make([]string, len(jobColumnNames))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	_, err := tx.exec("INSERT INTO jobs ("+jobColumns("")+") VALUES ("+strings.Join(marks, ", ")+")", j.values()...)
	return err
}

var saveJobSQL = func() string {
	sets := make([]string, 0, len(jobColumnNames)-1)
	for i, name := range jobColumnNames[1:] {
		sets = append(sets, fmt.Sprintf("%s = $%d", name, i+2))
	}
	return "UPDATE jobs SET " + strings.Join(sets, ", ") + " WHERE id = $1"
}()

// SaveJob stores a job that was read in the same transaction.
func (tx *Tx) SaveJob(j Job) error { return tx.execOne(saveJobSQL, j.values()...) }

// SaveClaim stores the columns that a claim changes. The job must have been read in the same
// transaction. It writes no other columns, because claims are the queue's bottleneck.
func (tx *Tx) SaveClaim(j Job) error {
	return tx.execOne(`UPDATE jobs SET status = $2, agent_id = $3, agent_hostname = $4, agent_version = $5, poll_id = $6,
		stock = $7, claimed_at = $8, last_seen_at = $9, modified_at = $10 WHERE id = $1`,
		j.ID, string(j.Status), j.AgentID, j.AgentHostname, j.AgentVersion, j.PollID,
		flag(j.Stock), micros(j.ClaimedAt), micros(j.LastSeenAt), micros(j.ModifiedAt))
}

// Job returns a job by id.
func (tx *Tx) Job(id string) (Job, error) {
	return one(tx, readJob, "SELECT "+jobColumns("")+" FROM jobs WHERE id = $1", id)
}

// JobOfDeployment returns the job of a deployment.
func (tx *Tx) JobOfDeployment(id string) (Job, error) {
	return one(tx, readJob, "SELECT "+jobColumns("")+" FROM jobs WHERE deployment_id = $1", id)
}

// NextJob returns the job that a pool may claim next, or [ErrNotFound]: the first queued job of an
// organization that is not paused, whose stack exists, is neither paused nor blocked, has no active
// job and no job that waits longer. The caller checks the organization's cap.
func (tx *Tx) NextJob(poolID string) (Job, error) {
	return one(tx, readJob, "SELECT "+jobColumns("j.")+` FROM jobs j
		WHERE j.status = 'not-started' AND j.pool_id = $1
		AND NOT EXISTS (SELECT 1 FROM jobs a WHERE a.stack_id = j.stack_id AND a.status IN ('accepted', 'running'))
		AND NOT EXISTS (SELECT 1 FROM jobs q WHERE q.stack_id = j.stack_id AND q.status = 'not-started' AND q.version < j.version)
		AND EXISTS (SELECT 1 FROM stacks s WHERE s.id = j.stack_id)
		AND NOT EXISTS (SELECT 1 FROM stack_queues w WHERE w.stack_id = j.stack_id AND (w.paused = 1 OR w.blocked_by <> ''))
		AND NOT EXISTS (SELECT 1 FROM org_queues o WHERE o.org_id = j.org_id AND o.paused = 1)
		ORDER BY j.queued_at, j.id LIMIT 1`, poolID)
}

// JobByPoll returns the job that a poll of a pool claimed, if that claim still holds.
func (tx *Tx) JobByPoll(poolID, pollID string) (Job, error) {
	return one(tx, readJob, "SELECT "+jobColumns("")+` FROM jobs
		WHERE poll_id = $1 AND poll_id <> '' AND pool_id = $2 AND status = 'accepted'`, pollID, poolID)
}

// CountActiveJobs counts the claimed and running jobs of an organization.
func (tx *Tx) CountActiveJobs(orgID string) (int64, error) {
	var n int64
	err := tx.queryOne("SELECT COUNT(*) FROM jobs WHERE org_id = $1 AND status IN ('accepted', 'running')", []any{orgID}, &n)
	return n, err
}

// NewestClaim returns the newest claimed version of a stack above a given one, or 0.
func (tx *Tx) NewestClaim(stackID string, than int64) (int64, error) {
	var n int64
	err := tx.queryOne(`SELECT COALESCE(MAX(d.version), 0) FROM deployments d JOIN jobs j ON j.deployment_id = d.id
		WHERE d.stack_id = $1 AND d.version > $2 AND j.claimed_at > 0`, []any{stackID, than}, &n)
	return n, err
}

// QueuedJobsOfStack returns the queued jobs of a stack, oldest first.
func (tx *Tx) QueuedJobsOfStack(stackID string) ([]Job, error) {
	return collect(tx, readJob, "SELECT "+jobColumns("")+" FROM jobs WHERE stack_id = $1 AND status = 'not-started' ORDER BY version", stackID)
}

// ActiveJobsOfStack returns the claimed and running jobs of a stack.
func (tx *Tx) ActiveJobsOfStack(stackID string) ([]Job, error) {
	return collect(tx, readJob, "SELECT "+jobColumns("")+" FROM jobs WHERE stack_id = $1 AND status IN ('accepted', 'running')", stackID)
}

// SilentJobs returns the jobs in a status that have given no sign of life since before.
func (tx *Tx) SilentJobs(status workflow.Status, before time.Time) ([]Job, error) {
	return collect(tx, readJob, "SELECT "+jobColumns("")+" FROM jobs WHERE status = $1 AND last_seen_at < $2 ORDER BY last_seen_at LIMIT 200", string(status), micros(before))
}

// StaleQueuedJobs returns jobs queued before a time and queued jobs of deleted stacks.
func (tx *Tx) StaleQueuedJobs(before time.Time) ([]Job, error) {
	return collect(tx, readJob, "SELECT "+jobColumns("j.")+` FROM jobs j WHERE j.status = 'not-started'
		AND (j.queued_at < $1 OR NOT EXISTS (SELECT 1 FROM stacks s WHERE s.id = j.stack_id)) LIMIT 200`, micros(before))
}

// MoveQueuedJobs moves at most limit queued jobs of an organization that did not request a pool to
// a new pool, and returns their number.
func (tx *Tx) MoveQueuedJobs(orgID, poolID string, limit int) (int64, error) {
	return tx.exec(fmt.Sprintf(`UPDATE jobs SET pool_id = $2 WHERE id IN (SELECT id FROM jobs
		WHERE org_id = $1 AND status = 'not-started' AND pool_pinned = 0 AND pool_id <> $2 LIMIT %d)`, limit), orgID, poolID)
}

// AdoptQueuedJobs assigns a pool to a stack's queued jobs without one.
func (tx *Tx) AdoptQueuedJobs(stackID, poolID string) (int64, error) {
	return tx.exec("UPDATE jobs SET pool_id = $2, pool_pinned = 1 WHERE stack_id = $1 AND status = 'not-started' AND pool_id = ''", stackID, poolID)
}

// UnpinQueuedJobs moves at most limit queued jobs of a pool to the default and returns their
// number.
func (tx *Tx) UnpinQueuedJobs(poolID, defaultPool string, limit int) (int64, error) {
	return tx.exec(fmt.Sprintf(`UPDATE jobs SET pool_id = $2, pool_pinned = 0 WHERE id IN (SELECT id FROM jobs
		WHERE pool_id = $1 AND status = 'not-started' LIMIT %d)`, limit), poolID, defaultPool)
}

// ExpireJobTokens limits the lifetime of a job's tokens of one kind.
func (tx *Tx) ExpireJobTokens(jobID string, kind TokenKind, at time.Time) error {
	_, err := tx.exec("UPDATE tokens SET expires_at = $3 WHERE job_id = $1 AND kind = $2 AND (expires_at = 0 OR expires_at > $3)",
		jobID, string(kind), micros(at))
	return err
}

// DeleteJobTokens removes a job's tokens of one kind.
func (tx *Tx) DeleteJobTokens(jobID string, kind TokenKind) error {
	_, err := tx.exec("DELETE FROM tokens WHERE job_id = $1 AND kind = $2", jobID, string(kind))
	return err
}
