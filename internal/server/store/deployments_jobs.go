package store

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store/database"
	"workflowagent/internal/workflow"
)

// StepState is the status of a job's step.
type StepState struct {
	Name       string              `json:"name"`
	Status     workflow.StepStatus `json:"status"`
	ExitCode   *int                `json:"exitCode,omitempty"`
	StartedAt  time.Time           `json:"startedAt,omitzero"`
	FinishedAt time.Time           `json:"finishedAt,omitzero"`
	UpdatedAt  time.Time           `json:"updatedAt,omitzero"` // database time
	Commit     string              `json:"commit,omitempty"`   // that the runner has checked out
	LogBytes   *int64              `json:"logBytes,omitempty"` // size of the ended step's log at its sender
	// PulumiVersion is the version of pulumi that the step runs, if the runner has reported it.
	PulumiVersion string `json:"pulumiVersion,omitempty"`
	// Workspace is the use of the job's workspace, if the step is the source step.
	Workspace protocol.WorkspaceUse `json:"workspace,omitempty"`
}

// Note is a line that the server adds to a deployment's log.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// JobResult is a recorded result of a job. A lost job can receive a second result; both are stored.
type JobResult struct {
	At     time.Time              `json:"at"`
	Epoch  int64                  `json:"epoch"`
	Result protocol.ResultRequest `json:"result"`
}

// Job is the execution of a deployment and its position in the queue.
type Job struct {
	ID, DeploymentID string
	OrgID, StackID   string
	PoolID           string // "" while the job has no pool
	PoolPinned       bool   // the request named the pool, so the job does not follow the default pool
	Operation        workflow.Operation
	Version          int64
	SkipIntermediate bool

	Status  workflow.Status
	Reason  workflow.Reason
	Message string
	Epoch   int64 // number of the current or next claim; starts at 1

	AgentID, AgentHostname, AgentVersion string
	PollID                               string
	AgentPlatform                        string // "" if the agent did not report it
	Stock                                bool   // claimed by an agent that uses only the stock API

	CancelRequested, ForceRequested bool
	// Holder is the name of the runner that received permission to start the current claim. It is
	// "" if no runner has, or if the runner gave no name.
	Holder string

	Steps   []StepState
	Results []JobResult `db:"result"`
	Notes   []Note

	QueuedAt   time.Time
	ClaimedAt  time.Time
	StartedAt  time.Time // time at which the server permitted the start
	LastSeenAt time.Time // last sign of life, shifted by server downtime
	EndedAt    time.Time
	ModifiedAt time.Time

	// Silences is the number of claims whose agent stopped reporting before the job started.
	Silences int64

	LogExpired bool // the log was removed because of its age
	// QueueGroup separates queued deployments that must not supersede each other, such as those of
	// two pull requests.
	QueueGroup string
	// DriftFound is set for a job that only detects drift and has found some. Its status is then mostly failed, because
	// pulumi expected no changes.
	DriftFound bool
	// ConcurrencyGroup is the name of a group of stacks of the organization, or "". None of its jobs is claimed
	// while another one is claimed or running. A running job keeps it when the stack moves to another group.
	ConcurrencyGroup string
	// Cause says why the job failed. It is nil for a job that did not fail, has not ended, or was ended by an earlier
	// version of the server.
	Cause *Cause
}

// Cause says in words why a job failed. The texts are single lines of untrusted text.
type Cause struct {
	Kind     string `json:"kind"` // one of the kinds of package cause
	Headline string `json:"headline"`
	// Message is the message of a resource, or of the program or command that failed, as the log has it.
	Message string `json:"message,omitempty"`
	URN     string `json:"urn,omitempty"` // of the resource that failed
	Step    int    `json:"step"`          // index of the step that failed, or -1
	Line    int64  `json:"line"`          // number of the line of the step's log with the message, from 1, or 0
}

var jobs = database.NewTable[Job]("jobs j")

// InsertJob adds a job with a new id.
func (tx *Tx) InsertJob(j Job) error {
	if err := jobs.Insert(tx.Tx, j); err != nil {
		return err
	}
	return tx.jobChanged(j)
}

// SaveJob stores the named columns of a job, or all columns if none is named. It returns [ErrConflict] if the
// job's stack has another claimed or running job.
func (tx *Tx) SaveJob(j Job, columns ...string) error {
	err := jobs.Update(tx.Tx, j, columns...)
	if errors.Is(err, ErrConflict) {
		err = fmt.Errorf("the stack %s has another claimed or running job than %s: %w", j.StackID, j.ID, err)
	}
	if err == nil && (len(columns) == 0 || slices.Contains(columns, "status")) {
		err = tx.jobChanged(j)
	}
	return err
}

// Job returns a job by its id.
func (tx *Tx) Job(id string) (Job, error) { return jobs.One(tx.Tx, "WHERE id = $1", id) }

