package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"workflowagent/internal/server/store/database"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// fillEstate replaces the rows of the stacks that a condition on the table stacks selects by what the tables of runs,
// tags and queues contain. The engines differ in two functions.
func fillEstate(postgres bool, where string) string {
	list, drifted := "GROUP_CONCAT", "json_each(updates.resource_changes) c WHERE c.key NOT IN (%s) AND c.value > 0"
	if postgres {
		list, drifted = "STRING_AGG", "json_each_text(CASE WHEN updates.resource_changes LIKE '{%%' THEN CAST(updates.resource_changes AS JSON) END) c WHERE c.key NOT IN (%s) AND CAST(c.value AS BIGINT) > 0"
	}
	drifted = "EXISTS (SELECT 1 FROM " + fmt.Sprintf(drifted, "'"+strings.Join(unchanging, "', '")+"'") + ")"
	return strings.NewReplacer("LIST(", list+"(", "DRIFTED", drifted, "WRITING", writingOperations, "DETECTS", detects, "DECIDES", decidesDrift, "WHERE SELECTED", where).Replace(fillStatement)
}

const fillStatement = `WITH picked AS (SELECT id, org_id, project, name, version, resource_count, active_update FROM stacks WHERE SELECTED),
written AS (
	SELECT u.stack_id, u.kind, 0 AS deployment, u.version, u.requested_by, '' AS requester, u.message, u.started_at, u.finished_at AS ended_at,
		CASE u.status WHEN 'running' THEN 'running' WHEN 'succeeded' THEN 'succeeded' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END AS result
	FROM picked p JOIN updates u ON u.stack_id = p.id WHERE u.preview = 0 AND u.started_at > 0 AND u.deployment_id = ''
	UNION ALL
	SELECT d.stack_id, d.operation, d.version,
		COALESCE((SELECT MAX(u.version) FROM updates u WHERE u.deployment_id = d.id AND u.preview = 0 AND u.started_at > 0), 0), d.requested_by, d.requester,
		COALESCE((SELECT u.message FROM updates u WHERE u.deployment_id = d.id AND u.preview = 0 AND u.started_at > 0 ORDER BY u.version DESC LIMIT 1), ''),
		CASE WHEN j.started_at > 0 THEN j.started_at ELSE j.ended_at END, j.ended_at,
		CASE WHEN j.drift_found = 1 THEN 'drift' WHEN j.status = 'running' THEN 'running' WHEN j.status = 'succeeded' THEN 'succeeded'
			WHEN j.reason = 'cancelled' THEN 'cancelled' ELSE 'failed' END
	FROM picked p JOIN deployments d ON d.stack_id = p.id JOIN jobs j ON j.deployment_id = d.id
	WHERE j.status IN ('running', 'succeeded', 'failed') AND NOT (j.status = 'failed' AND j.reason = 'cancelled' AND j.started_at = 0)
		AND (d.operation IN WRITING OR j.drift_found = 1
			OR EXISTS (SELECT 1 FROM updates u WHERE u.deployment_id = d.id AND u.preview = 0 AND u.started_at > 0))
),
ended AS (
	SELECT stack_id, CASE result WHEN 'succeeded' THEN 's' WHEN 'drift' THEN 'd' WHEN 'cancelled' THEN 'c' ELSE 'f' END
			|| CAST(CASE WHEN ended_at > started_at THEN (ended_at - started_at) / 1000000 ELSE 0 END AS TEXT)
			|| CASE WHEN deployment > 0 THEN 'd' || CAST(deployment AS TEXT) ELSE 'u' || CAST(version AS TEXT) END AS word,
		ROW_NUMBER() OVER (PARTITION BY stack_id ORDER BY ended_at DESC, version DESC, deployment DESC) AS n
	FROM written WHERE result <> 'running'
),
lists AS (SELECT stack_id, LIST(word, ' ' ORDER BY n DESC) AS runs FROM ended WHERE n <= 20 GROUP BY stack_id),
newest AS (
	SELECT written.*, ROW_NUMBER() OVER (PARTITION BY stack_id ORDER BY started_at DESC, version DESC, deployment DESC) AS n
	FROM written WHERE result <> 'drift'
),
detections AS (
	SELECT updates.stack_id, updates.created_at, updates.finished_at, updates.resource_changes, CASE WHEN DRIFTED THEN 1 ELSE 0 END AS drifted,
		ROW_NUMBER() OVER (PARTITION BY updates.stack_id ORDER BY updates.created_at DESC, updates.id) AS n
	FROM picked p JOIN updates ON updates.stack_id = p.id WHERE DETECTS
),
described AS (
	SELECT t.stack_id, LIST(LOWER(t.name || ':' || t.value), '
' ORDER BY t.name) AS tags FROM picked p JOIN stack_tags t ON t.stack_id = p.id
	WHERE t.name NOT LIKE 'pulumi:%' AND t.name NOT LIKE 'vcs:%' AND t.name NOT LIKE 'gitHub:%' GROUP BY t.stack_id
),
facts AS (
SELECT p.id, p.org_id, p.project, p.name, p.version, COALESCE(q.last_version, 0) AS deployments, p.resource_count, p.active_update,
	(SELECT COUNT(*) FROM jobs j WHERE j.stack_id = p.id AND j.operation IN WRITING AND j.status IN ('accepted', 'running')) AS active,
	(SELECT COUNT(*) FROM jobs j WHERE j.stack_id = p.id AND j.operation IN WRITING AND j.status = 'not-started') AS queued,
	COALESCE(q.paused, 0) AS paused,
	COALESCE(l.kind, '') AS last_kind, COALESCE(l.deployment, 0) AS last_deployment, COALESCE(l.version, 0) AS last_version, COALESCE(l.result, '') AS last_result,
	COALESCE(l.requested_by, '') AS last_by, COALESCE(l.requester, '') AS last_who, COALESCE(l.message, '') AS last_message,
	COALESCE(l.started_at, 0) AS last_started_at, COALESCE(l.ended_at, 0) AS last_ended_at,
	CASE WHEN x.stack_id IS NULL THEN '' WHEN x.drifted = 0 OR EXISTS (SELECT 1 FROM updates
			WHERE updates.stack_id = p.id AND updates.created_at > x.created_at AND DECIDES) THEN 'none' ELSE 'found' END AS drift,
	COALESCE(CASE WHEN x.drifted = 1 THEN (SELECT updates.finished_at FROM updates
			WHERE updates.stack_id = p.id AND updates.created_at > x.created_at AND DECIDES ORDER BY updates.created_at, updates.id LIMIT 1) END,
		x.finished_at, 0) AS drift_at, COALESCE(x.resource_changes, '') AS drift_changes,
	COALESCE(e.runs, '') AS runs,
	COALESCE(g.tags, '') AS tags,
	COALESCE((SELECT t.value FROM stack_tags t WHERE t.stack_id = p.id AND t.name = 'owner'), '') AS owner,
	COALESCE(
		(SELECT COALESCE(o.value || '/', '') || t.value FROM stack_tags t LEFT JOIN stack_tags o ON o.stack_id = t.stack_id AND o.name = 'vcs:owner' AND o.value <> ''
			WHERE t.stack_id = p.id AND t.name = 'vcs:repo' AND t.value <> ''),
		(SELECT COALESCE(o.value || '/', '') || t.value FROM stack_tags t LEFT JOIN stack_tags o ON o.stack_id = t.stack_id AND o.name = 'gitHub:owner' AND o.value <> ''
			WHERE t.stack_id = p.id AND t.name = 'gitHub:repo' AND t.value <> ''), '') AS repository,
	COALESCE((SELECT CASE WHEN updates.unevaluated NOT IN ('', 'null', '[]') THEN 1 ELSE 0 END FROM updates WHERE updates.stack_id = p.id AND updates.preview = 0
		AND updates.kind = 'update' AND updates.finished_at > 0 ORDER BY updates.version DESC LIMIT 1), 0) AS unevaluated
FROM picked p LEFT JOIN stack_queues q ON q.stack_id = p.id LEFT JOIN newest l ON l.stack_id = p.id AND l.n = 1
	LEFT JOIN detections x ON x.stack_id = p.id AND x.n = 1 LEFT JOIN described g ON g.stack_id = p.id
	LEFT JOIN lists e ON e.stack_id = p.id
)
INSERT INTO estate (stack_id, org_id, project, name, rank, changed_at, version, deployments, resources, held_by, active, queued, paused,
	last_kind, last_deployment, last_version, last_result, last_by, last_who, last_message, last_started_at, last_ended_at,
	drift, drift_at, drift_changes, runs, tags, owner, repository, unevaluated)
SELECT id, org_id, project, name,
	CASE WHEN active_update <> '' OR active > 0 THEN 2 WHEN last_result IN ('failed', 'cancelled') THEN 0 WHEN drift = 'found' THEN 1
		WHEN queued > 0 THEN 3 WHEN paused = 1 THEN 4 WHEN last_kind <> '' THEN 5 ELSE 6 END,
	CASE WHEN last_ended_at > last_started_at THEN last_ended_at ELSE last_started_at END,
	version, deployments, resource_count, active_update, active, queued, paused,
	last_kind, last_deployment, last_version, last_result, last_by, last_who, last_message, last_started_at, last_ended_at,
	drift, drift_at, drift_changes, runs, tags, owner, repository, unevaluated
FROM facts WHERE id <> ''
ON CONFLICT (stack_id) DO UPDATE SET org_id = excluded.org_id, project = excluded.project, name = excluded.name,
	rank = excluded.rank, changed_at = excluded.changed_at, version = excluded.version,
	deployments = excluded.deployments, resources = excluded.resources, held_by = excluded.held_by, active = excluded.active, queued = excluded.queued,
	paused = excluded.paused, last_kind = excluded.last_kind, last_deployment = excluded.last_deployment, last_version = excluded.last_version,
	last_result = excluded.last_result, last_by = excluded.last_by, last_who = excluded.last_who, last_message = excluded.last_message,
	last_started_at = excluded.last_started_at, last_ended_at = excluded.last_ended_at, drift = excluded.drift, drift_at = excluded.drift_at,
	drift_changes = excluded.drift_changes, runs = excluded.runs, tags = excluded.tags, owner = excluded.owner, repository = excluded.repository,
	unevaluated = excluded.unevaluated`

