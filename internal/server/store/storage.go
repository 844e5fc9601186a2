package store

import (
	"fmt"
	"time"

	"workflowagent/internal/server/store/database"
)

// LongText is the size in bytes above which the program of an update, the configuration of a deployment,
// settings, exceptions from policies and definitions of environments count as storage. Shorter ones are
// history, like the rows that contain them. Queries and partial indexes repeat the number.
const LongText = 4096

// Storage is what an organization stores, in bytes.
type Storage struct {
	OrgID    string
	Measured int64  // by the last measurement
	Imported int64  // states and large texts that were added since then
	OrgName  string `db:"-" read:"o.name"`
	Quota    int64  `db:"-" read:"o.storage_quota"` // see [Organization]
}

// Bytes returns the sum.
func (s Storage) Bytes() int64 { return s.Measured + s.Imported }

var storage = database.NewTable[Storage]("organization_storage t JOIN organizations o ON o.id = t.org_id")

// Storage returns what an organization stores. Before the first measurement, it returns
// [ErrNotFound].
func (tx *Tx) Storage(orgID string) (Storage, error) {
	return storage.One(tx.Tx, "WHERE t.org_id = $1", orgID)
}

// Storages returns what the organizations store.
func (tx *Tx) Storages() ([]Storage, error) {
	return storage.All(tx.Tx, "WHERE o.deleted_at = 0 ORDER BY o.name")
}

// MeasureStorage returns the sizes of what each organization stores now, and of the imports that
// these sizes contain. The conditions on created_at let PostgreSQL read the tables of webhooks by an
// index, without which it plans, and compiles, the query as an expensive one.
func (tx *Tx) MeasureStorage() ([]Storage, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (s Storage, err error) {
		err = scan(&s.OrgID, &s.Measured, &s.Imported)
		return s, err
	}, `SELECT o.id, CAST(COALESCE(SUM(x.bytes), 0) AS BIGINT), COALESCE((SELECT imported FROM organization_storage t WHERE t.org_id = o.id), 0)
		FROM organizations o LEFT JOIN (
			SELECT k.org_id, s.size AS bytes FROM states s JOIN stack_owners k ON k.id = s.stack_id
			UNION ALL SELECT k.org_id, octet_length(b.body) FROM journal_batches b
				JOIN states s ON s.state_key = b.state_key JOIN stack_owners k ON k.id = s.stack_id
			UNION ALL SELECT k.org_id, u.event_bytes FROM updates u JOIN stack_owners k ON k.id = u.stack_id WHERE u.event_bytes > 0
			UNION ALL SELECT j.org_id, j.log_bytes FROM jobs j WHERE j.log_bytes > 0
			UNION ALL SELECT n.org_id, n.stored_bytes FROM policy_evaluations n WHERE n.stored_bytes > 0
			UNION ALL SELECT k.org_id, octet_length(u.program) FROM updates u JOIN stack_owners k ON k.id = u.stack_id WHERE octet_length(u.program) > 4096
			UNION ALL SELECT d.org_id, octet_length(d.configuration) FROM deployments d WHERE octet_length(d.configuration) > 4096
			UNION ALL SELECT k.org_id, octet_length(s.document) FROM deployment_settings s JOIN stack_owners k ON k.id = s.stack_id
				WHERE octet_length(s.document) > 4096
			UNION ALL SELECT k.org_id, octet_length(c.request) FROM schedules c JOIN stack_owners k ON k.id = c.stack_id WHERE octet_length(c.request) > 4096
			UNION ALL SELECT k.org_id, octet_length(s.config) FROM stacks s JOIN stack_owners k ON k.id = s.id WHERE octet_length(s.config) > 4096
			UNION ALL SELECT k.org_id, octet_length(a.document) FROM stack_annotations a JOIN stack_owners k ON k.id = a.stack_id
			UNION ALL SELECT p.org_id, v.size + octet_length(v.policies) + octet_length(v.details)
				FROM policy_pack_versions v JOIN policy_packs p ON p.id = v.pack_id
			UNION ALL SELECT e.org_id, octet_length(r.definition) FROM environment_revisions r JOIN environments e ON e.id = r.environment_id
				WHERE octet_length(r.definition) > 4096
			UNION ALL SELECT s.org_id, octet_length(s.sealed) FROM environment_sessions s
			UNION ALL SELECT e.org_id, octet_length(d.definition) FROM environment_drafts d JOIN environments e ON e.id = d.environment_id
				WHERE octet_length(d.definition) > 4096
			UNION ALL SELECT x.org_id, octet_length(x.entries) FROM policy_exceptions x WHERE octet_length(x.entries) > 4096
			UNION ALL SELECT e.org_id, octet_length(e.payload) FROM webhook_events e WHERE e.created_at >= 0
			UNION ALL SELECT h.org_id, octet_length(d.request_headers) + octet_length(d.response_headers) + octet_length(d.response_body)
				FROM webhook_deliveries d JOIN webhooks h ON h.id = d.hook_id WHERE d.created_at >= 0
		) x ON x.org_id = o.id WHERE o.id <> '`+deletedOrg+`' GROUP BY o.id`)
}

// SaveStorage records the result of a measurement. Imports that committed since then remain added.
func (tx *Tx) SaveStorage(s Storage) error {
	_, err := tx.Exec(`INSERT INTO organization_storage (org_id, measured, imported) VALUES ($1, $2, 0)
		ON CONFLICT (org_id) DO UPDATE SET measured = $2, imported = organization_storage.imported - $3`, s.OrgID, s.Measured, s.Imported)
	return err
}