// JobOfDeployment returns a deployment's job.
func (tx *Tx) JobOfDeployment(id string) (Job, error) {
	return jobs.One(tx.Tx, "WHERE deployment_id = $1", id)
}

// QueuedJob names a queued job.
type QueuedJob struct{ ID, StackID, ConcurrencyGroup string }

var queuedJobs = database.NewTable[QueuedJob]("jobs j")

// NextJobs returns up to limit jobs that a pool may claim, of different stacks, in the order of their
// claims. They are the first queued jobs of organizations that are not paused. A job's stack must exist,
// must be neither paused nor blocked, and must have no active job and no older queued job. The job's group
// must have no active job and no blocked stack. The caller checks the organization's concurrency limit, and
// claims only one of several jobs of a group.
func (tx *Tx) NextJobs(poolID string, limit int) ([]QueuedJob, error) {
	return queuedJobs.All(tx.Tx, "WHERE j.status = 'not-started' AND j.pool_id = $1 AND "+claimable+fmt.Sprintf(" ORDER BY j.queued_at, j.id LIMIT %d", limit), poolID)
}

// StillNext returns those of jobs from [Tx.NextJobs] that the pool may still claim.
func (tx *Tx) StillNext(poolID string, ids []string) ([]Job, error) {
	where, args := among("j.id", ids, []any{poolID})
	return jobs.All(tx.Tx, "WHERE "+where+" AND j.status = 'not-started' AND j.pool_id = $1 AND "+claimable+" ORDER BY j.queued_at, j.id", args...)
}

// claimable is the condition on a queued job j of [Tx.NextJobs].
const claimable = `NOT EXISTS (SELECT 1 FROM jobs a WHERE a.stack_id = j.stack_id AND a.status IN ('accepted', 'running'))
	AND NOT EXISTS (SELECT 1 FROM jobs q WHERE q.stack_id = j.stack_id AND q.status = 'not-started' AND q.version < j.version)
	AND EXISTS (SELECT 1 FROM live_stacks s WHERE s.id = j.stack_id)
	AND NOT EXISTS (SELECT 1 FROM stack_queues w WHERE w.stack_id = j.stack_id AND (w.paused = 1 OR w.blocked_by <> ''))
	AND NOT EXISTS (SELECT 1 FROM org_queues o WHERE o.org_id = j.org_id AND o.paused = 1)
	AND (j.concurrency_group = '' OR NOT EXISTS (SELECT 1 FROM jobs g WHERE ` + sameGroup + ` AND g.status IN ('accepted', 'running'))
		AND NOT EXISTS (SELECT 1 FROM stack_queues w JOIN jobs g ON g.deployment_id = w.blocked_by WHERE w.blocked_by <> '' AND ` + sameGroup + `))`

const sameGroup = "g.org_id = j.org_id AND g.concurrency_group = j.concurrency_group AND g.concurrency_group <> ''"

// GroupWentOn reports whether another job of a job's group was claimed, and can have started, since the job was
// lost. It sees what other writes have committed.
func (tx *Tx) GroupWentOn(lost Job) (bool, error) {
	if lost.ConcurrencyGroup == "" {
		return false, nil
	}
	const others = "SELECT 1 FROM jobs WHERE org_id = $1 AND concurrency_group = $2 AND concurrency_group <> '' AND id <> $3 AND "
	n, err := database.Scalar[int64](tx.Tx, "SELECT CASE WHEN EXISTS ("+others+"status IN ('accepted', 'running')) OR EXISTS ("+
		others+"started_at > 0 AND ended_at >= $4 AND claimed_at >= $4) THEN 1 ELSE 0 END",
		lost.OrgID, lost.ConcurrencyGroup, lost.ID, lost.EndedAt)
	return n > 0, err
}

// SetConcurrencyGroup sets the group of a stack's queued jobs, and of its claimed, running and lost ones without
// a group. A lost job might still run.
func (tx *Tx) SetConcurrencyGroup(stackID, group string) error {
	_, err := tx.Exec(`UPDATE jobs SET concurrency_group = $2 WHERE stack_id = $1
		AND (status = 'not-started' OR (status IN ('accepted', 'running') OR reason = 'lost') AND concurrency_group = '')`, stackID, group)
	return err
}

// JobsByPolls returns the jobs that polls of a pool's agents claimed and that are claimed or running.
func (tx *Tx) JobsByPolls(poolID string, pollIDs []string) ([]Job, error) {
	where, args := among("poll_id", pollIDs, []any{poolID})
	return jobs.All(tx.Tx, "WHERE "+where+" AND poll_id <> '' AND pool_id = $1 AND status IN ('accepted', 'running')", args...)
}