// addEstate adds the rows of the stacks that exist, after what they need of earlier runs.
func addEstate(ctx context.Context, tx *sql.Tx, postgres bool) error {
	if err := addMessages(ctx, tx); err != nil {
		return err
	}
	found, err := foundDrift(ctx, tx)
	if err != nil {
		return fmt.Errorf("reading what detections of drift have found: %w", err)
	}
	for _, id := range found {
		if _, err := tx.ExecContext(ctx, "UPDATE jobs SET drift_found = 1 WHERE id = $1", id); err != nil {
			return fmt.Errorf("marking deployments that found drift: %w", err)
		}
	}
	// Later migrations add these columns.
	fill := strings.NewReplacer("updates.targeted", "0", "updates.unevaluated", "''", "repository, unevaluated", "repository",
		",\n\tunevaluated = excluded.unevaluated", "").Replace(fillEstate(postgres, "WHERE id <> ''"))
	if _, err := tx.ExecContext(ctx, fill); err != nil {
		return fmt.Errorf("adding what lists show of stacks: %w", err)
	}
	return nil
}

// foundDrift returns the jobs that only detected drift and have found some.
func foundDrift(ctx context.Context, tx *sql.Tx) (jobs []string, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT j.id, u.resource_changes FROM deployments d JOIN jobs j ON j.deployment_id = d.id
		JOIN updates u ON u.deployment_id = d.id AND u.kind = 'refresh' AND u.preview = 1 AND u.status = 'succeeded' AND u.resource_changes <> ''
		LEFT JOIN deployment_briefs b ON b.deployment_id = d.id
		WHERE d.operation = 'detect-drift' AND COALESCE(b.remediates, 0) = 0
		AND (j.status = 'succeeded' OR j.status = 'failed' AND j.reason = 'exit-code')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, changes string
		if err := rows.Scan(&id, &changes); err != nil {
			return nil, err
		}
		if Drifted(changes) {
			jobs = append(jobs, id)
		}
	}
	return jobs, rows.Err()
}