// LongPrograms returns the size of the long programs of a deployment's updates.
func (tx *Tx) LongPrograms(deploymentID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT CAST(COALESCE(SUM(octet_length(program)), 0) AS BIGINT) FROM updates
		WHERE deployment_id = $1 AND octet_length(program) > 4096`, deploymentID)
}

// AddImport adds the size of an imported state or a large text to what an organization stores.
func (tx *Tx) AddImport(orgID string, bytes int64) error {
	_, err := tx.Exec(`INSERT INTO organization_storage (org_id, measured, imported) VALUES ($1, 0, $2)
		ON CONFLICT (org_id) DO UPDATE SET imported = organization_storage.imported + $2`, orgID, bytes)
	return err
}

// Unmeasured is an update or a job, with its stack and organization.
type Unmeasured struct{ ID, StackID, OrgID string }

func (tx *Tx) unmeasured(query string, limit int, before time.Time) ([]Unmeasured, error) {
	return database.Collect(tx.Tx, func(scan database.Scan) (u Unmeasured, err error) {
		err = scan(&u.ID, &u.StackID, &u.OrgID)
		return u, err
	}, query+fmt.Sprintf(" LIMIT %d", limit), before)
}

// UnmeasuredEvents returns updates that finished before a time, and the sizes of whose events are
// not recorded.
func (tx *Tx) UnmeasuredEvents(before time.Time, limit int) ([]Unmeasured, error) {
	return tx.unmeasured(`SELECT u.id, u.stack_id, (SELECT k.org_id FROM stack_owners k WHERE k.id = u.stack_id) FROM updates u
		WHERE u.event_bytes < 0 AND u.finished_at > 0 AND u.finished_at < $1 ORDER BY u.finished_at`, limit, before)
}

// EventBytes returns the stored bytes of an update's events, and of what policy packs found in them.
func (tx *Tx) EventBytes(updateID string) (int64, error) {
	return database.Scalar[int64](tx.Tx, `SELECT CAST(
		(SELECT COALESCE(SUM(octet_length(packed) + octet_length(body)), 0) FROM engine_events WHERE update_id = $1)
		+ (SELECT COALESCE(SUM(octet_length(levels) + octet_length(counts) + octet_length(covered)), 0) FROM policy_runs WHERE update_id = $1)
		+ (SELECT COALESCE(SUM(octet_length(urn) + octet_length(message)), 0) FROM policy_violations WHERE update_id = $1) AS BIGINT)`, updateID)
}

// SetEventBytes records the size of an update's events.
func (tx *Tx) SetEventBytes(updateID string, bytes int64) error {
	_, err := tx.Exec("UPDATE updates SET event_bytes = CASE WHEN events_expired = 0 THEN $2 ELSE 0 END WHERE id = $1", updateID, bytes)
	return err
}

// MeasureEventsAgain forgets the size of an update's events, which have changed since the
// measurement.
func (tx *Tx) MeasureEventsAgain(updateID string) error {
	_, err := tx.Exec("UPDATE updates SET event_bytes = -1 WHERE id = $1 AND event_bytes >= 0", updateID)
	return err
}

// UnmeasuredEvaluations returns evaluations that ended before a time, and the sizes of whose logs are not recorded.
func (tx *Tx) UnmeasuredEvaluations(before time.Time, limit int) ([]Unmeasured, error) {
	return tx.unmeasured(`SELECT id, stack_id, org_id FROM policy_evaluations WHERE stored_bytes < 0 AND ended_at > 0 AND ended_at < $1
		ORDER BY ended_at`, limit, before)
}

// SetEvaluationBytes records the size of an evaluation: that of its log, and that of its packs, whose levels can be long.
func (tx *Tx) SetEvaluationBytes(id string, log int64) error {
	_, err := tx.Exec("UPDATE policy_evaluations SET stored_bytes = CAST($2 AS BIGINT) + octet_length(packs) WHERE id = $1", id, log)
	return err
}

// MeasureEvaluationAgain forgets the size of an evaluation, whose log has changed since the measurement.
func (tx *Tx) MeasureEvaluationAgain(id string) error {
	_, err := tx.Exec("UPDATE policy_evaluations SET stored_bytes = -1 WHERE id = $1 AND stored_bytes >= 0", id)
	return err
}

// MeasureLogAgain forgets the size of a job's log, which has changed since the measurement.
func (tx *Tx) MeasureLogAgain(jobID string) error {
	_, err := tx.Exec("UPDATE jobs SET log_bytes = -1 WHERE id = $1 AND log_bytes >= 0", jobID)
	return err
}

// UnmeasuredLogs returns jobs that ended before a time, and the sizes of whose logs are not
// recorded.
func (tx *Tx) UnmeasuredLogs(before time.Time, limit int) ([]Unmeasured, error) {
	return tx.unmeasured(`SELECT id, stack_id, org_id FROM jobs WHERE log_bytes < 0 AND ended_at > 0 AND ended_at < $1
		ORDER BY ended_at`, limit, before)
}

// SetLogBytes records the size of a job's log.
func (tx *Tx) SetLogBytes(jobID string, bytes int64) error {
	_, err := tx.Exec("UPDATE jobs SET log_bytes = CASE WHEN log_expired = 0 THEN $2 ELSE 0 END WHERE id = $1", jobID, bytes)
	return err
}