// CountActiveJobs returns the number of an organization's claimed and running jobs of all types, and its own limit of
// them, or 0.
func (tx *Tx) CountActiveJobs(orgID string) (active, quota int64, err error) {
	n, err := database.One(tx.Tx, func(scan database.Scan) (n [2]int64, err error) {
		err = scan(&n[0], &n[1])
		return n, err
	}, `SELECT (SELECT COUNT(*) FROM jobs WHERE org_id = $1 AND status IN ('accepted', 'running'))
			+ (SELECT COUNT(*) FROM policy_evaluations WHERE org_id = $1 AND status IN ('accepted', 'running')),
		COALESCE((SELECT deployment_quota FROM organizations WHERE id = $1), 0)`, orgID)
	return n[0], n[1], err
}

// CountActiveJobsByAgent returns the number of running jobs of all types of each busy agent of a pool.
func (tx *Tx) CountActiveJobsByAgent(p AgentPool) (map[string]int64, error) {
	return database.Pairs[string, int64](tx.Tx, `SELECT agent_id, COUNT(*) FROM (
		SELECT agent_id FROM jobs WHERE org_id = $1 AND pool_id = $2 AND status IN ('accepted', 'running') UNION ALL
		SELECT agent_id FROM policy_evaluations WHERE org_id = $1 AND pool_id = $2 AND status IN ('accepted', 'running')) a GROUP BY agent_id`, p.OrgID, p.ID)
}

// CountBuiltInJobs returns the number of claimed and running jobs of built-in pools on a host.
func (tx *Tx) CountBuiltInJobs(hostname string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT (SELECT COUNT(*) FROM agent_pools p JOIN jobs j ON j.org_id = p.org_id AND j.pool_id = p.id
		WHERE p.built_in = 1 AND j.status IN ('accepted', 'running') AND j.agent_hostname = $1)
		+ (SELECT COUNT(*) FROM agent_pools p JOIN policy_evaluations j ON j.org_id = p.org_id AND j.pool_id = p.id
		WHERE p.built_in = 1 AND j.status IN ('accepted', 'running') AND j.agent_hostname = $1)`, hostname)
}

// NewestClaim returns the newest claimed deployment version of a stack if it is above the given
// version, and otherwise 0.
func (tx *Tx) NewestClaim(stackID string, than int64) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT COALESCE(MAX(d.version), 0) FROM deployments d JOIN jobs j ON j.deployment_id = d.id
		WHERE d.stack_id = $1 AND d.version > $2 AND j.claimed_at > 0`, stackID, than)
}

// QueuedJobsOfStack returns the queued jobs of a stack, oldest first.
func (tx *Tx) QueuedJobsOfStack(stackID string) ([]Job, error) {
	return jobs.All(tx.Tx, "WHERE stack_id = $1 AND status = 'not-started' ORDER BY version", stackID)
}

// ActiveJobsOfStack returns the claimed and running jobs of a stack.
func (tx *Tx) ActiveJobsOfStack(stackID string) ([]Job, error) {
	return jobs.All(tx.Tx, "WHERE stack_id = $1 AND status IN ('accepted', 'running')", stackID)
}

// SilentJobs returns the jobs with a status whose last sign of life was before a time.
func (tx *Tx) SilentJobs(status workflow.Status, before time.Time) ([]Job, error) {
	return jobs.All(tx.Tx, "WHERE status = $1 AND last_seen_at < $2 ORDER BY last_seen_at LIMIT 200", status, before)
}

// StaleQueuedJobs returns the queued jobs that were queued before a time or whose stacks were
// deleted.
func (tx *Tx) StaleQueuedJobs(before time.Time) ([]Job, error) {
	return jobs.All(tx.Tx, `WHERE j.status = 'not-started'
		AND (j.queued_at < $1 OR NOT EXISTS (SELECT 1 FROM live_stacks s WHERE s.id = j.stack_id)) LIMIT 200`, before)
}

// MoveQueuedJobs moves up to limit queued jobs of an organization to a new pool, and returns their
// number. It does not move jobs that requested a pool by name.
func (tx *Tx) MoveQueuedJobs(orgID, poolID string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`UPDATE jobs SET pool_id = $2 WHERE id IN (SELECT id FROM jobs
		WHERE org_id = $1 AND status = 'not-started' AND pool_pinned = 0 AND pool_id <> $2 LIMIT %d)`, limit), orgID, poolID)
}

// AdoptQueuedJobs assigns a pool to a stack's queued jobs without a pool, and returns their number.
func (tx *Tx) AdoptQueuedJobs(stackID, poolID string) (int64, error) {
	return tx.Exec("UPDATE jobs SET pool_id = $2, pool_pinned = 1 WHERE stack_id = $1 AND status = 'not-started' AND pool_id = ''", stackID, poolID)
}

// UnpinQueuedJobs moves up to limit queued jobs of a pool to the default pool, and returns their
// number.
func (tx *Tx) UnpinQueuedJobs(poolID, defaultPool string, limit int) (int64, error) {
	return tx.Exec(fmt.Sprintf(`UPDATE jobs SET pool_id = $2, pool_pinned = 0 WHERE id IN (SELECT id FROM jobs
		WHERE pool_id = $1 AND status = 'not-started' LIMIT %d)`, limit), poolID, defaultPool)
}