// MaxRunMessage bounds the message of an update, in bytes.
const MaxRunMessage = 200

const (
	messagesPerRead = 50
	// maxOldProgram bounds the programs of which addMessages reads the message, in bytes.
	maxOldProgram = 64 << 10
)

// addMessages adds the message of each stack's newest update that is no preview.
func addMessages(ctx context.Context, tx *sql.Tx) error {
	for after := ""; ; {
		found, last, err := readMessages(ctx, tx, after)
		if err != nil {
			return fmt.Errorf("reading the messages of updates: %w", err)
		}
		if last == "" {
			return nil
		}
		after = last
		for id, message := range found {
			if _, err := tx.ExecContext(ctx, "UPDATE updates SET message = $2 WHERE id = $1", id, message); err != nil {
				return fmt.Errorf("adding the message of an update: %w", err)
			}
		}
	}
}

// readMessages returns the messages of the newest updates of stacks that follow an id, and the last of these stacks, or
// "" after the last stack.
func readMessages(ctx context.Context, tx *sql.Tx, after string) (found map[string]string, last string, err error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`SELECT s.id, COALESCE(u.id, ''), COALESCE(u.program, '') FROM stacks s
		LEFT JOIN updates u ON u.stack_id = s.id AND u.version = s.version AND u.preview = 0 AND octet_length(u.program) <= %d
		WHERE s.id > $1 ORDER BY s.id LIMIT %d`, maxOldProgram, messagesPerRead), after)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	found = map[string]string{}
	for rows.Next() {
		var id, program string
		if err := rows.Scan(&last, &id, &program); err != nil {
			return nil, "", err
		}
		var p struct{ Metadata struct{ Message string } }
		if id != "" && json.Unmarshal([]byte(program), &p) == nil && p.Metadata.Message != "" {
			found[id] = termtext.OneLine(p.Metadata.Message, MaxRunMessage)
		}
	}
	return found, last, rows.Err()
}

// stale selects the stacks whose rows programs that do not know the table have left behind.
const stale = `SELECT s.id FROM stacks s LEFT JOIN estate e ON e.stack_id = s.id LEFT JOIN stack_queues q ON q.stack_id = s.id
	WHERE s.id > $1 AND (e.stack_id IS NULL OR e.org_id <> s.org_id OR e.project <> s.project OR e.name <> s.name OR e.version <> s.version
	OR e.resources <> s.resource_count OR e.held_by <> s.active_update OR e.deployments <> COALESCE(q.last_version, 0) OR e.paused <> COALESCE(q.paused, 0)
	OR e.active <> (SELECT COUNT(*) FROM jobs j WHERE j.stack_id = s.id AND j.operation IN ` + writingOperations + ` AND j.status IN ('accepted', 'running'))
	OR e.queued <> (SELECT COUNT(*) FROM jobs j WHERE j.stack_id = s.id AND j.operation IN ` + writingOperations + ` AND j.status = 'not-started'))
	ORDER BY s.id LIMIT 100`

// RepairEstate replaces the rows that programs of earlier versions, which do not know the table, have left behind while
// they used the database. It returns their number.
func (db *DB) RepairEstate(ctx context.Context) (n int, err error) {
	for after := ""; ; {
		ids, err := Read(ctx, db, func(tx *Tx) ([]string, error) { return database.Scalars[string](tx.Tx, stale, after) })
		if err != nil || len(ids) == 0 {
			return n, err
		}
		for _, id := range ids {
			err := db.Write(ctx, scope.Set{{Level: scope.LevelStack, Key: id}}, func(tx *Tx) error {
				if _, err := tx.Exec(fillEstate(tx.Engine() == "postgres", "WHERE id = $1"), id); err != nil {
					return err
				}
				return tx.listUpdatesOf(id)
			})
			if err != nil {
				return n, err
			}
			n++
		}
		after = ids[len(ids)-1]
	}
}
